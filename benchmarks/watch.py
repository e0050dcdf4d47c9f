"""What a frame of `hpq watch` costs, for a small sweep and for a very large one."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from functools import partial

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, in_turn
from benchmarks.server import Server, private_server
from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Goal, Launch, Metric, Sweep
from hpq.domain.trial import Point, TrialState
from hpq.store.trials import TrialStore
from hpq.store.wire.trial import encode_new
from hpq_producer.terminal.style import TerminalInfo, paint
from hpq_producer.watch.app import read_scene
from hpq_producer.watch.frame import frame

_SMALL, _LARGE = 100, 100_000
_RUNNING = 16
_LEASE_MS = 3_600_000
_FRAMES = 20  # a round is the mean of so many
_LOOK = TerminalInfo(columns=120, rows=50, tty=True, colour=True, unicode=True)


def measure(rounds: int) -> Iterator[Figure]:
    """Half of each sweep has finished, 16 trials run; rich only draws, and reads nothing."""
    with private_server() as server:
        calls: dict[str, Callable[[], float]] = {"rich": _rich_ms}
        for count in (_SMALL, _LARGE):
            _fill(server, f"sweep-{count}", count)
            calls[f"hpq {count}"] = partial(_frame_ms, server, f"sweep-{count}")
        found = in_turn(rounds, calls)
    small = Figure(
        what=f"hpq, a frame at {_SMALL:,} trials", unit="ms", values=found[f"hpq {_SMALL}"]
    )
    large = Figure(
        what=f"hpq, a frame at {_LARGE:,} trials", unit="ms", values=found[f"hpq {_LARGE}"]
    )
    yield small
    yield small.peer(f"rich, a table of {_SMALL:,} rows and 10 columns", found["rich"])
    yield large
    yield Figure(
        what="the same, large over small",
        unit="×",
        values=[large.median / small.median],
        target=1.2,
    )


def _frame_ms(server: Server, sid: str) -> float:
    """CPU time of this process: reading, decoding, laying out, painting."""
    reader = server.session().reader
    begun = time.process_time()
    for _ in range(_FRAMES):
        for line in frame(read_scene(reader, sid, _LOOK), _LOOK.columns, _LOOK.rows):
            paint(line, _LOOK)
    return 1000 * (time.process_time() - begun) / _FRAMES


def _rich_ms() -> float:
    """All rows of a table, which is what rich.Live draws at each refresh, shown or not."""
    table = Table(*(f"column {i}" for i in range(10)))
    for row in range(_SMALL):
        table.add_row(*(f"{row * i / 7:.4f}" for i in range(10)))
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=50)
    begun = time.process_time()
    console.print(table)
    return 1000 * (time.process_time() - begun)


def _fill(server: Server, sid: str, count: int) -> None:
    session = server.session()
    writer, store = session.writer(), TrialStore(session.context())
    rows = [encode_new(ParameterSet(x=i, y=i / 7, z="on"), 0) for i in range(1, count + 1)]
    writer.add_rows(sid, 1, rows)
    writer.seal(
        Sweep(
            id=sid,
            name=sid,
            digest=sid,
            launch=Launch(trainer="digits"),
            metric=Metric(name="acc", goal=Goal.MAXIMIZE),
            worker_class=sid,
            varying=("x", "y", "z"),
        )
    )
    for i in range(count // 2):
        _claim(store, sid, i % _RUNNING, ended=True, points=30 if i > count // 2 - 50 else 0)
    for i in range(_RUNNING):
        _claim(store, sid, i, ended=False, points=30)


def _claim(store: TrialStore, sid: str, worker: int, *, ended: bool, points: int) -> None:
    who = WorkerPresence(
        name=f"{sid}-{worker}", host="bench", worker_class=sid, fields={"pid": "1"}
    )
    if not ended:
        store.present(who, idle=False, lifetime_ms=_LEASE_MS)
    claim = store.claim(who, nonce=str(time.monotonic_ns()), lease_ms=_LEASE_MS)
    assert claim is not None
    value = claim.trial.number % 9973 / 10_000
    if points:
        curve = [Point(step=s, name="acc", value=value * s / points) for s in range(1, points + 1)]
        batch = ReportBatch(seq=1, step=points, objective=value, points=tuple(curve))
        store.beat(claim, who, batch, lease_ms=_LEASE_MS)
    if ended:
        outcome = Outcome(state=TrialState.FINISHED, objective=value, step=points)
        store.commit(claim, outcome)
