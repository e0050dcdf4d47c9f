"""A sweep with trials and workers, and what another client of Redis may write into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from redis import Redis

from hpq.domain.attempt import Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.sweep import (
    EarlyTerminate,
    Goal,
    Keep,
    Metric,
    SweepView,
    TerminationRule,
)
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Failure,
    FailureKind,
    Point,
    TrialState,
)
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps

SID, OTHER = "demo-00000", "other-00000"
SWEEP, RUNNING, ENDED, WORKER = (
    f"hpq:s:{SID}", f"hpq:t:{SID}/1", f"hpq:t:{SID}/2", "hpq:w:w1",
)  # fmt: skip
ODD = (
    b"inf", b"-inf", b"nan", b"", b" ", b"0", b"-0", b"-1", b"1.5", b"1e400", b"-1e400", b"1e308",
    b"0x10", b"1_000", b"9" * 30, b"-" + b"9" * 30, b"9" * 5_000, b"9223372036854775808",
    b"99999999999999999", b"253402300800000", b"\xff\xfe\x00", b"\x00", "٣".encode(), b"null",
    b"true", b"[]", b"{}", b"[null]", b"[1e999]", b'"text"', b'{"a":{"b":[1,null]}}',
    b'{"x":{"code":5,"text":null}}', b'{"code":1e400}', b'{"name":"\\ud800"}', b"NaN", b"[" * 3_000,
    b'{"a":' * 300 + b"1" + b"}" * 300, b"x" * 200_000, "\x1b]0;x\x07ü\u202e\u2028".encode(),
    b"a\nb\tc", b"1 2 3", b"-", b"demo-00000/1",
)  # fmt: skip
# Fields that hpq writes only at times, beside those of `fill`.
AT_TIMES = {
    SWEEP: "sampler search run_cap objectives constraints idle_s idle_below replicates file:2"
    " made:x suggest_until suggest_token restored_ms near_ms trial_ms n_unreported"
    " n_cancelled n_diverged note unstored why",
    RUNNING: "kind error fingerprint restarted gone thinned reused seed pruning before_ms stop"
    " reaped lost lost_step lost_hosts avoid avoid_ms unbegun failed_step resumes again"
    " c:user_error unstored best_value usage artifacts ended_ms ran_ms closed m:other",
    WORKER: "drain suspect_ms streak streak_n",
}
OTHER_TYPES = ("string", "list", "set", "zset", "hash", "stream")


def fill(redis: Redis, sweep_of: Callable[..., SweepView], store: TrialStore) -> list[Claim]:
    """Make a sweep of 6 trials, and OTHER; return the claims of the trials that began.

    1 runs, 2 finished, 3 failed, 4 was pruned, 5 was requeued, 6 waits.
    """
    sweep_of(
        6, SID, tags=("t",), note="n", seed=3, method="random", timeout_s=600.0, stall_s=60.0,
        metric=Metric(name="acc", goal=Goal.MAXIMIZE, target=99.0), keep=Keep(best=9, last=9),
        early=EarlyTerminate(rule=TerminationRule.ASHA, bands=(1, 3)), history="all",
        budget=Budget(budget_ms=10**9, until_ms=10**13), signature="s", signer="who",
        spec={"project": "p", "parameters": {"x": {"values": [1, 2, 3, 4, 5, 6]}}},
        provenance={"file": "s.yaml", "host": "h", "git": {"commit": "abc"}, "text": "x: 1\n"},
    )  # fmt: skip
    sweep_of(1, OTHER, digest="other")
    file = '1790000000000 2 {"spec":{},"text":"x: 1"}'
    more = {"file:1": file, "made:tpe": "2", "bands": "1 3", "may_run": "3"}
    more |= {"outside": "2 3 ", "unkept": "1", "unkept_why": "2 files-not-kept why"}
    redis.hset(SWEEP, mapping={**more, "least_ms": "5", "no_more": ""})
    refuses = dumps({OTHER: {"code": "worker-fault", "text": "t"}})
    fields = {
        "pid": "12", "device": "cpu", "version": "0.9", "only": "", "pod": "",
        "ran_on": "d", "store": "yes", "store_id": "abc", "takes": json.dumps(["digits"]),
        "state": "busy", "trial": f"{SID}/1", "fault": "", "key": "k", "refuses": refuses,
    }  # fmt: skip
    store.keep_provenance("d", json.dumps({"host": "h", "gpus": ["a"], "packages": {"t": "1"}}))
    worker = WorkerPresence(name="w1", host="h1", queue="default", fields=fields)
    store.present(worker, idle=False, lifetime_ms=600_000)
    other = replace(worker, name="w2", host="h2", fields={**fields, "state": "idle", "trial": ""})
    store.present(other, idle=True, lifetime_ms=600_000)
    claims = [_begun(store, worker, number) for number in range(1, 6)]
    files = Artifacts(store="abc", path="p", files={"m.pt": 3})
    store.commit(claims[1], replace(FINISHED, artifacts=files, usage={"cpu": 1.0}))
    failure = Failure(kind=FailureKind.USER_ERROR, message="boom", fingerprint="f")
    store.commit(claims[2], Outcome(state=TrialState.FAILED, step=1, ran_ms=500, failure=failure))
    store.commit(claims[3], replace(FINISHED, state=TrialState.PRUNED))
    store.release(claims[4], Reason.STOPPING)
    return claims


FINISHED = Outcome(state=TrialState.FINISHED, objective=0.4, best=0.4, step=4, ran_ms=1_000)


def _begun(store: TrialStore, worker: WorkerPresence, number: int) -> Claim:
    lease_ms = 600_000
    claim = store.claim(worker, nonce=f"n{number}", lease_ms=lease_ms, provenance="d", only=SID)
    assert isinstance(claim, Claim) and claim.trial.number == number
    points = tuple(Point(step=i, name="acc", value=0.1 * i) for i in range(1, 5))
    checkpoint = Checkpoint(store="abc", path=f"hpq/{SID}/{number}/x", step=2, logged=2)
    batch = ReportBatch(
        seq=1, step=4, objective=0.4, points=points, log=b"hello\n", phase="p",
        run_info='{"name":"r","project":"p"}', checkpoint=checkpoint,
    )  # fmt: skip
    store.beat(claim, worker, batch, lease_ms=lease_ms)
    return claim


def fields_of(redis: Redis, key: str) -> list[str]:
    """Return the fields that hpq may write into a record."""
    kind = RUNNING if ":t:" in key else key
    return sorted({raw.decode() for raw in redis.hkeys(key)} | set(AT_TIMES[kind].split()))


def make_other(redis: Redis, key: str, kind: str) -> None:
    """Replace a key by one of another type."""
    redis.delete(key)
    if kind == "string":
        redis.set(key, "x")
    elif kind == "list":
        redis.rpush(key, "x")
    elif kind == "set":
        redis.sadd(key, "x", b"\xff")
    elif kind == "zset":
        redis.zadd(key, {"x": "inf", b"\xff": 1, "-5": 2, "1.5": -3})  # type: ignore[dict-item]
    elif kind == "hash":
        redis.hset(key, mapping={"x": "y", b"\xff": b"\xff"})  # type: ignore[dict-item]
    else:
        redis.xadd(key, {"x": "y", b"\xff": b"\xff"})  # type: ignore[dict-item]


class Snapshot:
    """All keys of a server at one moment."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.keys = {name.decode(): redis.dump(name) for name in redis.keys("*")}

    def restore(self) -> None:
        """Bring every key back, in one round trip."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.flushdb()
        for name, value in self.keys.items():
            pipe.restore(name, 0, value)
        pipe.execute()

    def restored(self, names: list[str]) -> Iterator[str]:
        """Yield each name with all keys as they were."""
        for name in names:
            self.restore()
            yield name
