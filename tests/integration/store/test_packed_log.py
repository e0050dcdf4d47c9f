"""The log of an attempt that ends: packed beside the trial's points, and no byte is lost."""

from __future__ import annotations

import struct

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.trial import Checkpoint, Claim, FailureKind, TrialId, TrialState
from hpq.errors import DecodeError
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq.store.wire.attempt import FAILED_LOG_KEPT_BYTES, LOG_KEPT_BYTES
from tests.support.store_calls import LEASE, end, fail, points, report, take

DONE = Outcome(state=TrialState.FINISHED, objective=1.0, step=1)
HEAD = struct.Struct("<dII")  # of an entry of a packed log


def say(store: TrialStore, who: WorkerPresence, claim: Claim, *texts: bytes, **more) -> None:
    """Print texts, one a beat."""
    for seq, text in enumerate(texts, start=1):
        store.beat(claim, who, ReportBatch(seq=seq, log=text, **more), lease_ms=LEASE)


def held(redis: Redis, keys: Keys, trial: TrialId) -> int:
    """Return the bytes of all keys of a trial."""
    names = keys.of_trial(trial, redis.hkeys(keys.trial(trial)))
    return sum(redis.memory_usage(name, samples=0) or 0 for name in names)


@pytest.mark.parametrize("is_sent", [False, True], ids=["with its result", "in a beat"])
def test_a_finished_trial_with_ten_points_and_a_line_keeps_few_bytes(
    store, redis, keys, sweep_of, who, is_sent: bool
) -> None:
    sweep_of(1)
    claim = take(store, who)
    batch = ReportBatch(seq=1, step=10, points=points(*range(1, 11)), log=b"x" * 29 + b"\n")
    if is_sent:
        store.beat(claim, who, batch, lease_ms=LEASE)
    store.commit(claim, DONE, batch)
    assert redis.exists(keys.trial(claim.trial, "log")) == 0
    assert held(redis, keys, claim.trial) <= 1_000


def test_a_chatty_trial_keeps_little_more_than_its_newest_bytes(
    store, reader, redis, keys, sweep_of, who
) -> None:
    sweep_of(1)
    claim = take(store, who)
    lines = [b"%099d\n" % n for n in range(1_000)]
    say(store, who, claim, *lines)
    store.commit(claim, DONE)
    whole, part = divmod(LOG_KEPT_BYTES, HEAD.size + 100)
    kept = 100 * whole + part - HEAD.size
    assert reader.trials.log(claim.trial)[0] == b"".join(lines)[-kept:]
    assert redis.hstrlen(keys.trial(claim.trial, "points"), "#log") <= LOG_KEPT_BYTES


@pytest.mark.parametrize("read_at", [{0}, {1}, {2}, {0, 1, 2, 3}])
def test_a_reader_of_a_trial_that_ends_meets_each_byte_once(
    store, reader, sweep_of, who, read_at: set[int]
) -> None:
    sweep_of(1)
    claim = take(store, who)
    found, last = [], "0-0"
    for n in range(4):
        if n in read_at:
            data, last = reader.trials.log(claim.trial, last)
            found.append(data)
        if n < 3:
            batch = ReportBatch(seq=n + 1, log=b"%d\n" % n)
            store.beat(claim, who, batch, lease_ms=LEASE)
    store.commit(claim, DONE, ReportBatch(seq=4, log=b"end\n"))
    data, last = reader.trials.log(claim.trial, last)
    assert b"".join([*found, data]) == b"0\n1\n2\nend\n"
    assert reader.trials.log(claim.trial, last) == (b"", last)


def test_entries_that_move_while_they_are_read_are_read_once(
    store, reader, redis, keys, sweep_of, who
) -> None:
    """The stream is read before the record: here both have the first entry."""
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, b"one\n")
    stream = keys.trial(claim.trial, "log")
    ((entry, fields),) = redis.xrange(stream)
    store.commit(claim, DONE, ReportBatch(seq=2, log=b"two\n"))
    _, last = reader.trials.log(claim.trial)
    redis.xadd(stream, fields, id=entry)
    assert reader.trials.log(claim.trial) == (b"one\ntwo\n", last)
    assert reader.trials.log(claim.trial, last) == (b"", last)


def test_attempts_that_begin_anew_keep_the_log_of_those_before(
    store, reader, redis, keys, sweep_of, who
) -> None:
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, b"first\n", points=points(1))
    fail(store, claim, "m", FailureKind.KILLED)
    assert reader.trials.log(claim.trial)[0] == b"first\n"
    claim = take(store, who)
    assert reader.trials.metric_history(claim.trial, "acc") == []
    say(store, who, claim, b"second\n", points=points(1, 2))
    log, last = reader.trials.log(claim.trial)
    assert log == b"first\nsecond\n"
    end(store, claim, 1.0)
    assert reader.trials.log(claim.trial) == (log, last)
    assert [p.step for p in reader.trials.metric_history(claim.trial, "acc")] == [1, 2]
    assert redis.exists(keys.trial(claim.trial, "log")) == 0


def test_a_later_attempt_keeps_the_ids_of_its_points_once_beside_the_log(
    store, redis, keys, sweep_of, who
) -> None:
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, b"first\n")
    fail(store, claim, "m", FailureKind.KILLED)
    claim = take(store, who)
    report(store, who, claim, loss=(0.5, 0.25), acc=(0.1, 0.2))
    end(store, claim, 1.0)
    packed = redis.hgetall(keys.trial(claim.trial, "points"))
    assert {*packed} == {b"", b"loss", b"acc", b"#log"}


def test_a_retry_from_a_checkpoint_keeps_curves_beside_the_log(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sid = sweep_of(1).id
    claim = take(store, who)
    here = Checkpoint(store="abcd", path="p", step=2, counts={"acc": 2})
    say(store, who, claim, b"first\n", points=points(1, 2), checkpoint=here)
    store.commit(claim, Outcome(state=TrialState.CANCELLED))
    control.retry(sid, [1])
    claim = take(store, who)
    say(store, who, claim, b"second\n", points=points(3))
    end(store, claim, 1.0)
    assert reader.trials.log(claim.trial)[0] == b"first\nsecond\n"
    assert [p.step for p in reader.trials.metric_history(claim.trial, "acc")] == [1, 2, 3]


def test_the_newest_bytes_of_all_attempts_stay(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, *([b"a" * 50_000] * 6))
    fail(store, claim, "m", FailureKind.KILLED)
    assert reader.trials.log(claim.trial)[0] == b"a" * (FAILED_LOG_KEPT_BYTES - 6 * HEAD.size)
    claim = take(store, who)
    say(store, who, claim, b"b" * 10_000, b"end")
    end(store, claim, 1.0)
    log, _ = reader.trials.log(claim.trial)
    assert log == b"a" * (LOG_KEPT_BYTES - 10_003 - 3 * HEAD.size) + b"b" * 10_000 + b"end"


def test_a_silent_attempt_shortens_the_log_of_a_failed_one(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, b"a" * 50_000)
    fail(store, claim, "m", FailureKind.KILLED)
    end(store, take(store, who), 1.0)
    assert reader.trials.log(claim.trial)[0] == b"a" * (LOG_KEPT_BYTES - HEAD.size)


@pytest.mark.parametrize("is_sent", [False, True], ids=["with its result", "in a beat"])
def test_a_reader_meets_the_next_attempt_after_the_clock_went_back(
    store, reader, redis, keys, sweep_of, who, is_sent: bool
) -> None:
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, b"first\n")
    fail(store, claim, "m", FailureKind.KILLED)
    record = keys.trial(claim.trial, "points")
    packed = redis.hget(record, "#log")
    ms, seq, size = HEAD.unpack_from(packed)
    redis.hset(record, "#log", HEAD.pack(ms + 3_600_000, seq, size) + packed[HEAD.size :])
    log, last = reader.trials.log(claim.trial)
    assert log == b"first\n"
    claim = take(store, who)
    if is_sent:
        say(store, who, claim, b"second\n", b"third\n")
        assert reader.trials.log(claim.trial, last)[0] == b"second\nthird\n"
    store.commit(claim, DONE, ReportBatch(seq=3, log=b"last\n"))
    expected = b"second\nthird\nlast\n" if is_sent else b"last\n"
    assert reader.trials.log(claim.trial, last)[0] == expected


def test_a_damaged_log_names_its_key(store, reader, redis, keys, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who)
    say(store, who, claim, b"one\n")
    end(store, claim, 1.0)
    key = keys.trial(claim.trial, "points")
    whole = redis.hget(key, "#log")
    for text in (b"x", whole[:-1], whole + b"x", b"\xff" * len(whole)):
        redis.hset(key, "#log", text)
        with pytest.raises(DecodeError, match="points field #log"):
            reader.trials.log(claim.trial)
