"""Measure the cost of a frame of `hpq watch`, for a small and a very large sweep."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rich.console import Console

from benchmarks.figures import Figure, in_turn
from benchmarks.server import Server, private_server
from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq.domain.trial import Claim, Point, TrialState
from hpq.store.trials import TrialStore
from hpq.store.wire.row import encode_new
from hpq_views.text.screen import DrawnLines
from hpq_views.text.style import TerminalInfo
from hpq_views.watch.frame import render
from hpq_views.watch.keys import View
from hpq_views.watch.scene import SceneReader

_SMALL, _LARGE = 100, 100_000
_RUNNING, _CURVES = 16, 60  # running trials, and ended ones with a curve
_LEASE_MS = 3_600_000
_FRAMES = 10  # averaged for each round
_LOOK = TerminalInfo(columns=140, rows=58, tty=True, color=True)  # 40 rows of trials


def measure(rounds: int) -> Iterator[Figure]:
    """Measure CPU time of reading, layout and drawing with half finished and 16 running trials."""
    with private_server() as server:
        calls: dict[str, Callable[[], float]] = {}
        for count in (_SMALL, _LARGE):
            fill(server, f"sweep-{count}", count)
            calls[f"first {count}"] = partial(_first_ms, server, f"sweep-{count}")
            calls[f"next {count}"] = partial(_next_ms, server, f"sweep-{count}")
        found = in_turn(rounds, calls)
    for kind, words, target in (("first", "nothing kept", 40), ("next", "ended rows kept", 30)):
        figures = [
            Figure(
                what=f"a frame of 40 rows at {count:,} trials, {words}",
                unit="ms", values=found[f"{kind} {count}"], target=target,
            )
            for count in (_SMALL, _LARGE)
        ]  # fmt: skip
        yield from figures
        ratio = figures[1].median / figures[0].median
        yield Figure(what="the same, large over small", unit="×", values=[ratio], target=1.2)


def _first_ms(server: Server, sid: str) -> float:
    """Measure frames of new readers."""
    reader = server.session().reader
    begun = time.process_time()
    for _ in range(_FRAMES):
        _draw(SceneReader(reader), View(sweep=sid))
    return 1000 * (time.process_time() - begun) / _FRAMES


def _next_ms(server: Server, sid: str) -> float:
    """Measure successive frames of one reader, as on a terminal."""
    scenes = SceneReader(server.session().reader)
    view = _draw(scenes, View(sweep=sid))
    begun = time.process_time()
    for _ in range(_FRAMES):
        view = _draw(scenes, view)
    return 1000 * (time.process_time() - begun) / _FRAMES


def _draw(scenes: SceneReader, view: View) -> View:
    drawn, view = render(view, scenes.read(view, _LOOK), _LOOK)
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="256",
        width=_LOOK.columns, height=_LOOK.rows, legacy_windows=False,
    )  # fmt: skip
    console.print(DrawnLines(drawn, _LOOK))
    if len(view.seen.numbers) < 38:
        raise AssertionError(f"{len(view.seen.numbers)} rows")
    return replace(view, cursor=0)


def fill(server: Server, sid: str, count: int) -> None:
    """Create a sweep with half of its trials finished and 16 running."""
    session = server.session()
    writer, store = session.writer(), TrialStore(session.context)
    rows = [encode_new(ParameterSet(x=i, y=i / 7, z="on"), 0) for i in range(1, count + 1)]
    writer.add_rows(sid, 1, rows)
    writer.create(
        SweepView(
            id=sid,
            name=sid,
            digest=sid,
            launch=Launch(trainer="digits"),
            metric=Metric(name="acc", goal=Goal.MAXIMIZE),
            queue=sid,
            varying=("x", "y", "z"),
        )
    )
    for i in range(count // 2):
        # The best trials are last, so that the visible rows have curves.
        _claim(store, sid, i % _RUNNING, ended=True, points=30 if i > count // 2 - _CURVES else 0)
    for i in range(_RUNNING):
        _claim(store, sid, i, ended=False, points=30)


def _claim(store: TrialStore, sid: str, worker: int, *, ended: bool, points: int) -> None:
    who = WorkerPresence(name=f"{sid}-{worker}", host="bench", queue=sid, fields={"pid": "1"})
    if not ended:
        store.present(who, idle=False, lifetime_ms=_LEASE_MS)
    claim = store.claim(who, nonce=str(time.monotonic_ns()), lease_ms=_LEASE_MS)
    assert isinstance(claim, Claim)
    value = claim.trial.number / 200_000 if points else claim.trial.number / 400_000
    if points:
        curve = [Point(step=s, name="acc", value=value * s / points) for s in range(1, points + 1)]
        batch = ReportBatch(seq=1, step=points, objective=value, points=tuple(curve))
        store.beat(claim, who, batch, lease_ms=_LEASE_MS)
    if ended:
        outcome = Outcome(state=TrialState.FINISHED, objective=value, step=points)
        store.commit(claim, outcome)
