"""Read the order of the trials of sweeps: their ranking, and the pages of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis import Redis

from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import ReplicateGroup, Standing, TrialId, TrialView
from hpq.errors import DecodeError
from hpq.redis.damage import answered
from hpq.redis.round_trips import Question, ask, together
from hpq.search.replicates import first_of_set, set_of
from hpq.store.keys import Keys
from hpq.store.trial_reader import TrialReader
from hpq.store.wire.fields import count, decoding, real, trial_numbers

MOST_RANKED = 10_000_000  # trials of a sweep
MOST_TIES = 1000  # trials with the same objective as one of a ranking
_PLACED_MAX = 500  # running trials that a page places among the ranked ones
_AskPart = Callable[[int, int], Question[list[int]]]  # from a place of a segment to before another
_Segment = tuple[int, _AskPart]  # its length, and what asks for a part of it


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
        return ask(self._redis, self.best_question(sweep, top))

    def best_question(self, sweep: SweepView, top: int) -> Question[list[TrialView]]:
        """Ask for the N trials with the best objectives, as `best`."""
        key = self._keys.ranking(sweep.id, sweep.replicates)
        numbers, of = yield from together(self._ranked(sweep, 0, top), _size_question(key))
        if not numbers:
            return []
        groups: Mapping[int, ReplicateGroup] = {}
        if sweep.replicates > 1:  # a retry since the first read leaves a set without results
            groups = {group.first: group for group in self.groups(sweep, numbers)}
            numbers = [number for number in numbers if number in groups]
        trials = yield from self._trials.many_question(sweep.id, numbers)
        found = [
            replace(trial, objective=group.mean, group=group) if group else trial
            for trial in trials
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
        return ask(self._redis, self._ranked(sweep, 0, top))

    def _ranked(self, sweep: SweepView, first: int, end: int) -> Question[list[int]]:
        """Ask for the part of the ranking from place `first` (from 0) to before `end`."""
        if sweep.metric is None or end <= first:
            return []
        desc = sweep.metric.goal is Goal.MAXIMIZE
        sign = -1 if desc else 1
        key = self._keys.ranking(sweep.id, sweep.replicates)
        start = max(0, first - 1)  # and one more: they show whether others tie with a row
        (answer,) = yield lambda pipe: pipe.zrange(key, start, end, desc=desc, withscores=True)
        read = answered(key, answer)
        before, rows = read[: first - start], read[first - start :][: end - first]
        after = read[first - start + len(rows) :]
        if not rows:
            return []
        inside = {rows[0][1], rows[-1][1]}
        if inside.isdisjoint(score for _, score in (*before, *after)):
            with decoding(key):
                return [n for _, n in sorted((sign * score, count(n)) for n, score in rows)]
        # Redis orders ties by text: read all that tie with the first or the last row.
        low, high = sorted((rows[0][1], rows[-1][1]))

        def add(pipe: Any) -> None:
            for score in (low, high):
                pipe.zrangebyscore(key, score, score, start=0, num=MOST_TIES)
            pipe.zcount(key, *((f"({high!r}", "+inf") if desc else ("-inf", f"({low!r}")))

        of_low, of_high, better = (answered(key, one) for one in (yield add))
        if first and MOST_TIES in (len(of_low), len(of_high)):
            return trial_numbers(key, (number for number, _ in rows))
        rows = [*rows, *((n, low) for n in of_low), *((n, high) for n in of_high)]
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
        """Return where a trial stands, as `best` ranks it; of several metrics the setting alone."""
        return ask(self._redis, self.standing_question(sweep, number))

    def standing_question(self, sweep: SweepView, number: int) -> Question[Standing]:
        """Ask where a trial stands, as `standing`."""
        if sweep.objectives:  # the front replaces the rank
            return Standing(setting=set_of(sweep, number))
        key, first = self._keys.ranking(sweep.id, sweep.replicates), first_of_set(sweep, number)

        def add(pipe: Any) -> None:
            pipe.zscore(key, str(first))
            pipe.zcard(key)

        score, of = (answered(key, answer) for answer in (yield add))
        place = Standing(setting=set_of(sweep, number), of=of)
        if score is None or sweep.metric is None:
            return place
        is_descending = sweep.metric.goal is Goal.MAXIMIZE
        better = (f"({score!r}", "+inf") if is_descending else ("-inf", f"({score!r}")

        def add_others(pipe: Any) -> None:
            pipe.zcount(key, *better)
            pipe.zrangebyscore(key, score, score, start=0, num=MOST_TIES)

        before, ties = (answered(key, answer) for answer in (yield add_others))
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
        return ask(self._redis, self.page_question(sweep, order, first, count))

    def page_question(
        self, sweep: SweepView, order: str, first: int, count: int
    ) -> Question[list[int]]:
        """Ask for the numbers of the trials of a page, as `page`."""
        if order not in ("best", "newest"):
            return list(range(first + 1, min(first + count, sweep.counts.total) + 1))
        parts = ("running", "rank", "means", "ended", "waiting", "dropped")
        of_running = self._keys.sweep(sweep.id, "running")

        def add(pipe: Any) -> None:
            pipe.zrange(of_running, 0, _PLACED_MAX - 1)
            for part in parts:
                pipe.zcard(self._keys.sweep(sweep.id, part))

        found, *sizes = yield add
        size = {
            part: answered(self._keys.sweep(sweep.id, part), answer)
            for part, answer in zip(parts, sizes, strict=True)
        }
        running = trial_numbers(of_running, answered(of_running, found))
        waiting = [(size[part], self._slice(sweep.id, part)) for part in ("waiting", "dropped")]
        if order == "newest" or sweep.metric is None:
            ended = (size["ended"], self._slice(sweep.id, "ended", desc=True))
            segments = [(len(running), _part_of(running)), ended, *waiting]
            return (yield from _window(segments, first, count))
        if sweep.replicates > 1:
            others = running
            merged = (size["means"], lambda a, b: self._ranked(sweep, a, b))
        else:
            merged, placed = yield from self._merged(sweep, running, size["rank"])
            others = [n for n in running if n not in placed]
        rest = (max(0, size["ended"] - size["rank"]), self._unranked(sweep.id))
        segments = [merged, (len(others), _part_of(others)), rest, *waiting]
        return (yield from _window(segments, first, count))

    def rows(self, sweep: SweepView, order: str) -> int:
        """Return how many rows all pages of an order have."""
        return ask(self._redis, self.rows_question(sweep, order))

    def rows_question(self, sweep: SweepView, order: str) -> Question[int]:
        """Ask how many rows all pages of an order have."""
        total = sweep.counts.total
        if order != "best" or sweep.replicates < 2 or sweep.metric is None:
            return total
        trials, sets = yield from together(
            _size_question(self._keys.sweep(sweep.id, "rank")),
            _size_question(self._keys.sweep(sweep.id, "means")),
        )
        rows: int = total - trials + sets
        return max(0, rows)

    def _slice(self, sid: str, part: str, *, desc: bool = False) -> _AskPart:
        key = self._keys.sweep(sid, part)

        def part_question(a: int, b: int) -> Question[list[int]]:
            (answer,) = yield lambda pipe: pipe.zrange(key, a, b - 1, desc=desc)
            return trial_numbers(key, answered(key, answer))

        return part_question

    def _unranked(self, sid: str) -> _AskPart:
        """Read ended trials without an objective: one pass over the sweep's, on the server."""
        keys = [self._keys.sweep(sid, part) for part in ("ended", "rank")]

        def part_question(a: int, b: int) -> Question[list[int]]:
            (answer,) = yield lambda pipe: pipe.zdiff(keys)
            return sorted(trial_numbers(keys[0], answered(keys[0], answer)))[a:b]

        return part_question

    def _merged(
        self, sweep: SweepView, running: Sequence[int], ranked: int
    ) -> Question[tuple[_Segment, frozenset[int]]]:
        """Place running trials with a value among the ranked ones; return also which they are."""
        desc = sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE
        key, sign = self._keys.sweep(sweep.id, "rank"), -1 if desc else 1

        def add_objectives(pipe: Any) -> None:
            for n in running:
                pipe.hget(self._keys.trial(TrialId(sweep=sweep.id, number=n)), "objective")

        placed = []
        for raw, n in zip((yield add_objectives), running, strict=True):
            with suppress(ValueError, DecodeError):  # not finite; or unreadable, as its row says
                if answered(key, raw):
                    placed.append((sign * real(raw), n))
        placed.sort()

        def add_counts(pipe: Any) -> None:
            for value, _ in placed:
                pipe.zcount(key, *((f"({-value}", "+inf") if desc else ("-inf", f"({value}")))

        counts = enumerate(zip((yield add_counts), placed, strict=True))
        at = {answered(key, better) + i: n for i, (better, (_, n)) in counts}

        def part_question(a: int, b: int) -> Question[list[int]]:
            start, inside = a - sum(place < a for place in at), sum(a <= p < b for p in at)
            others = iter((yield from self._ranked(sweep, start, start + b - a - inside)))
            mixed = (at.get(place) or next(others, None) for place in range(a, b))
            return [n for n in mixed if n is not None]

        return (ranked + len(at), part_question), frozenset(at.values())


def _size_question(key: str) -> Question[int]:
    """Ask how many members a sorted set has."""
    (answer,) = yield lambda pipe: pipe.zcard(key)
    size: int = answered(key, answer)
    return size


def _part_of(numbers: Sequence[int]) -> _AskPart:
    """Return what asks for a part of numbers that were read already."""

    def part_question(a: int, b: int) -> Question[list[int]]:
        yield from ()
        return list(numbers[a:b])

    return part_question


def _window(segments: Sequence[_Segment], first: int, count: int) -> Question[list[int]]:
    """Ask for `count` numbers from place `first` of segments that follow one another."""
    parts = []
    for length, part_question in segments:
        end = min(length, first + count)
        if first < end:
            parts.append(part_question(first, end))
            count -= end - first
        first = max(0, first - length)
    found = yield from together(*parts)
    return [number for part in found for number in part]
