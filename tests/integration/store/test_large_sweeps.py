"""Large sweeps: looking at one costs what a small one costs; cancelling one blocks no server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from hpq.domain.attempt import Nothing, Outcome, WorkerPresence
from hpq.domain.sweep import SweepState
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.scripts import BATCH_ROWS, Scripts, StoreContext
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.server import calls, temporary_server

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A server that no other test has used: these tests count all its commands."""
    with temporary_server() as url:
        yield url


@pytest.mark.slow
def test_a_look_at_20_000_sets_reads_no_more_than_one_at_fifty(
    hpq: Hpq, redis: Redis, sweep_of
) -> None:
    """F30: many sets are enqueued, and `hpq watch` looks."""
    sent, sizes = list[dict[str, int]](), list[int]()
    for count, sid in ((50, "small-00000"), (20_000, "large-00000")):
        sweep_of(count, sid)
        redis.config_resetstat()
        shown = hpq("watch", sid, "--once").stdout
        sizes.append(redis.info("stats")["total_net_output_bytes"])
        sent.append(calls(redis))
        assert f"0/{count:,} " in shown
    assert sent[0] == sent[1] and sizes[1] < sizes[0] + 4096, sizes


@pytest.fixture
def halved(control: SweepControl, sweep_of) -> str:
    """A sweep whose first half is cancelled: each half takes three calls of a script."""
    sid: str = sweep_of(22_000).id
    assert control.cancel(sid, range(1, 11_001)) == 11_000
    return sid


def test_a_large_sweep_is_cancelled_in_pieces_and_all_of_it_is_counted(
    control: SweepControl, reader: StoreReader, redis: Redis, halved: str
) -> None:
    redis.config_resetstat()
    assert control.cancel(halved) == 11_000
    calls = redis.info("commandstats")
    most = calls["cmdstat_zadd"]["calls"] / calls["cmdstat_evalsha"]["calls"]
    assert most < 100 and calls["cmdstat_evalsha"]["calls"] >= 3, calls
    sweep = reader.sweeps.get(halved)
    assert (sweep.state, sweep.counts.cancelled) == (SweepState.CANCELLED, 22_000)
    assert control.cancel(halved) == 0
    assert not audit_sweep(reader, halved).violations


@pytest.mark.parametrize(
    ("verb", "finisher"), [("cancel", "the command again"), ("stop", "a worker")]
)
def test_a_cancel_that_crashed_is_finished_by(
    verb: str,
    finisher: str,
    store_context: StoreContext,
    store: TrialStore,
    who: WorkerPresence,
    hpq: Hpq,
    reader: StoreReader,
    halved: str,
) -> None:
    _, rest = store_context.scripts.run("control", halved, verb)
    assert rest[3] == 1, "one piece of several"
    left = reader.sweeps.get(halved)
    assert left.state is SweepState.STOPPING and left.counts.queued == 6_000
    assert store.claim(who, nonce="n", lease_ms=30_000) == Nothing()
    if finisher == "a worker":
        for _ in range(4):
            store.reap("default", lease_ms=30_000, lost_max=3)
    else:
        assert "6,000 " in hpq(verb, halved, "--yes").stderr
    sweep = reader.sweeps.get(halved)
    assert sweep.state.is_over and sweep.counts.cancelled == 22_000
    assert not audit_sweep(reader, halved).violations


def test_many_trials_that_began_before_are_cancelled_in_pieces_too(
    control: SweepControl,
    store: TrialStore,
    who: WorkerPresence,
    reader: StoreReader,
    store_context: StoreContext,
    sweep_of,
) -> None:
    sid = sweep_of(1_100).id
    for i in range(1_050):
        claim = store.claim(who, nonce=f"n{i}", lease_ms=30_000)
        assert isinstance(claim, Claim)
        store.commit(claim, Outcome(state=TrialState.FINISHED, objective=0.5))
    assert control.retry(sid, range(1, 1_051)) == 1_050
    _, rest = store_context.scripts.run("control", sid, "cancel")
    assert (rest[2], rest[3]) == (1_000, 1), "one piece of several"
    assert control.cancel(sid) == 100
    counts = reader.sweeps.get(sid).counts
    assert (counts.cancelled, counts.queued) == (1_100, 0)
    assert not audit_sweep(reader, sid).violations


@pytest.mark.slow
def test_no_command_does_more_for_30_000_trials_than_for_a_part_of_them(
    control: SweepControl,
    writer: SweepWriter,
    sweep_of,
    hpq: Hpq,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts the commands inside each script; those that read send none for a trial that waits."""
    most, run = dict[str, int](), Scripts.run
    here = threading.current_thread()

    def counted(self: Scripts, script: str, *rows: Any, **fields: Any) -> tuple[str, list[Any]]:
        if threading.current_thread() is not here:  # one that another test has left behind
            return run(self, script, *rows, **fields)
        redis.config_resetstat()
        answer = run(self, script, *rows, **fields)
        done = sum(row["calls"] for row in redis.info("commandstats").values())
        name = f"control {rows[1]}" if script == "control" else script
        most[name] = max(most.get(name, 0), done)
        return answer

    monkeypatch.setattr(Scripts, "run", counted)
    count = 30_000
    sid = sweep_of(count).id
    assert redis.llen("hpq:demand:default") == 10_000
    control.pause(sid)
    control.resume(sid)
    assert writer.set_run_cap(sid, count // 2).dropped == count // 2
    assert writer.set_run_cap(sid, 0).back == count // 2
    for words in ("results --csv", "results --json", "summary", "report"):
        redis.config_resetstat()
        assert hpq(*words.split(), sid).returncode == 0
        assert redis.info("stats")["total_commands_processed"] < 100, words
    assert control.cancel(sid) == control.retry(sid, range(1, count + 1)) == count
    assert not control.remove(sid)
    assert {"create", "set_run_cap", "control resume", "control cancel", "remove"} < set(most)
    del most["add_rows"]  # the fixture sends all rows at once
    assert most.pop("requeue_ended") < 4 * BATCH_ROWS and max(most.values()) < 80, list(
        most.items()
    )
