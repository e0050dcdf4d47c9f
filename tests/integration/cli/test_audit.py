"""`hpq audit` on what the real scripts have written, whole and broken by hand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from hpq.domain.attempt import Outcome, Reason, ReportBatch
from hpq.domain.trial import Artifacts, Failure, FailureKind, TrialState
from hpq.store.control import SweepControl
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.golden import Golden

LEASE = 30_000
FINISHED = Outcome(state=TrialState.FINISHED, objective=1.0, step=1)
KILLED = Outcome(
    state=TrialState.FAILED, failure=Failure(kind=FailureKind.KILLED, message="signal 9")
)

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def eventful(store, sweep_of, take, who, redis, keys, control: SweepControl) -> str:
    """A sweep to which everything has happened that can happen to one, and that is not over."""
    sid = sweep_of(10).id
    store.reap("default", lease_ms=LEASE, lost_max=3)

    def lose() -> None:
        for name in redis.zrange(keys.leases, 0, -1):
            redis.zadd(keys.leases, {name: 0})
        store.reap("default", lease_ms=LEASE, lost_max=3)

    store.commit(take(), FINISHED)
    back = take()
    store.release(back, Reason.STOPPING)
    again = take()
    store.commit(again, KILLED)
    again = take()
    lose()
    store.commit(again, FINISHED)  # late, and taken
    late = take()
    lose()
    store.beat(late, who, ReportBatch(seq=1), lease_ms=LEASE)
    store.commit(late, KILLED)
    late = take()
    lose()
    store.commit(late, KILLED)  # late and final
    control.cancel(sid, [9])
    control.retry(sid, [late.trial.number, 9])
    store.commit(take(), FINISHED)
    control.pause(sid)
    control.resume(sid)
    control.set(sid, {"max_parallel": "3"})
    take()
    return sid


def test_whatever_the_scripts_do_the_audit_holds(
    store, reader, eventful, control: SweepControl
) -> None:
    found = audit_sweep(reader, eventful)
    assert found.violations == ()
    assert (found.trials, found.open, found.ends["finished"]) == (10, 7, 3)
    assert found.late == 3 and len(found.latencies_ms) == 3
    assert found.requeues == {"killed": 2, "lost": 3, "stopping": 1}
    control.stop(eventful)
    control.retry(eventful, [10])
    control.cancel(eventful)
    found = audit_sweep(reader, eventful)
    assert found.violations == () and found.open == 1


def test_the_audit_is_told_in_text_and_as_data(hpq: Hpq, eventful) -> None:
    done = hpq("audit", eventful)
    assert done.returncode == 0, done.stderr
    verdict, trials, requeues, latency = done.stdout.splitlines()
    assert "7" in verdict and "3 finished" in trials
    assert "3 lost" in requeues and "p50 " in latency
    data = json.loads(hpq("audit", "--json").stdout)
    assert data["holds"] and data["violations"] == [] and data["requeue_ms"]["n"] == 3


def test_the_verdict_is_whole_however_narrow_the_terminal(hpq: Hpq, eventful) -> None:
    done = hpq("audit", COLUMNS="44")
    assert all(len(line) <= 44 for line in done.stdout.splitlines())
    wide = hpq("audit", COLUMNS="200")
    assert done.stdout.split() == wide.stdout.split()


def test_a_lost_trial_a_wrong_counter_and_a_second_end_are_told_with_exit_code_1(
    golden: Golden, hpq: Hpq, eventful, redis, keys
) -> None:
    redis.hdel(keys.sweep(eventful, "params"), "8")
    redis.zrem(keys.sweep(eventful, "waiting"), "7")
    redis.xadd(keys.sweep(eventful, "events"), {"e": "finished", "n": 1, "a": 1})
    redis.hincrby(keys.sweep(eventful), "n_failed", 1)
    done = hpq("audit", eventful)
    assert done.returncode == 1
    told = [line for line in done.stdout.splitlines() if line.startswith(("#", "the sweep"))]
    golden.check("audit", "a lost trial, a wrong counter, a second end", "\n".join(told))
    data = json.loads(hpq("audit", eventful, "--json").stdout)
    assert not data["holds"] and {1, 7, 8} <= {v["trial"] for v in data["violations"]}


def test_a_sweep_that_moves_while_it_is_audited_is_not_wrong(
    reader, sweep_of, store, take, monkeypatch
) -> None:
    """The trial is claimed or given back before and after each reading, a dozen times."""
    sid = sweep_of(1).id
    read, held = reader.audit.records, []

    def move() -> None:
        if len(held) % 2:
            store.release(held[-1], Reason.STOPPING)
            held.append(None)
        elif len(held) < 12:
            held.append(take())

    def moving(*args):
        move()
        page = read(*args)
        move()
        return page

    monkeypatch.setattr(reader.audit, "records", moving)
    found = audit_sweep(reader, sid)
    assert found.violations == () and found.requeues == {"stopping": 6}


def test_no_sweep_of_that_name_is_one_line(hpq: Hpq, redis) -> None:
    done = hpq("audit", "none-00000")
    assert done.returncode == 4 and len(done.stderr.splitlines()) == 1


@pytest.fixture
def kept(store, take, sweep_of, who) -> str:
    """A sweep of two sets with two replicates each, all finished, with artifacts."""
    sid = sweep_of(4, replicates=2).id
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for n in range(4):
        left = Artifacts(store="abcd", path=f"hpq/{sid}/{n + 1}/1/artifacts", files={"m": 1})
        outcome = Outcome(state=TrialState.FINISHED, objective=0.1 * n, step=1, artifacts=left)
        store.commit(take(), outcome)
    return sid


@pytest.mark.parametrize(
    "command",
    [
        ("hdel", "t:{}/2", "objective"),
        ("hset", "t:{}/2", "objective", "9.9"),
        ("zrem", "s:{}:rank", "2"),
        ("zadd", "s:{}:rank", 99, "2"),
        ("hdel", "t:{}/2", "artifacts"),
        ("srem", "s:{}:files", "2"),
        ("hset", "s:{}:params", "2", '{{"x":77}}'),
        ("zrem", "s:{}:means", "1"),
        ("zadd", "s:{}:means", 7, "3"),
        ("del", "s:{}:ids"),
        ("sadd", "s:{}:ids", "more"),
    ],
)
def test_a_result_that_was_lost_or_altered_is_told(
    golden: Golden, reader, kept, redis, command
) -> None:
    assert audit_sweep(reader, kept).violations == ()
    name, key, *rest = (str(word).format(kept) for word in command)
    redis.execute_command(name, f"hpq:{key}", *rest)
    told = [f"#{one.trial}: {one.what}" for one in audit_sweep(reader, kept).violations]
    assert told
    golden.check("audit", " ".join(str(word).format("S") for word in command), "\n".join(told))


def test_what_was_taken_back_is_neither_ranked_nor_in_a_mean(
    reader, store, kept, take, redis, control: SweepControl
):
    control.retry(kept, [1, 2, 3])
    assert audit_sweep(reader, kept).violations == ()
    store.commit(take(), KILLED)
    assert audit_sweep(reader, kept).violations == ()
    redis.zadd(f"hpq:s:{kept}:rank", {"1": 0.5})
    (wrong,) = audit_sweep(reader, kept).violations
    assert wrong.trial == 1 and "0.5" in wrong.what
