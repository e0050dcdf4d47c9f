"""Read what the store holds of a sweep's trials, key by key, for the audit to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId, TrialState
from hpq.errors import DecodeError
from hpq.store.keys import Keys
from hpq.store.wire.fields import cut, decoding, whole
from hpq.store.wire.row import CheckOf, decode_params

_INDEXES = ("waiting", "running", "dropped", "ended")
_FIELDS = ("state", "attempt", "objective", "checkpoint", "artifacts", "unstored")
_ENDS = [state for state in TrialState if state.is_terminal]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """What the store holds of a trial's result, files and parameters."""

    objective: str = ""
    score: float | None = None  # in the ranking
    mean: float | None = None  # of the group of replicates of which the trial is the first
    has_pointers: bool = False  # to a checkpoint or artifacts, or to where artifacts will be
    is_filed: bool = False  # its number is in the set of trials that have files
    is_known: bool = True  # the sweep has their identity, and they are as signed


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What the store holds of one trial; `indexes` are the sorted sets that have its number."""

    number: int
    state: str = "queued"
    attempt: int = 0
    has_params: bool = True
    indexes: frozenset[str] = frozenset({"waiting"})
    result: StoredResult | None = None  # None: not read


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCounters:
    """What the store holds of a sweep as a whole: the sizes of its sets, and its counters."""

    total: int
    waiting: int = 0
    running: int = 0
    dropped: int = 0
    ended: int = 0
    identities: int | None = None  # None: not read
    ends: Mapping[TrialState, int] = field(default_factory=dict)  # n_finished, n_failed, …
    is_pending: bool = True  # claims look at the sweep


class AuditReader:
    """Read the records that the audit compares with a sweep's events."""

    def __init__(self, redis: Redis, keys: Keys, check_of: CheckOf) -> None:
        self._redis = redis
        self._keys = keys
        self._check_of = check_of

    def counters(self, sid: str, queue: str) -> SweepCounters:
        """Return the sizes of a sweep's sets, and its counters."""
        key = self._keys.sweep(sid)
        pipe = self._redis.pipeline(transaction=False)
        pipe.hlen(self._keys.sweep(sid, "params"))
        for index in _INDEXES:
            pipe.zcard(self._keys.sweep(sid, index))
        pipe.scard(self._keys.sweep(sid, "ids"))
        pipe.hmget(self._keys.sweep(sid), [f"n_{end}" for end in _ENDS])
        pipe.zscore(self._keys.queue(queue, "pending"), sid)
        total, waiting, running, dropped, ended, identities, ends, place = pipe.execute()
        return SweepCounters(
            total=total,
            waiting=waiting,
            running=running,
            dropped=dropped,
            ended=ended,
            identities=identities,
            ends={end: self._count(key, n) for end, n in zip(_ENDS, ends, strict=True)},
            is_pending=place is not None,
        )

    @staticmethod
    def _count(key: str, raw: bytes | None) -> int:
        with decoding(key):
            return whole(raw or b"0")

    def records(self, sid: str, numbers: Sequence[int], replicates: int = 1) -> list[TrialRecord]:
        """Return the records of the trials with these numbers, in this order."""
        if not numbers:
            return []
        names = [str(n) for n in numbers]
        pipe = self._redis.pipeline(transaction=False)
        for part in (*_INDEXES, "rank", "means"):
            pipe.zmscore(self._keys.sweep(sid, part), names)
        pipe.zmscore(self._keys.leases, [f"{sid}/{n}" for n in names])
        pipe.smismember(self._keys.sweep(sid, "files"), names)
        pipe.hmget(self._keys.sweep(sid, "params"), names)
        for n in numbers:
            pipe.hmget(self._keys.trial(TrialId(sweep=sid, number=n)), _FIELDS)
        answers: list[Any] = pipe.execute()
        parts = (*_INDEXES, "rank", "means", "leases", "files", "params")
        found = dict(zip(parts, answers, strict=False))
        rows = found["params"]
        known = self._known(sid, rows, replicates)
        if check := self._check_of(sid):
            as_signed = (row is None or check(n, row) for n, row in zip(numbers, rows, strict=True))
            known = [a and b for a, b in zip(known, as_signed, strict=True)]
        return [
            TrialRecord(
                number=n,
                state=cut((row[0] or b"queued").decode("utf-8", "replace")),
                attempt=self._count(self._keys.trial(TrialId(sweep=sid, number=n)), row[1]),
                has_params=found["params"][i] is not None,
                indexes=frozenset(p for p in (*_INDEXES, "leases") if found[p][i] is not None),
                result=StoredResult(
                    objective=cut((row[2] or b"").decode("utf-8", "replace")),
                    score=found["rank"][i],
                    mean=found["means"][i],
                    has_pointers=any(row[3:]),
                    is_filed=bool(found["files"][i]),
                    is_known=known[i],
                ),
            )
            for i, (n, row) in enumerate(zip(numbers, answers[len(parts) :], strict=True))
        ]

    def _known(self, sid: str, texts: Sequence[bytes | None], replicates: int) -> list[bool]:
        """Return which parameters have an identity in the sweep; True if the text is missing."""
        identities = [_identities(text, replicates) if text else [] for text in texts]
        flat = [one for some in identities for one in some]
        answer: Any = self._redis.smismember(self._keys.sweep(sid, "ids"), flat) if flat else []
        members = {one for one, is_member in zip(flat, answer, strict=True) if is_member}
        return [
            not text or not members.isdisjoint(some)
            for text, some in zip(texts, identities, strict=True)
        ]

    def missing(self, sweep: SweepView) -> list[str]:
        """Return what a sweep refers to and the server lacks: its code, its provenance records."""
        digest = sweep.bundle
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(self._keys.bundle(digest))
        pipe.hexists(self._keys.code, digest)
        pipe.smembers(self._keys.sweep(sweep.id, "ran_on"))
        has_code, has_manifest, raw = pipe.execute()
        ran_on = sorted(one.decode("utf-8", "replace") for one in raw)
        kept: Any = self._redis.hmget(self._keys.provenance, ran_on) if ran_on else []
        names = [] if has_code or not digest else [f"code {digest}"]
        names += [] if has_manifest or not digest else [f"manifest of code {digest}"]
        lost = (one for one, record in zip(ran_on, kept, strict=True) if record is None)
        return names + [f"what attempts ran on, {one}" for one in lost]


def _identities(text: bytes, replicates: int) -> list[bytes]:
    """Return the identities that these parameters may have; none if they cannot be decoded."""
    try:
        params = decode_params("", text)
        return [params.salted(i) for i in range(max(1, replicates))]
    except (DecodeError, ValueError):
        return []
