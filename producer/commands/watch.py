"""`hpq watch`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from producer.look.frame import frame
from producer.look.lines import print_lines
from producer.look.outcome import exit_code
from producer.look.style import paint
from producer.look.terminal import look_of
from producer.look.watch import read_scene, watch_sweep
from producer.session import Session, open_session

app = typer.Typer()


@app.command()
def watch(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's id or its beginning.")] = None,
    until_done: Annotated[bool, typer.Option(help="Leave when the sweep is over.")] = False,
    once: Annotated[bool, typer.Option(help="Print one frame and leave.")] = False,
    lines: Annotated[bool, typer.Option(help="A line an event, also on a terminal.")] = False,
) -> None:
    """A sweep, live: q quits, arrows scroll."""
    with open_session() as session:
        sid = session.view.resolve(sweep, session.settings.user)
        if once:
            return _frame(session, sid)
        if lines:
            print_lines(session.view, sid, sys.stdout)
        else:
            watch_sweep(session, sid, until_done=until_done)
        if until_done or lines or not sys.stdout.isatty():
            raise typer.Exit(exit_code(session.view.sweep(sid)))


def _frame(session: Session, sid: str) -> None:
    look = look_of(sys.stdout, os.environ)
    for line in frame(read_scene(session.view, sid, look), look.columns, look.rows):
        print(paint(line, look))
