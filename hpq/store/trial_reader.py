"""Read trials: their rows, their ranking, the values of their metrics and what they printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress, islice
from typing import Any

from redis import Redis

from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import (
    ALTERED,
    Curve,
    Point,
    ReplicateGroup,
    Standing,
    TrialId,
    TrialState,
    TrialView,
)
from hpq.errors import DecodeError, NotFound, no_sweep
from hpq.redis.damage import answered
from hpq.search.replicates import set_of
from hpq.store.keys import Keys
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import count, decoding, real, trial_numbers
from hpq.store.wire.trial import Entry, decode_entries, decode_points, entry_id, join_points

MOST_RANKED = 10_000_000  # trials of a sweep
MOST_TIES = 1000  # trials with the same objective as the last one of a ranking
_MEMBERS_PER_READ = 2_000  # about 1 ms of the server
_PLACED_MAX = 500  # running trials that a page places among the ranked ones
_Segment = tuple[int, Callable[[int, int], list[int]]]  # its length, and what reads a part of it


class TrialReader:
    """Read the trials under one prefix.

    `check_of` finds what verifies a sweep's parameters. A trial that does not pass is read without
    parameters, failed if it has ended, and with the failure ALTERED.
    """

    def __init__(self, redis: Redis, keys: Keys, check_of: trial_codec.CheckOf) -> None:
        self._redis = redis
        self._keys = keys
        self._check_of = check_of

    def get(self, trial: TrialId) -> TrialView:
        """Return one trial.

        Raises:
            NotFound: the sweep has no trial with this number.
            DecodeError: the trial cannot be decoded.
        """
        if not self._redis.hexists(self._keys.sweep(trial.sweep, "params"), str(trial.number)):
            text = f"trial {trial} does not exist; `hpq show {trial.sweep}` counts its trials"
            raise NotFound(text, code="trial-not-found")
        ((_, found),) = self._read(trial.sweep, [trial.number])
        if isinstance(found, DecodeError):
            raise found
        return found

    def get_many(self, sid: str, numbers: Sequence[int]) -> list[TrialView]:
        """Return the trials with these numbers, in this order.

        A trial that cannot be decoded has its number and a failure that says why; it is failed
        unless it waits or runs.

        Raises:
            NotFound: the sweep was removed.
        """
        found = self._read(sid, numbers)
        return [
            trial_codec.unreadable(TrialId(sweep=sid, number=n), row, one)
            if isinstance(one, DecodeError)
            else one
            for n, (row, one) in zip(numbers, found, strict=True)
        ]

    def _read(self, sid: str, numbers: Sequence[int]) -> list[tuple[Any, TrialView | DecodeError]]:
        """Return the hash of each trial, and the trial or why it cannot be decoded."""
        if not numbers:
            return []
        params_key = self._keys.sweep(sid, "params")
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(self._keys.sweep(sid))
        pipe.hget(self._keys.sweep(sid), "metric_order")
        pipe.hmget(params_key, [str(n) for n in numbers])
        pipe.zmscore(self._keys.sweep(sid, "dropped"), [str(n) for n in numbers])
        for n in numbers:
            pipe.hgetall(self._keys.trial(TrialId(sweep=sid, number=n)))
        exists, order, params, dropped, *rows = pipe.execute(raise_on_error=False)
        if not answered(self._keys.sweep(sid), exists):
            raise no_sweep(sid)
        params = answered(params_key, params)
        dropped = answered(self._keys.sweep(sid, "dropped"), dropped)
        places = trial_codec.decode_metric_order(answered(self._keys.sweep(sid), order))
        check = self._check_of(sid)
        trials = list[tuple[Any, TrialView | DecodeError]]()
        for n, raw, drop, row in zip(numbers, params, dropped, rows, strict=True):
            trial = TrialId(sweep=sid, number=n)
            try:
                trials.append((row, self._decode(trial, raw, drop, row, check, places)))
            except DecodeError as error:
                trials.append((row, error))
        return trials

    def _decode(
        self,
        trial: TrialId,
        raw: bytes | None,
        drop: float | None,
        row: Any,
        check: trial_codec.CheckRow | None,
        places: Mapping[str, int],
    ) -> TrialView:
        passes = check(trial.number, raw) if raw is not None and check is not None else None
        is_altered = passes is False
        is_signed = passes is True and not trial_codec.is_unsigned(trial.number, raw)
        where = f"{self._keys.sweep(trial.sweep, 'params')} field {trial.number}"
        values = {} if is_altered else trial_codec.decode_params(where, raw)
        key = self._keys.trial(trial)
        fields = answered(key, row)
        is_dropped = drop is not None
        view = trial_codec.decode_trial(
            key, trial, fields, values, dropped=is_dropped, is_signed=is_signed, places=places
        )
        if not is_altered:
            return view
        state = TrialState.FAILED if view.state.is_terminal else view.state
        return replace(view, state=state, failure=ALTERED)

    def all(self, sid: str, chunk: int = 500) -> Iterator[TrialView]:
        """Yield every trial of a sweep in order of number; read `chunk` trials a round trip."""
        total: Any = self._redis.hlen(self._keys.sweep(sid, "params"))
        yield from self._in_parts(sid, range(1, total + 1), chunk)

    def begun(self, sid: str, chunk: int = 500) -> Iterator[TrialView]:
        """Yield, in order of number, every trial of a sweep that was ever claimed, or reused.

        The order of the reads follows a trial from the queue to its end: it is missed only if it is
        requeued between them.
        """
        total: Any = self._redis.hlen(self._keys.sweep(sid, "params"))
        has_begun = bytearray(total + 1)  # a set of a million numbers takes 70 MB
        for part, high in (("waiting", 0), ("running", "+inf"), ("ended", "+inf")):
            for number in self._members(self._keys.sweep(sid, part), high):
                if 0 < number <= total:
                    has_begun[number] = 1
        yield from self._in_parts(sid, compress(range(total + 1), has_begun), chunk)

    def _members(self, key: str, high: float | str) -> Iterator[int]:
        """Yield the numbers up to a score, in order of score; a few twice if they change."""
        low: float | str = "-inf"
        skip = 0
        while True:  # from the last score, since a position moves when members are removed
            rows: Any = self._redis.zrangebyscore(
                key, low, high, start=skip, num=_MEMBERS_PER_READ, withscores=True
            )
            yield from trial_numbers(key, (number for number, _ in rows))
            if len(rows) < _MEMBERS_PER_READ:
                return
            last = rows[-1][1]
            skip = (skip if last == low else 0) + sum(score == last for _, score in rows)
            low = last

    def _in_parts(self, sid: str, numbers: Iterable[int], chunk: int) -> Iterator[TrialView]:
        left = iter(numbers)
        while part := list(islice(left, chunk)):
            yield from self.get_many(sid, part)

    def longest_running(self, sids: Sequence[str]) -> dict[str, TrialView]:
        """Return, by sweep, the running trial with the oldest claim; omit sweeps without one."""
        pipe = self._redis.pipeline(transaction=False)
        for sid in sids:
            pipe.zrange(self._keys.sweep(sid, "running"), 0, 0)
        oldest: dict[str, TrialView] = {}
        for sid, numbers in zip(sids, pipe.execute(raise_on_error=False), strict=True):
            # The sweep was removed between the two reads, or `hpq show` says what is unreadable.
            with suppress(NotFound, DecodeError):
                key = self._keys.sweep(sid, "running")
                for trial in self.get_many(sid, trial_numbers(key, answered(key, numbers))):
                    oldest[sid] = trial
        return oldest

    def best(self, sweep: SweepView, top: int) -> list[TrialView]:
        """Return the N trials with the best objectives, best first; ties by number.

        If the sweep has replicates, one trial stands for each group of them. The groups are
        ranked by their mean, which replaces that trial's objective.
        """
        numbers = self.ranking(sweep, top)
        if not numbers:
            return []
        of: Any = self._redis.zcard(self._keys.ranking(sweep.id, sweep.replicates))
        if sweep.replicates > 1:
            found = self._replicate_groups(sweep, numbers)
        else:
            found = self.get_many(sweep.id, numbers)
        ranks = {number: rank for rank, number in enumerate(numbers, start=1)}
        return [
            replace(t, standing=Standing(setting=set_of(sweep, n), rank=ranks[n], of=of))
            for t in found
            for n in [t.id.number]
        ]

    def ranking(self, sweep: SweepView, top: int = MOST_RANKED) -> list[int]:
        """Return the numbers of the N best trials, best first; ties by number.

        If the sweep has replicates, these are the first trials of each group of them.
        """
        if sweep.metric is None or top < 1:
            return []
        desc = sweep.metric.goal is Goal.MAXIMIZE
        key = self._keys.ranking(sweep.id, sweep.replicates)
        rows: Any = self._redis.zrange(key, 0, top - 1, desc=desc, withscores=True)
        if rows:  # Redis orders ties by text: read all that tie with the last row
            score = rows[-1][1]
            ties: Any = self._redis.zrangebyscore(key, score, score, start=0, num=MOST_TIES)
            rows = rows + [(n, score) for n in ties]
        sign = -1 if desc else 1
        with decoding(key):
            order = sorted({(sign * score, count(n)) for n, score in rows})
        return [n for _, n in order[:top]]

    def _replicate_groups(self, sweep: SweepView, firsts: Sequence[int]) -> list[TrialView]:
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
        # A retry between the two reads leaves a group without objectives.
        groups = [group for group in groups if group.objectives]
        trials = self.get_many(sweep.id, [group.first for group in groups])
        return [
            replace(trial, objective=group.mean, group=group)
            for trial, group in zip(trials, groups, strict=True)
        ]

    def metric_history(self, trial: TrialId, metric: str) -> list[Point]:
        """Return the values of one metric in the order of report, thinned to about 1,000."""
        return self.new_points([(trial, "")], metric)[0][0]

    def new_points(
        self, trials: Sequence[tuple[TrialId, str]], metric: str
    ) -> list[tuple[list[Point], str]]:
        """Return, by trial, the values of one metric after an entry, and the last entry's id.

        The id is "" before the first read. Takes one round trip.
        """
        entries = self._entries([(trial, metric, after) for trial, after in trials])
        return [
            (
                [Point(step=e.step, name=metric, value=e.value) for e in some],
                "{}-{}".format(*some[-1].id) if some else after,
            )
            for some, (_, after) in zip(entries, trials, strict=True)
        ]

    def _entries(self, wanted: Sequence[tuple[TrialId, str, str]]) -> list[list[Entry]]:
        """Return the points of a trial's metric after an entry ("": all); takes one round trip."""
        pipe = self._redis.pipeline(transaction=False)
        for trial, metric, after in wanted:
            # In this order, since the points of a trial that ends go from the first to the second.
            pipe.xrange(self._keys.points(trial, metric), min=f"({after}" if after else "-")
            pipe.hmget(self._keys.trial(trial, "points"), [metric, ""])
        found, answers = [], iter(pipe.execute())
        for (trial, metric, after), rows, (packed, common) in zip(
            wanted, answers, answers, strict=True
        ):
            with decoding(self._keys.points(trial, metric)):
                entries = decode_entries(rows)
            if packed is not None:
                with decoding(f"{self._keys.trial(trial, 'points')} field {metric}"):
                    entries = join_points(decode_points(packed, common or b""), entries)
            last = entry_id(after) if after else (0, 0)
            found.append([entry for entry in entries if entry.id > last or not after])
        return found

    def curves(self, sid: str, wanted: Sequence[tuple[int, str]]) -> list[Curve]:
        """Return the curves of pairs of trial number and metric; takes one round trip.

        All values are of attempt 1; `hpq_views.analysis.history` finds the others.
        """
        entries = self._entries([(TrialId(sweep=sid, number=n), m, "") for n, m in wanted])
        return [
            Curve(
                trial=number,
                metric=metric,
                steps=[entry.step for entry in some],
                values=[entry.value for entry in some],
                times_ms=[entry.id[0] for entry in some],
                attempts=[1] * len(some),
            )
            for (number, metric), some in zip(wanted, entries, strict=True)
        ]

    def page(self, sweep: SweepView, order: str, first: int, count: int) -> list[int]:
        """Return the numbers of at most `count` trials from place `first` (from 0) of an order.

        `best`: best objective first, a running trial in the place that its value has now; then
        running trials without a value, ended ones without an objective, waiting ones. `newest`:
        running trials, then the last ended first, then waiting ones. Else by number.
        """
        if order not in ("best", "newest"):
            return list(range(first + 1, min(first + count, sweep.counts.total) + 1))
        parts = ("running", "rank", "ended", "waiting", "dropped")
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
        merged, placed = self._merged(sweep, running, size["rank"])
        others = [n for n in running if n not in placed]
        rest = (max(0, size["ended"] - size["rank"]), self._unranked(sweep.id))
        segments = [merged, (len(others), lambda a, b: others[a:b]), rest, *waiting]
        return _window(segments, first, count)

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
            rows: Any = self._redis.zrange(key, start, start + b - a - inside - 1, desc=desc)
            others = iter(rows if b - a > inside else ())
            mixed = (at.get(place) or next(others, None) for place in range(a, b))
            return trial_numbers(key, (n for n in mixed if n is not None))

        return (ranked + len(at), read), frozenset(at.values())

    def log(
        self, trial: TrialId, after: str = "0", block_ms: int | None = None
    ) -> tuple[bytes, str]:
        """Return what a trial printed after an entry of its log, and the id of the last entry.

        Waits at most `block_ms` milliseconds for the first entry.
        """
        answer: Any = self._redis.xread({self._keys.trial(trial, "log"): after}, block=block_ms)
        if not answer:
            return b"", after
        entries = answer[0][1]
        return b"".join(fields.get(b"d", b"") for _, fields in entries), entries[-1][0].decode()


def _window(segments: Sequence[_Segment], first: int, count: int) -> list[int]:
    """Read `count` numbers from place `first` of segments that follow one another."""
    found: list[int] = []
    for length, read in segments:
        if first < length and len(found) < count:
            found += read(first, min(length, first + count - len(found)))
        first = max(0, first - length)
    return found
