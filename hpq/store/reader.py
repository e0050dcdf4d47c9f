"""Read the store for people: plain read commands, a bounded number for each question.

Viewers may hold read-only credentials, so no reader runs a script or writes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from hpq.domain.status import ServerMemory, SweepStatus
from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import Standing, TrialId, UsageCurves
from hpq.redis.damage import answered
from hpq.search.replicates import first_of_set, set_of
from hpq.store.audit_reader import AuditReader
from hpq.store.events import EventReader
from hpq.store.keys import Keys
from hpq.store.sweep_reader import SweepReader
from hpq.store.trial_reader import MOST_TIES, TrialReader
from hpq.store.wire.fields import count, decoding, moment, trial_numbers
from hpq.store.wire.sweep import decode_durations
from hpq.store.wire.trial import CheckOf, decode_usage_curves
from hpq.store.worker_reader import OwnerReader, WorkerReader, server_memory, server_ms


class StoreReader:
    """Read what one prefix of one Redis server holds; `lease_ms` is the lease of a trial.

    `check_of` verifies parameters (TrialReader); without it they are read as they are.

    Every method may raise RedisError; the guard of a connection turns it into OutOfReach.
    """

    def __init__(
        self, redis: Redis, keys: Keys, lease_ms: int, check_of: CheckOf = lambda _: None
    ) -> None:
        self._redis = redis
        self._keys = keys
        self.sweeps = SweepReader(redis, keys)
        self.trials = TrialReader(redis, keys, check_of)
        self.workers = WorkerReader(redis, keys, lease_ms)
        self.events = EventReader(redis, keys)
        self.owners = OwnerReader(redis, keys)
        self.audit = AuditReader(redis, keys, check_of)

    def now_ms(self) -> int:
        """Return the time by the server's clock, in milliseconds."""
        return server_ms(self._redis)

    def lost_after(self, seen_ms: int) -> tuple[int, int | None]:
        """Find out whether the server lost what a client has seen: data of `seen_ms`, or 0.

        Returns:
            Up to when its data go now, 0 if it has none. After which time it lost what was written,
            or None. Both in ms, by the server's clock.

        Raises:
            DecodeError: one of these keys is not as hpq writes it.
        """
        pipe = self._redis.pipeline(transaction=False)
        pipe.hget(self._keys.settle, "newest_ms")
        pipe.zrangebyscore(self._keys.restarts, f"({seen_ms}", "+inf", start=0, num=1)
        found = pipe.execute(raise_on_error=False)
        newest = answered(self._keys.settle, found[0])
        restarts = answered(self._keys.restarts, found[1])
        with decoding(f"{self._keys.settle}: field newest_ms"):
            newest_ms = moment(newest or 0)
        if newest_ms < seen_ms:  # no restart was recorded yet
            return newest_ms, newest_ms
        with decoding(self._keys.restarts):
            before_ms = moment(restarts[0]) if restarts else seen_ms
        return newest_ms, before_ms if before_ms < seen_ms else None

    def usage_curves(self, trial: TrialId) -> UsageCurves | None:
        """Return what the trial's latest attempt with readings used over time, if any did.

        Raises:
            DecodeError: the record cannot be read.
        """
        key = self._keys.trial(trial, "points")
        pipe = self._redis.pipeline(transaction=False)
        pipe.hget(key, "#usage")
        raw = answered(key, pipe.execute(raise_on_error=False)[0])
        if not raw:
            return None
        with decoding(f"{key} field #usage"):
            return decode_usage_curves(raw.decode())

    def server_memory(self) -> ServerMemory | None:
        """Return how full the server is; None if these credentials may not ask."""
        try:
            return server_memory(self._redis)
        except (ResponseError, KeyError):
            return None

    def standing(self, sweep: SweepView, number: int) -> Standing:
        """Return where a trial of a sweep with one metric stands, as `trials.best` ranks it."""
        key, first = self._keys.ranking(sweep.id, sweep.replicates), first_of_set(sweep, number)
        score: Any = self._redis.zscore(key, str(first))
        of: Any = self._redis.zcard(key)
        place = Standing(setting=set_of(sweep, number), of=of)
        if score is None or sweep.metric is None:
            return place
        is_descending = sweep.metric.goal is Goal.MAXIMIZE
        better = (f"({score!r}", "+inf") if is_descending else ("-inf", f"({score!r}")
        before: Any = self._redis.zcount(key, *better)
        ties: Any = self._redis.zrangebyscore(key, score, score, start=0, num=MOST_TIES)
        with decoding(key):
            before += sum(count(other) < first for other in ties)
        return replace(place, rank=before + 1)

    def status(self, sid: str, rows: int, top: int = 3, recent: int = 3) -> SweepStatus:
        """Return one moment of a sweep.

        `rows` is the most running trials, oldest claim first; `top` the most of the best trials,
        and `recent` the most of those that ended last.

        Raises:
            NotFound: no sweep has this id.
        """
        # Read before all else: an event during the other reads is then reported twice, not lost.
        last_event = self.events.last_id(sid)
        sweep = self.sweeps.get(sid)
        key = self._keys.sweep(sid)
        running: Any = self._redis.zrange(f"{key}:running", 0, rows - 1) if rows > 0 else []
        ended: Any = self._redis.zrange(f"{key}:ended", 0, recent - 1, desc=True) if recent else []
        parts = [
            trial_numbers(f"{key}:running", running),
            trial_numbers(f"{key}:ended", ended),
        ]
        trials = iter(self.trials.get_many(sid, [n for part in parts for n in part]))
        shown = [tuple(islice(trials, len(part))) for part in parts]
        row: Any = self._redis.hmget(key, "dur_n", "dur_sum", "dur_sq")
        workers = tuple(self.workers.live(sweep.queue))
        is_stuck = sweep.counts.waits and not sweep.counts.running
        owners = self.owners.of([sweep.owner]) if is_stuck else {}
        is_behind = is_stuck and any(w.state == "busy" for w in workers)
        return SweepStatus(
            sweep=sweep,
            at_ms=self.now_ms(),
            running=shown[0],
            best=tuple(self.trials.best(sweep, top)),
            recent=shown[1],
            workers=workers,
            ahead=tuple(self.sweeps.ahead_of([sweep])[sid]) if is_behind else (),
            durations=decode_durations(key, row),
            owner=owners.get(sweep.owner),
            memory=self.server_memory(),
            silent_ms=self.workers.silent_ms,
            last_event=last_event,
        )
