"""One odd field in Redis holds its own sweep; workers claim, reap, beat and commit all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from hpq.domain.attempt import CommitReply, Nothing, Reason, ReportBatch, WorkerPresence
from hpq.domain.stored_state import Cause
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Artifacts, Claim, TrialId, TrialView
from hpq.errors import DecodeError
from hpq.redis.damage import damage
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.sweep import decode_sweep
from tests.support import odd_records
from tests.support.odd_records import (
    ENDED,
    FINISHED,
    OTHER,
    OTHER_TYPES,
    RUNNING,
    SID,
    SWEEP,
    WORKER,
    Snapshot,
    fields_of,
    make_other,
)

LATE = "late-00000"  # its worker was lost
REQUEUED = f"hpq:t:{SID}/5"
VALUES = (b"inf", b"nan", b"-1", b"9" * 30, b"\xff", b"[7]")
Round = Callable[[object], None]


@pytest.fixture
def play(redis: Redis, sweep_of, store: TrialStore) -> tuple[Snapshot, Round]:
    """Return the server's state, and what workers do then with it."""
    claims = odd_records.fill(redis, sweep_of, store)
    sweep_of(1, LATE, digest="late")
    lost = WorkerPresence(name="w0", host="h0", queue="default")
    assert isinstance(store.claim(lost, nonce="l", lease_ms=600_000, only=LATE), Claim)
    redis.zadd("hpq:leases", {f"{LATE}/1": 1})
    store.reap("default", lease_ms=1, lost_max=9)  # the first one only notes the server's run
    redis.zadd("hpq:leases", {f"{LATE}/1": 1})
    me = WorkerPresence(name="w9", host="h9", queue="default", fields={"store_id": "abc"})

    def play(what: object) -> None:
        """Report presence, reap, claim all that can be claimed, beat, commit."""
        store.present(me, idle=True, lifetime_ms=600_000)
        own = WorkerPresence(name="w1", host="h1", queue="default", fields={"state": "busy"})
        store.present(own, idle=False, lifetime_ms=600_000)
        reaped = store.reap("default", lease_ms=1_000, lost_max=9)
        assert reaped is not None, what
        found, nothing = dict[str, Claim](), False
        for i in range(8):
            claim = store.claim(me, nonce=f"z{i}", lease_ms=600_000, provenance="d")
            nothing = isinstance(claim, Nothing)
            if isinstance(claim, Claim):
                found[str(claim.trial)] = claim
        assert nothing and {f"{OTHER}/1", f"{LATE}/1"} <= set(found), (what, list(found))
        assert not found[f"{OTHER}/1"].unreadable, what
        assert store.commit(found[f"{OTHER}/1"], FINISHED) is CommitReply.DONE, what
        try:
            batch = ReportBatch(seq=5, step=9, objective=0.5, log=b"x")
            store.beat(claims[0], me, batch, lease_ms=600_000)
        except ResponseError as error:  # the heartbeat is sent again; the training goes on
            assert damage(error), (what, error)
        store.commit(claims[0], FINISHED)  # its result is recorded, or kept by the worker
        store.attach_files(claims[1], Artifacts(store="abc", path="q", files={"m.pt": 3}))

    return Snapshot(redis), play


@pytest.mark.parametrize(
    "key",
    [SWEEP, RUNNING, ENDED, REQUEUED, WORKER],
    ids=["sweep", "running", "ended", "requeued", "worker"],
)
def test_an_odd_field_stops_no_worker_and_no_other_sweep(
    redis: Redis, play: tuple[Snapshot, Round], key: str
) -> None:
    snapshot, act = play
    for field in snapshot.restored(fields_of(redis, key)):
        for value in VALUES:
            snapshot.restore()
            redis.hset(key, field, value)
            act((field, value))


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_key_of_another_type_stops_no_worker_and_no_other_sweep(
    redis: Redis, play: tuple[Snapshot, Round], kind: str
) -> None:
    snapshot, act = play
    places = (SWEEP, f"hpq:t:{SID}/", "hpq:w:w0", "hpq:w:w2")  # and of other workers
    names = [n for n in snapshot.keys if n.startswith(places)]
    for name in snapshot.restored(names):
        make_other(redis, name, kind)
        act(name)


@pytest.mark.parametrize("word", [b"inf", b"", b"\xff", b"lost"])
def test_a_forged_request_to_stop_is_no_reply_to_a_heartbeat(
    redis: Redis, sweep_of, store: TrialStore, who: WorkerPresence, word: bytes
) -> None:
    """The thread of the heartbeats ended, and no later trial of the worker kept its lease."""
    claim = odd_records.fill(redis, sweep_of, store)[0]
    redis.hset(RUNNING, "stop", word)
    assert store.beat(claim, who, ReportBatch(seq=2), lease_ms=600_000) == "ok"


def test_a_result_of_a_damaged_sweep_is_kept_and_counts_once_the_sweep_is_mended(
    redis: Redis, sweep_of, store: TrialStore, reader: StoreReader
) -> None:
    claim = odd_records.fill(redis, sweep_of, store)[0]
    metric = redis.hget(SWEEP, "metric")
    redis.hset(SWEEP, "metric", "7")
    assert store.commit(claim, FINISHED) is CommitReply.UNKNOWN
    redis.hset(SWEEP, "metric", metric)
    assert reader.sweeps.get(SID).hold.cause is Cause.DAMAGED
    assert store.commit(claim, FINISHED) is CommitReply.DONE


@pytest.mark.parametrize("field", ["dur_n", "dur_sum", "dur_sq", "replicates"])
def test_a_damaged_number_of_a_sweep_records_no_end_by_half(
    redis: Redis, sweep_of, store: TrialStore, reader: StoreReader, field: str
) -> None:
    """The trial was finished and in no ranking, and its sweep stayed among the open ones."""
    sweep_of(1, SID)
    me = WorkerPresence(name="w9", host="h9", queue="default")
    claim = store.claim(me, nonce="a", lease_ms=600_000)
    assert isinstance(claim, Claim)
    redis.hset(SWEEP, field, "x")
    assert store.commit(claim, FINISHED) is CommitReply.UNKNOWN
    assert redis.hget(RUNNING, "state") == b"running"
    redis.hset(SWEEP, field, 1)
    assert store.commit(claim, FINISHED) is CommitReply.DONE
    assert redis.zrange(f"{SWEEP}:rank", 0, -1) == [b"1"]
    assert redis.zcard("hpq:q:default:open") == 0


def test_a_claim_that_cannot_be_decoded_names_its_field(
    redis: Redis, sweep_of, store: TrialStore, who: WorkerPresence
) -> None:
    odd_records.fill(redis, sweep_of, store)
    redis.hset(SWEEP, "stall_s", "inf")
    claim = store.claim(who, nonce="a", lease_ms=600_000, only=SID)
    assert isinstance(claim, Claim) and "field stall_s" in claim.unreadable
    assert store.release(claim, Reason.WORKER_FAULT) == "released"


def test_a_sweep_that_is_held_for_an_unknown_reason_is_unreadable(sweep_of, reader, redis) -> None:
    sweep_of(1, sid=SID)
    redis.hset(SWEEP, mapping={"state": "held", "why": "mood bad"})
    with pytest.raises(DecodeError, match="field why"):
        reader.sweeps.get(SID)


ONLY_IN_MEMORY = {
    SweepView: {"id", "counts"},
    TrialView: {"id", "params", "group", "standing", "is_signed", "start"},
}


def test_every_field_of_a_record_is_decoded(redis: Redis, sweep_of, store: TrialStore) -> None:
    """A field of a new type was silently left at its default."""
    odd_records.fill(redis, sweep_of, store)
    more = {
        "sampler": "tpe", "search": "{}", "run_cap": "9", "priority": "1", "max_parallel": "2",
        "retries": "1", "idle_s": "5", "idle_below": "1", "replicates": "2", "bundle": "b",
        "note": "n", "unstored": "2", "state": "held", "why": "alike h", "no_more": "n",
        "returned": "7 5 stopping", "run_tags": "base",
        "constraints": '["a <= 1"]', "objectives": '[{"name":"a"},{"name":"b"}]',
    }  # fmt: skip
    redis.hset(SWEEP, mapping=more)
    sweep = decode_sweep(SWEEP, SID, redis.hgetall(SWEEP), 1, 1, 0)
    trial_fields = {
        "before_ms": "5", "kind": "lost", "error": "e", "restarted": "r", "gone": "keep",
        "thinned": "1", "reused": "a/1", "seed": "4", "usage": "1 2", "phase": "p",
        "unstored": '{"store":"s","path":"p","folder":"f"}',
        "pruning": '{"rule":"asha","band":1,"rank":3,"n":3,"threshold":0.5,"value":0.3}',
    }  # fmt: skip
    redis.hset(ENDED, mapping=trial_fields)
    number = TrialId(sweep=SID, number=2)
    trial = trial_codec.decode_trial(ENDED, number, redis.hgetall(ENDED), {}, dropped=False)
    blank_sweep = decode_sweep(SWEEP, SID, {b"state": b"open"}, 0, 0, 0)
    blank_trial = trial_codec.decode_trial(ENDED, number, {}, {}, dropped=False)
    for full, blank in ((sweep, blank_sweep), (trial, blank_trial)):
        same = {f.name for f in fields(full) if getattr(full, f.name) == getattr(blank, f.name)}
        assert same <= ONLY_IN_MEMORY[type(full)], same


@pytest.mark.parametrize("value", [b"\xff", b"inf", b"[" * 3_000, b'{"leaves":[{"at":7}]}', b"{}"])
def test_an_odd_search_is_one_error(value: bytes) -> None:
    from hpq.store.wire.search import decode_search  # noqa: PLC0415

    with pytest.raises(DecodeError, match=r"^hpq:s:x: field search"):
        decode_search("hpq:s:x", value.decode("latin-1"))
