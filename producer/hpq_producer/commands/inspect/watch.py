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
from hpq_producer.terminal.style import paint
from hpq_producer.watch.app import read_scene, watch_sweep
from hpq_producer.watch.event_log import print_lines
from hpq_producer.watch.frame import frame

_MOST = 500  # running trials in --json


def watch(
    sweep: Annotated[
        str | None,
        typer.Argument(help="A sweep's id or its beginning.", autocompletion=complete_sweep_ids),
    ] = None,
    until_done: Annotated[bool, typer.Option(help="Leave when the sweep is over.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (with --once).")] = False,
    lines: Annotated[bool, typer.Option(help="A line an event, also on a terminal.")] = False,
) -> None:
    """A sweep, live: q quits, arrows scroll."""
    if as_json and not once:
        raise UserError("--json goes with --once: a watch without end is no JSON")
    with open_session() as session:
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
    terminal = terminal_info(sys.stdout, os.environ)
    with closing(PodWatcher(session)) as pods:
        scene = read_scene(session.reader, sid, terminal, pods=pods, is_live=False)
    for line in frame(scene, terminal.columns, terminal.rows):
        print(paint(line, terminal))


def _data(session: Session, sid: str) -> None:
    shot = session.reader.snapshot(sid, _MOST, top=20, recent=20)
    pods = PodWatcher(session)
    cluster = pods.snapshot_now(shot.workers)
    why = explain_waiting(shot, cluster, pods)
    record = snapshot_record(shot, needed_actions(shot, why), time_left(shot))
    show_json({**record, "cluster": cluster_record(cluster) if cluster else None})
