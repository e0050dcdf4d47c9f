"""`hpq watch`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import Annotated

import typer

from hpq.errors import UserError
from hpq_producer.analysis.records import snapshot_record
from hpq_producer.cluster.pods import PodWatcher
from hpq_producer.diagnosis.pods import cluster_record
from hpq_producer.diagnosis.verdict import exit_code, needed_actions, time_left
from hpq_producer.diagnosis.waiting import explain_waiting
from hpq_producer.session import Session, open_session
from hpq_producer.targets import complete_sweep_ids
from hpq_producer.terminal.console import show_json, terminal_info
from hpq_producer.terminal.rendering import print_frame
from hpq_producer.watch.app import watch_sweep
from hpq_producer.watch.event_log import print_lines
from hpq_producer.watch.frame import render
from hpq_producer.watch.scene import SceneReader
from hpq_producer.watch.view import View

app = typer.Typer()
_MOST = 500  # running trials in --json


@app.command()
def watch(
    sweep: Annotated[
        str | None,
        typer.Argument(help="A sweep's id or its beginning.", autocompletion=complete_sweep_ids),
    ] = None,
    until_done: Annotated[bool, typer.Option(help="Leave when the sweep is over.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and leave.")] = False,
    several: Annotated[bool, typer.Option("--all", help="Begin with the list of sweeps.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (with --once).")] = False,
    lines: Annotated[bool, typer.Option(help="A line an event, also on a terminal.")] = False,
) -> None:
    """A sweep, live: arrows move, Enter opens a trial, ? lists the keys, q quits."""
    if as_json and not once:
        raise UserError("--json goes with --once: a watch without end is no JSON")
    if several and (once or lines or not sys.stdout.isatty()):
        raise UserError("--all needs a terminal; `hpq ls` prints the sweeps", code="usage")
    with open_session() as session:
        if several:
            watch_sweep(session, "", several=True)
            return
        sid = session.reader.sweeps.resolve(sweep, session.settings.user)
        if as_json:
            return _data(session, sid)
        if once:
            return _frame(session, sid)
        if lines:
            print_lines(session, sid, sys.stdout)
        else:
            watch_sweep(session, sid, until_done=until_done)
        if until_done or lines or not sys.stdout.isatty():
            raise typer.Exit(exit_code(session.reader.sweeps.get(sid)))


def _frame(session: Session, sid: str) -> None:
    terminal, view = terminal_info(sys.stdout, os.environ), View(sweep=sid)
    with closing(PodWatcher(session)) as pods:
        scene = SceneReader(session.reader, pods).read(view, terminal, is_live=False)
    print_frame(render(view, scene, terminal)[0], terminal)


def _data(session: Session, sid: str) -> None:
    shot = session.reader.snapshot(sid, _MOST, top=20, recent=20)
    pods = PodWatcher(session)
    cluster = pods.snapshot_now(shot.workers)
    why = explain_waiting(shot, cluster, pods)
    record = snapshot_record(shot, needed_actions(shot, why), time_left(shot))
    show_json({**record, "cluster": cluster_record(cluster) if cluster else None})
