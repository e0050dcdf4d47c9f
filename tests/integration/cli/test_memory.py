"""A server at its maxmemory: results are taken, histories go first, enqueue says what to remove."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import OutOfMemoryError

from hpq.domain.attempt import (
    AttachReply,
    CommitReply,
    HeartbeatReply,
    Outcome,
    Reason,
    ReportBatch,
)
from hpq.domain.trial import (
    Artifacts,
    Failure,
    FailureKind,
    Point,
    TrialId,
    TrialState,
    Unstored,
)
from hpq.store.control import SweepControl
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.ids import ids, refused
from tests.support.store_calls import reaped

LEASE = 30_000
FINISHED = Outcome(state=TrialState.FINISHED, objective=1.0, step=1)
SWEEP = "program: train.py\nmethod: grid\nparameters: {a: {values: [1, 2, 3]}}\n"

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def limit(redis: Redis) -> Iterator[Callable[[int], None]]:
    """Sets the server's maxmemory to what it uses now and so many bytes more."""

    def set_to(more: int) -> None:
        used = int(redis.info("memory")["used_memory"])
        redis.config_set("maxmemory", max(1, used + more))

    yield set_to
    redis.config_set("maxmemory", 0)
    redis.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def hpq(hpq: Hpq, tmp_path: Path) -> Hpq:
    """As of the other tests, where a sweep lies."""
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return hpq


@pytest.fixture
def run_one(store, who, take):
    """Runs the next trial to its end, with a log and points."""

    def run(points: int = 50, log: bytes = b"x" * 8000) -> TrialId:
        claim = take()
        some = tuple(Point(step=i, name="acc", value=i / 7) for i in range(points))
        store.beat(claim, who, ReportBatch(seq=1, step=1, log=log, points=some), lease_ms=LEASE)
        store.commit(claim, FINISHED)
        return claim.trial

    return run


def has_history(reader, trial: TrialId) -> bool:
    return bool(reader.trials.metric_history(trial, "acc")) and bool(reader.trials.log(trial)[0])


def test_a_full_server_is_named_beside_its_idle_workers(store, who, limit, hpq: Hpq) -> None:
    store.present(who, idle=True, lifetime_ms=LEASE)
    assert ids(hpq("workers").stderr) == []
    limit(-100_000)
    assert ids(hpq("workers").stderr) == ["redis-memory"]


def test_a_full_server_takes_results_beats_and_what_people_say(
    store, reader, redis, keys, sweep_of, who, take, limit, control: SweepControl
) -> None:
    """F15: maxmemory is reached; beats, commits, releases, reaps and commands go on."""
    sid = sweep_of(6).id
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claims = [take() for _ in range(4)]
    limit(-100_000)
    with pytest.raises(OutOfMemoryError):
        redis.set("more", "x")
    store.present(who, idle=False, lifetime_ms=LEASE)
    batch = ReportBatch(
        seq=1, step=3, log=b"hello\n", points=(Point(step=3, name="acc", value=0.5),), phase="p"
    )
    before = redis.zscore(keys.leases, str(claims[0].trial))
    assert store.beat(claims[0], who, batch, lease_ms=2 * LEASE) is HeartbeatReply.OK
    assert redis.zscore(keys.leases, str(claims[0].trial)) > before
    assert (
        not reader.trials.metric_history(claims[0].trial, "acc")
        and not reader.trials.log(claims[0].trial)[0]
    )
    assert store.commit(claims[0], FINISHED) is CommitReply.DONE
    assert store.commit(claims[0], FINISHED) is CommitReply.ALREADY
    assert store.release(claims[1], Reason.STOPPING) == "released"
    killed = Failure(kind=FailureKind.KILLED, message="signal 9")
    again = Outcome(state=TrialState.FAILED, failure=killed)
    assert store.commit(claims[2], again) is CommitReply.REQUEUED
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) == 0
    control.pause(sid)
    control.cancel(sid)
    assert store.commit(claims[3], Outcome(state=TrialState.CANCELLED)) is CommitReply.DONE
    trial = reader.trials.get(claims[0].trial)
    assert (trial.state, trial.objective, trial.metrics) == ("finished", 1.0, {"acc": 0.5})
    assert redis.hget(keys.counters, "reports_dropped") == b"1" and trial.thinned
    found = audit_sweep(reader, sid)
    assert found.violations == () and found.open == 0


def test_a_full_server_takes_files_limits_caps_and_removals(
    store, reader, writer, redis, limit, sweep_of, take, control: SweepControl, store_context
) -> None:
    """F15: maxmemory is reached; what makes room, or waits for no room, goes on."""
    sid = sweep_of(3).id
    claim = take()
    waits = Unstored(store="abcd", path="p/late", folder="/home/me/out")
    store.commit(claim, replace(FINISHED, unstored=waits))
    redis.config_set("maxmemory", 1)
    here = Artifacts(store="abcd", path="p/late", files={"model": 3})
    assert store.attach_files(claim, here) is AttachReply.ATTACHED
    control.limit_owner("me", {"running": 3})
    assert writer.set_run_cap(sid, 2).dropped == 1
    assert store_context.record_newest_write() > 0
    control.remove(sid)
    assert not reader.sweeps.ids()


def test_a_full_server_starts_no_further_trial(store, reader, sweep_of, take, limit) -> None:
    """F15: maxmemory is reached; a worker claims."""
    sid = sweep_of(2).id
    limit(-100_000)
    with pytest.raises(OutOfMemoryError, match="maxmemory"):
        take()
    assert reader.sweeps.get(sid).counts.queued == 2 and audit_sweep(reader, sid).violations == ()
    limit(10**7)
    assert take().attempt == 1


def keep(redis: Redis, share: float) -> None:
    """Set maxmemory so that what the server uses now, less a share of it, is its 90 %."""
    redis.config_set("maxmemory", int((1 - share) * redis.info("memory")["used_memory"] / 0.9))


def test_the_sweep_that_ended_first_loses_its_histories_first_and_no_more_than_needed(
    store, reader, redis, keys, sweep_of, run_one, limit
) -> None:
    """Memory: 91 % of maxmemory is used, after three sweeps ended and while a fourth runs."""
    sweep_of(241, "runs-00000", priority=-1)  # older, but it does not end
    for sid in ("b", "c", "a"):
        sweep_of(240, f"{sid}-00000")
    ended = [run_one(points=300, log=b"y" * 9_000) for _ in range(720)]
    open_ = [run_one(points=300, log=b"y" * 9_000) for _ in range(240)]
    assert {trial.sweep for trial in open_} == {"runs-00000"}
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert all(has_history(reader, trial) for trial in ended)  # no maxmemory, no bound
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] / 0.89))
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert all(has_history(reader, trial) for trial in ended)  # 89 %
    keep(redis, 0.25)
    store.reap("default", lease_ms=LEASE, lost_max=3, every_ms=600_000)  # by any worker
    left = [has_history(reader, trial) for trial in ended]
    dropped = left.count(False)
    assert 240 < dropped < 720 and left == [False] * dropped + [True] * (720 - dropped)
    assert all(has_history(reader, trial) for trial in open_)
    memory = redis.info("memory")
    assert 0.8 < memory["used_memory"] / memory["maxmemory"] <= 0.9
    assert int(redis.hget(keys.counters, "histories_dropped")) == dropped
    first = reader.trials.get(ended[0])
    assert first.objective == 1.0 and first.metrics and first.thinned
    assert not reader.trials.get(ended[-1]).thinned


def test_an_open_sweep_loses_those_of_its_ended_trials_if_no_ended_sweep_has_any(
    store, reader, redis, sweep_of, take, run_one, limit, who
) -> None:
    """Memory: one sweep fills the server; its trials go on."""
    sweep_of(7)
    first = [run_one() for _ in range(3)]
    running = take()
    batch = ReportBatch(seq=1, log=b"z", points=(Point(step=1, name="acc", value=1.0),))
    store.beat(running, who, batch, lease_ms=LEASE)
    redis.config_set("maxmemory", 1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert not any(has_history(reader, trial) for trial in first)
    redis.config_set("maxmemory", 0)
    assert has_history(reader, running.trial)
    store.commit(running, FINISHED)
    later = [run_one(), running.trial]
    redis.config_set("maxmemory", 1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert not any(has_history(reader, trial) for trial in later)
    assert not any(reader.trials.get(trial).thinned is False for trial in [*first, *later])


def test_a_sweep_that_opens_again_is_no_ended_one(
    store, reader, redis, sweep_of, run_one, limit, control: SweepControl
) -> None:
    sweep_of(2, "old-00000")
    sweep_of(300, "new-00000")
    old = [run_one(points=300, log=b"y" * 9_000) for _ in range(2)]
    new = [run_one(points=300, log=b"y" * 9_000) for _ in range(300)]
    control.retry("old-00000", [1])
    keep(redis, 0.1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert has_history(reader, old[1]) and not has_history(reader, new[0])


def test_one_call_drops_the_histories_of_some_trials_at_most(
    store, redis, keys, sweep_of, limit
) -> None:
    """No call blocks the server for long, however large a sweep is."""
    sid = sweep_of(1).id
    pipe = redis.pipeline(transaction=False)
    for n in range(1, 1_301):
        pipe.zadd(keys.sweep(sid, "ended"), {str(n): 1 + n // 7})
        pipe.xadd(keys.trial(TrialId(sweep=sid, number=n), "log"), {"d": "x"})
    pipe.execute()
    redis.config_set("maxmemory", 1)
    for dropped in (500, 1_000, 1_300, 1_300):
        store.reap("default", lease_ms=LEASE, lost_max=3)
        found = int(redis.hget(keys.counters, "histories_dropped"))
        assert dropped <= found < min(dropped + 100, 1_301)


def test_what_a_full_server_dropped_is_told_wherever_it_is_missed(
    hpq: Hpq, redis, keys, store, sweep_of, take, run_one, limit, control: SweepControl
) -> None:
    sid = sweep_of(13).id
    trial, *_ = [run_one() for _ in range(12)]
    redis.config_set("maxmemory", 1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    redis.config_set("maxmemory", 0)
    logs = hpq("logs", trial)
    assert (logs.returncode, logs.stdout) == (0, "") and ids(logs.stderr) == ["histories-dropped"]
    is_dropped = lambda: json.loads(hpq("show", trial, "--json").stdout)["log_dropped"]  # noqa: E731
    assert is_dropped()
    count = int(redis.hget(keys.counters, "histories_dropped"))
    assert f" {count} trials" in hpq("archive", sid, "s.hpq").stderr
    assert hpq("report", sid, "--out", "report.html").returncode == 0
    doctor = {one["code"]: one["what"] for one in json.loads(hpq("doctor", "--json").stdout)}
    assert f" {count} trials" in doctor["histories-dropped"]
    control.retry(sid, [trial.number])
    assert run_one().number == 13 and run_one() == trial and not is_dropped()


def test_a_removed_sweep_leaves_no_place_in_the_order(
    redis, keys, sweep_of, run_one, control: SweepControl
) -> None:
    sid = sweep_of(1).id
    run_one()
    control.remove(sid)
    assert not redis.exists(f"{keys.prefix}:histories")


def test_enqueue_is_refused_at_80_percent_with_what_to_remove(
    hpq: Hpq, redis, sweep_of, run_one, limit
) -> None:
    """F15: 80 % of maxmemory is used."""
    sweep_of(1, "small-00000")
    sweep_of(400, "large-00000")
    sweep_of(10, "other-00000", queue="small")
    used = int(redis.info("memory")["used_memory"])
    limit(24 * used // 100)  # 80 % of it are about 1 % less than what is used
    before = {k for k in redis.keys("*") if b":s:" in k}
    done = hpq("enqueue", "sweep.yaml")
    refused(done, "redis-memory", "`hpq rm`", exit=3)
    at_least = float(done.stderr.rsplit("at least ", 1)[1].split()[0])
    assert at_least * 2**20 >= used / 0.8
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert {k for k in redis.keys("*") if b":s:" in k} == before
    assert '"redis-memory"' in hpq("doctor", "--json").stdout
    assert hpq("rm", "large-00000", "--yes", "--force").returncode == 0
    redis.config_set("maxmemory", 0)
    assert hpq("enqueue", "sweep.yaml").returncode == 0


def test_a_full_server_is_told_where_people_look(hpq: Hpq, reader, redis, sweep_of, limit) -> None:
    sid = sweep_of(2).id
    limit(-100_000)
    why = "redis-memory"
    assert why in ids(hpq("ls").stderr) and "maxmemory" in hpq("show", sid).stdout
    assert why in hpq("watch", sid, "--once", "--json").stdout
    waited = hpq("wait", sid, "--timeout", "0")
    assert waited.returncode == 5 and why in waited.stderr


def test_an_enqueue_too_large_for_what_is_left_is_refused_before_it_begins(
    hpq: Hpq, redis, tmp_path, limit
) -> None:
    """F15: 3,000 sets that would not fit."""
    values = list(range(3000))
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("[1, 2, 3]", str(values)))
    used = int(redis.info("memory")["used_memory"])
    limit(used // 4 + 1_000_000)  # 80 % of it are about 800 kB more than what is used
    done = hpq("enqueue", "sweep.yaml")
    refused(done, "redis-memory", "3,000 trials", "1.3 MiB", exit=3)
    assert not [k for k in redis.keys("*") if b":s:" in k]


def test_an_evicting_server_is_told_by_enqueue_and_by_doctor(hpq: Hpq, redis, limit) -> None:
    """F16: `maxmemory-policy allkeys-lru`."""
    limit(10**9)
    redis.config_set("maxmemory-policy", "allkeys-lru")
    done = hpq("enqueue", "sweep.yaml")
    assert done.returncode == 0 and "allkeys-lru" in done.stderr
    assert '"redis-evicts"' in hpq("doctor", "--json").stdout
