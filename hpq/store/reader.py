"""Read the store for people: plain read commands, a bounded number for each question.

Viewers may hold read-only credentials, so no reader runs a script or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from hpq.domain.status import ServerMemory, SweepStatus
from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import ReplicateGroup, Standing, TrialId, TrialView
from hpq.domain.usage import UsageCurves
from hpq.errors import DecodeError
from hpq.redis.damage import answered
from hpq.search.replicates import first_of_set, set_of
from hpq.store.audit_reader import AuditReader
from hpq.store.events import EventReader
from hpq.store.keys import Keys
from hpq.store.sweep_reader import SweepReader
from hpq.store.trial_reader import TrialReader
from hpq.store.wire.fields import count, decoding, moment, real, trial_numbers
from hpq.store.wire.row import CheckOf
from hpq.store.wire.sweep import decode_durations
from hpq.store.wire.trial import decode_usage_curves
from hpq.store.worker_reader import OwnerReader, WorkerReader, server_memory, server_ms

MOST_RANKED = 10_000_000  # trials of a sweep
MOST_TIES = 1000  # trials with the same objective as one of a ranking
_PLACED_MAX = 500  # running trials that a page places among the ranked ones
_USAGES_PER_ROUND_TRIP = 200
_Segment = tuple[int, Callable[[int, int], list[int]]]  # its length, and what reads a part of it


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
        self.ranking = RankingReader(redis, keys, self.trials)
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

    def usage_curves(self, trials: Sequence[TrialId]) -> list[UsageCurves | None]:
        """Return what each trial's latest attempt with readings used over time, if any did.

        One round trip reads 200 trials.

        Raises:
            DecodeError: a record cannot be read.
        """
        found: list[UsageCurves | None] = []
        for first in range(0, len(trials), _USAGES_PER_ROUND_TRIP):
            some = trials[first : first + _USAGES_PER_ROUND_TRIP]
            keys = [self._keys.trial(trial, "points") for trial in some]
            pipe = self._redis.pipeline(transaction=False)
            for key in keys:
                pipe.hget(key, "#usage")
            for key, answer in zip(keys, pipe.execute(raise_on_error=False), strict=True):
                raw = answered(key, answer)
                with decoding(f"{key} field #usage"):
                    found.append(decode_usage_curves(raw.decode()) if raw else None)
        return found

    def server_memory(self) -> ServerMemory | None:
        """Return how full the server is; None if these credentials may not ask."""
        try:
            return server_memory(self._redis)
        except (ResponseError, KeyError):
            return None

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
        pipe = self._redis.pipeline(transaction=False)
        # One more of each than is shown: an end of -1 would be all.
        pipe.zrange(f"{key}:running", 0, rows)
        pipe.zrange(f"{key}:ended", 0, recent, desc=True)
        pipe.hmget(key, "dur_n", "dur_sum", "dur_sq")
        running, ended, durations = pipe.execute()
        parts = [
            trial_numbers(f"{key}:running", running[:rows]),
            trial_numbers(f"{key}:ended", ended[:recent]),
        ]
        trials = iter(self.trials.get_many(sid, [n for part in parts for n in part]))
        shown = [tuple(islice(trials, len(part))) for part in parts]
        workers = tuple(self.workers.live(sweep.queue))
        is_stuck = sweep.counts.waits and not sweep.counts.running
        owners = self.owners.of([sweep.owner]) if is_stuck else {}
        is_behind = is_stuck and any(w.state == "busy" for w in workers)
        return SweepStatus(
            sweep=sweep,
            at_ms=self.now_ms(),
            running=shown[0],
            best=tuple(self.ranking.best(sweep, top)),
            recent=shown[1],
            workers=workers,
            ahead=tuple(self.sweeps.ahead_of([sweep])[sid]) if is_behind else (),
            durations=decode_durations(key, durations),
            owner=owners.get(sweep.owner),
            memory=self.server_memory(),
            silent_ms=self.workers.silent_ms,
            last_event=last_event,
        )


class RankingReader:
    """Read the order of the trials of sweeps under one prefix."""

    def __init__(self, redis: Redis, keys: Keys, trials: TrialReader) -> None:
        self._redis = redis
        self._keys = keys
        self._trials = trials

    def best(self, sweep: SweepView, top: int) -> list[TrialView]:
        """Return the N trials with the best objectives, best first; ties by number.

        If the sweep has replicates, one trial stands for each group of them. The groups are
        ranked by their mean, which replaces that trial's objective.
        """
        numbers = self.numbers(sweep, top)
        if not numbers:
            return []
        of: Any = self._redis.zcard(self._keys.ranking(sweep.id, sweep.replicates))
        groups: Mapping[int, ReplicateGroup] = {}
        if sweep.replicates > 1:  # a retry since the first read leaves a set without results
            groups = {group.first: group for group in self.groups(sweep, numbers)}
            numbers = [number for number in numbers if number in groups]
        found = [
            replace(trial, objective=group.mean, group=group) if group else trial
            for trial in self._trials.get_many(sweep.id, numbers)
            for group in [groups.get(trial.id.number)]
        ]
        ranks = {number: rank for rank, number in enumerate(numbers, start=1)}
        return [
            replace(t, standing=Standing(setting=set_of(sweep, n), rank=ranks[n], of=of))
            for t in found
            for n in [t.id.number]
        ]

    def numbers(self, sweep: SweepView, top: int = MOST_RANKED) -> list[int]:
        """Return the numbers of the N best trials, best first; ties by number.

        If the sweep has replicates, these are the first trials of each group of them.
        """
        return self._ranked(sweep, 0, top)

    def _ranked(self, sweep: SweepView, first: int, end: int) -> list[int]:
        """Return the part of the ranking from place `first` (from 0) to before `end`."""
        if sweep.metric is None or end <= first:
            return []
        desc = sweep.metric.goal is Goal.MAXIMIZE
        key = self._keys.ranking(sweep.id, sweep.replicates)
        rows: Any = self._redis.zrange(key, first, end - 1, desc=desc, withscores=True)
        if not rows:
            return []
        # Redis orders ties by text: read all that tie with the first or the last row.
        low, high = sorted((rows[0][1], rows[-1][1]))
        above = (f"({high!r}", "+inf") if desc else ("-inf", f"({low!r}")
        pipe = self._redis.pipeline(transaction=False)
        for score in (low, high):
            pipe.zrangebyscore(key, score, score, start=0, num=MOST_TIES)
        pipe.zcount(key, *above)
        of_low, of_high, better = pipe.execute()
        if first and MOST_TIES in (len(of_low), len(of_high)):
            return trial_numbers(key, (number for number, _ in rows))
        rows = [*rows, *((n, low) for n in of_low), *((n, high) for n in of_high)]
        sign = -1 if desc else 1
        with decoding(key):
            order = sorted({(sign * score, count(n)) for n, score in rows})
        return [n for _, n in order[first - better :][: end - first]]

    def groups(self, sweep: SweepView, firsts: Sequence[int]) -> list[ReplicateGroup]:
        """Return the results of replicates, by the first of each set; omit sets without any."""
        pipe = self._redis.pipeline(transaction=False)
        for first in firsts:
            members = [str(first + i) for i in range(sweep.replicates)]
            pipe.zmscore(self._keys.sweep(sweep.id, "rank"), members)
        groups = [
            ReplicateGroup(
                first=first,
                of=sweep.replicates,
                objectives=tuple(s for s in scores if s is not None),
            )
            for first, scores in zip(firsts, pipe.execute(), strict=True)
        ]
        return [group for group in groups if group.objectives]

    def standing(self, sweep: SweepView, number: int) -> Standing:
        """Return where a trial of a sweep with one metric stands, as `best` ranks it."""
        key, first = self._keys.ranking(sweep.id, sweep.replicates), first_of_set(sweep, number)
        pipe = self._redis.pipeline(transaction=False)
        pipe.zscore(key, str(first))
        pipe.zcard(key)
        score, of = pipe.execute()
        place = Standing(setting=set_of(sweep, number), of=of)
        if score is None or sweep.metric is None:
            return place
        is_descending = sweep.metric.goal is Goal.MAXIMIZE
        better = (f"({score!r}", "+inf") if is_descending else ("-inf", f"({score!r}")
        pipe.zcount(key, *better)
        pipe.zrangebyscore(key, score, score, start=0, num=MOST_TIES)
        before, ties = pipe.execute()
        with decoding(key):
            before += sum(count(other) < first for other in ties)
        return replace(place, rank=before + 1)

    def page(self, sweep: SweepView, order: str, first: int, count: int) -> list[int]:
        """Return the numbers of at most `count` trials from place `first` (from 0) of an order.

        `best`: best objective first, a running trial in the place that its value has now; then
        running trials without a value, ended ones without an objective, waiting ones. Of replicates
        with a result, the first one stands for all in the place of their mean; those that run come
        after. `newest`: running trials, then the last ended first, then waiting ones. Else by
        number.
        """
        if order not in ("best", "newest"):
            return list(range(first + 1, min(first + count, sweep.counts.total) + 1))
        parts = ("running", "rank", "means", "ended", "waiting", "dropped")
        pipe = self._redis.pipeline(transaction=False)
        pipe.zrange(self._keys.sweep(sweep.id, "running"), 0, _PLACED_MAX - 1)
        for part in parts:
            pipe.zcard(self._keys.sweep(sweep.id, part))
        found, *sizes = pipe.execute()
        size = dict(zip(parts, sizes, strict=True))
        running = trial_numbers(self._keys.sweep(sweep.id, "running"), found)
        waiting = [(size[part], self._slice(sweep.id, part)) for part in ("waiting", "dropped")]
        if order == "newest" or sweep.metric is None:
            shown = [(len(running), lambda a, b: running[a:b])]
            ended = (size["ended"], self._slice(sweep.id, "ended", desc=True))
            return _window([*shown, ended, *waiting], first, count)
        if sweep.replicates > 1:
            others = running
            merged = (size["means"], lambda a, b: self._ranked(sweep, a, b))
        else:
            merged, placed = self._merged(sweep, running, size["rank"])
            others = [n for n in running if n not in placed]
        rest = (max(0, size["ended"] - size["rank"]), self._unranked(sweep.id))
        segments = [merged, (len(others), lambda a, b: others[a:b]), rest, *waiting]
        return _window(segments, first, count)

    def rows(self, sweep: SweepView, order: str) -> int:
        """Return how many rows all pages of an order have."""
        total = sweep.counts.total
        if order != "best" or sweep.replicates < 2 or sweep.metric is None:
            return total
        pipe = self._redis.pipeline(transaction=False)
        for part in ("rank", "means"):
            pipe.zcard(self._keys.sweep(sweep.id, part))
        trials, sets = pipe.execute()
        rows: int = total - trials + sets
        return max(0, rows)

    def _slice(self, sid: str, part: str, *, desc: bool = False) -> Callable[[int, int], list[int]]:
        key = self._keys.sweep(sid, part)
        redis: Any = self._redis
        return lambda a, b: trial_numbers(key, redis.zrange(key, a, b - 1, desc=desc))

    def _unranked(self, sid: str) -> Callable[[int, int], list[int]]:
        """Read ended trials without an objective: one pass over the sweep's, on the server."""
        keys = [self._keys.sweep(sid, part) for part in ("ended", "rank")]
        redis: Any = self._redis
        return lambda a, b: sorted(trial_numbers(keys[0], redis.zdiff(keys)))[a:b]

    def _merged(
        self, sweep: SweepView, running: Sequence[int], ranked: int
    ) -> tuple[_Segment, frozenset[int]]:
        """Place running trials with a value among the ranked ones; return also which they are."""
        desc = sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE
        key, sign = self._keys.sweep(sweep.id, "rank"), -1 if desc else 1
        pipe = self._redis.pipeline(transaction=False)
        for n in running:
            pipe.hget(self._keys.trial(TrialId(sweep=sweep.id, number=n)), "objective")
        placed = []
        for raw, n in zip(pipe.execute(raise_on_error=False), running, strict=True):
            with suppress(ValueError, DecodeError):  # not finite; or unreadable, as its row says
                if answered(key, raw):
                    placed.append((sign * real(raw), n))
        placed.sort()
        for value, _ in placed:
            pipe.zcount(key, *((f"({-value}", "+inf") if desc else ("-inf", f"({value}")))
        counts = enumerate(zip(pipe.execute(), placed, strict=True))
        at = {better + i: n for i, (better, (_, n)) in counts}

        def read(a: int, b: int) -> list[int]:
            start, inside = a - sum(place < a for place in at), sum(a <= p < b for p in at)
            others = iter(self._ranked(sweep, start, start + b - a - inside))
            mixed = (at.get(place) or next(others, None) for place in range(a, b))
            return [n for n in mixed if n is not None]

        return (ranked + len(at), read), frozenset(at.values())


def _window(segments: Sequence[_Segment], first: int, count: int) -> list[int]:
    """Read `count` numbers from place `first` of segments that follow one another."""
    found: list[int] = []
    for length, read in segments:
        if first < length and len(found) < count:
            found += read(first, min(length, first + count - len(found)))
        first = max(0, first - length)
    return found
