"""`hpq watch`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from typer import Option

from hpq.access.session import Session, open_session
from hpq.errors import UserError
from hpq_producer.actions.by_name import carry_out
from hpq_producer.commands.common_flags import Output
from hpq_views.analysis.output_records import status_record
from hpq_views.analysis.rank_results import read_standings
from hpq_views.command_output.sweep_table import COLUMNS, read_sweeps
from hpq_views.targets import SweepRef
from hpq_views.text.console import show_table, terminal_info
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import paint
from hpq_views.watch.app import watch_sweep
from hpq_views.watch.frame import render
from hpq_views.watch.keys import View
from hpq_views.watch.scene import SceneReader
from hpq_views.why.verdict import exit_code, needed_actions, time_left
from hpq_views.why.waiting import explain_waiting

_BEST = 20
_MOST = 500  # running trials in -o json, and sweeps in a list


def watch(
    sweep: SweepRef = None,
    once: Annotated[bool, Option("--once", help="Print one frame and exit.")] = False,
    several: Annotated[bool, Option("--all", help="Start with the list of sweeps.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show a sweep live: arrows move, Enter opens a trial, ? lists the keys, q quits.

    If stdout is no terminal, it prints one line per event.

    Example: hpq watch digits-3f2a1 --once -o json
    """
    if output.is_data and not once:
        raise UserError("-o needs --once; `hpq watch --once -o json` prints the current state")
    if several and (output.is_data or not (once or sys.stdout.isatty())):
        text = "--all needs a terminal or --once; `hpq ls -o json` prints the sweeps"
        raise UserError(text, code="usage")
    with open_session() as session:
        if several and once:
            return show_table(COLUMNS, read_sweeps(session.reader, _MOST, session).rows())
        if several:
            watch_sweep(session, "", partial(carry_out, session), several=True)
            return
        sid = session.find(sweep)
        if output.is_data:
            return _data(session, sid, output)
        if once:
            return _frame(session, sid)
        watch_sweep(session, sid, partial(carry_out, session))
        if not sys.stdout.isatty():
            ended = session.reader.sweeps.get(sid)
            raise typer.Exit(exit_code(ended, session.reader.sweeps.best_objective(ended)))


def _frame(session: Session, sid: str) -> None:
    terminal, view = terminal_info(sys.stdout, os.environ), View(sweep=sid)
    scene = SceneReader(session.reader, session).read(view, terminal, is_live=False)
    for line in render(view, scene, terminal)[0]:
        print(paint(line, terminal))


def _data(session: Session, sid: str, output: Format) -> None:
    status = session.reader.status(sid, _MOST, top=_BEST, recent=20)
    if sweep_front := read_standings(session.reader, status.sweep).front:
        status = replace(status, best=tuple(sweep_front.trials[:_BEST]))
    why = explain_waiting(status, session)
    show_data(status_record(status, why, needed_actions(status, why), time_left(status)), output)
