"""Read trials: their rows, their ranking, the values of their metrics and what they printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress, islice
from typing import Any

from redis import Redis

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import (
    ALTERED,
    Curve,
    Point,
    TrialId,
    TrialState,
    TrialView,
)
from hpq.errors import DecodeError, NotFound, no_sweep
from hpq.redis.damage import answered
from hpq.redis.round_trips import Question, ask
from hpq.store.keys import Keys
from hpq.store.wire import row as row_codec
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import decoding, trial_numbers
from hpq.store.wire.trial import (
    Entry,
    decode_entries,
    decode_log,
    decode_points,
    entry_id,
    join_points,
)

_MEMBERS_PER_READ = 2_000  # about 1 ms of the server


def read_parameters(
    redis: Redis, keys: Keys, sid: str, check: row_codec.CheckRow | None, first: int, last: int
) -> Iterator[tuple[int, ParameterSet]]:
    """Yield number and parameters of the trials from `first` to `last`, both included.

    Parameters that are not as signed, or cannot be decoded, are omitted.
    """
    key = keys.sweep(sid, "params")
    for start in range(first, last + 1, _MEMBERS_PER_READ):
        numbers = range(start, min(start + _MEMBERS_PER_READ, last + 1))
        rows: Any = redis.hmget(key, [str(n) for n in numbers])
        for number, row in zip(numbers, rows, strict=True):
            if check is None or check(number, row):
                with suppress(DecodeError):
                    yield number, row_codec.decode_params(f"{key} field {number}", row)


class TrialReader:
    """Read the trials under one prefix.

    `check_of` finds what verifies a sweep's parameters. A trial that does not pass is read without
    parameters, failed if it has ended, and with the failure ALTERED.
    """

    def __init__(self, redis: Redis, keys: Keys, check_of: row_codec.CheckOf) -> None:
        self._redis = redis
        self._keys = keys
        self._check_of = check_of

    def get(self, trial: TrialId) -> TrialView:
        """Return one trial.

        Raises:
            NotFound: the sweep has no trial with this number.
            DecodeError: the trial cannot be decoded.
        """
        ((_, found),) = ask(self._redis, self._read(trial.sweep, [trial.number]))
        if isinstance(found, TrialView):
            return found
        if self._redis.hexists(self._keys.sweep(trial.sweep, "params"), str(trial.number)):
            raise found
        text = f"trial {trial} does not exist; `hpq show {trial.sweep}` counts its trials"
        raise NotFound(text, code="trial-not-found")

    def get_many(self, sid: str, numbers: Sequence[int]) -> list[TrialView]:
        """Return the trials with these numbers, in this order.

        A trial that cannot be decoded has its number and a failure that says why; it is failed
        unless it waits or runs.

        Raises:
            NotFound: the sweep was removed.
        """
        return ask(self._redis, self.many_question(sid, numbers))

    def many_question(self, sid: str, numbers: Sequence[int]) -> Question[list[TrialView]]:
        """Ask for the trials with these numbers, as `get_many`."""
        found = yield from self._read(sid, numbers)
        return [
            trial_codec.unreadable(TrialId(sweep=sid, number=n), row, one)
            if isinstance(one, DecodeError)
            else one
            for n, (row, one) in zip(numbers, found, strict=True)
        ]

    def _read(
        self, sid: str, numbers: Sequence[int]
    ) -> Question[list[tuple[Any, TrialView | DecodeError]]]:
        """Ask for the hash of each trial, and the trial or why it cannot be decoded."""
        if not numbers:
            return []
        params_key = self._keys.sweep(sid, "params")
        ids = [TrialId(sweep=sid, number=n) for n in numbers]

        def add(pipe: Any) -> None:
            pipe.exists(self._keys.sweep(sid))
            pipe.hget(self._keys.sweep(sid), "metric_order")
            pipe.hmget(params_key, [str(n) for n in numbers])
            pipe.zmscore(self._keys.sweep(sid, "dropped"), [str(n) for n in numbers])
            for trial in ids:
                pipe.hgetall(self._keys.trial(trial))

        exists, order, params, dropped, *rows = yield add
        if not answered(self._keys.sweep(sid), exists):
            raise no_sweep(sid)
        params = answered(params_key, params)
        dropped = answered(self._keys.sweep(sid, "dropped"), dropped)
        places = trial_codec.decode_metric_order(answered(self._keys.sweep(sid), order))
        check = self._check_of(sid)
        trials = list[tuple[Any, TrialView | DecodeError]]()
        for trial, raw, drop, row in zip(ids, params, dropped, rows, strict=True):
            where = f"{params_key} field {trial.number}"
            try:
                trials.append((row, self._decode(trial, where, raw, drop, row, check, places)))
            except DecodeError as error:
                trials.append((row, error))
        return trials

    def _decode(
        self,
        trial: TrialId,
        where: str,
        raw: bytes | None,
        drop: float | None,
        row: Any,
        check: row_codec.CheckRow | None,
        places: Mapping[str, int],
    ) -> TrialView:
        passes = check(trial.number, raw) if raw is not None and check is not None else None
        is_altered = passes is False
        is_signed = passes is True and not row_codec.is_unsigned(trial.number, raw)
        values = ParameterSet() if is_altered else row_codec.decode_params(where, raw)
        key = self._keys.trial(trial)
        fields = answered(key, row)
        is_dropped = drop is not None
        view = trial_codec.decode_trial(
            key,
            trial,
            fields,
            values,
            dropped=is_dropped,
            start=values.start,
            is_signed=is_signed,
            places=places,
        )
        if not is_altered:
            return view
        state = TrialState.FAILED if view.state.is_terminal else view.state
        return replace(view, state=state, failure=ALTERED)

    def all(self, sid: str, chunk: int = 500) -> Iterator[TrialView]:
        """Yield every trial of a sweep in order of number; read `chunk` trials a round trip."""
        total: Any = self._redis.hlen(self._keys.sweep(sid, "params"))
        yield from self._in_parts(sid, range(1, total + 1), chunk)

    def of_sets(
        self, sid: str, identities: Iterable[bytes], chunk: int = 500
    ) -> dict[bytes, TrialView]:
        """Return the first trial of each of these parameter sets, in order of number.

        A set is missing if the sweep has no trial of it, or if that was altered.

        Raises:
            NotFound: the sweep was removed.
        """
        left = set(identities)
        numbers: dict[bytes, int] = {}
        total: Any = self._redis.hlen(self._keys.sweep(sid, "params")) if left else 0
        check = self._check_of(sid) if left else None
        for number, params in read_parameters(self._redis, self._keys, sid, check, 1, total):
            if params.identity in left:
                left.discard(params.identity)
                numbers[params.identity] = number
                if not left:
                    break
        trials = self._in_parts(sid, numbers.values(), chunk)
        return dict(zip(numbers, trials, strict=True))

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

    def metric_history(self, trial: TrialId, metric: str) -> list[Point]:
        """Return the values of one metric in the order of report, thinned to about 1,000."""
        return self.metric_histories(trial, [metric])[metric]

    def metric_histories(self, trial: TrialId, metrics: Sequence[str]) -> dict[str, list[Point]]:
        """Return the values of each metric, as `metric_history`; takes one round trip."""
        return ask(self._redis, self.histories_question(trial, metrics))

    def histories_question(
        self, trial: TrialId, metrics: Sequence[str]
    ) -> Question[dict[str, list[Point]]]:
        """Ask for the values of each metric, as `metric_histories`."""
        entries = yield from self._entries([(trial, metric, "") for metric in metrics])
        return {
            metric: [Point(step=e.step, name=metric, value=e.value) for e in some]
            for metric, some in zip(metrics, entries, strict=True)
        }

    def new_points(
        self, trials: Sequence[tuple[TrialId, str]], metric: str
    ) -> list[tuple[list[Point], str]]:
        """Return, by trial, the values of one metric after an entry, and the last entry's id.

        The id is "" before the first read. Takes one round trip.
        """
        asked = [(trial, metric, after) for trial, after in trials]
        entries = ask(self._redis, self._entries(asked))
        return [
            (
                [Point(step=e.step, name=metric, value=e.value) for e in some],
                "{}-{}".format(*some[-1].id) if some else after,
            )
            for some, (_, after) in zip(entries, trials, strict=True)
        ]

    def _entries(self, wanted: Sequence[tuple[TrialId, str, str]]) -> Question[list[list[Entry]]]:
        """Ask for the points of a trial's metric after an entry ("": all); takes one round trip."""

        def add(pipe: Any) -> None:
            for trial, metric, after in wanted:
                # In this order: the points of a trial that ends go from the first to the second.
                pipe.xrange(self._keys.points(trial, metric), min=f"({after}" if after else "-")
                pipe.hmget(self._keys.trial(trial, "points"), [metric, ""])

        answers = iter((yield add))
        found = []
        for (trial, metric, after), rows, fields in zip(wanted, answers, answers, strict=True):
            stream, record = self._keys.points(trial, metric), self._keys.trial(trial, "points")
            with decoding(stream):
                entries = decode_entries(answered(stream, rows))
            packed, common = answered(record, fields)
            if packed is not None:
                with decoding(f"{record} field {metric}"):
                    entries = join_points(decode_points(packed, common or b""), entries)
            last = entry_id(after) if after else (0, 0)
            found.append([entry for entry in entries if entry.id > last or not after])
        return found

    def curves(self, sid: str, wanted: Sequence[tuple[int, str]]) -> list[Curve]:
        """Return the curves of pairs of trial number and metric; takes one round trip.

        All values are of attempt 1; `hpq_views.analysis.history` finds the others.
        """
        asked = [(TrialId(sweep=sid, number=n), m, "") for n, m in wanted]
        entries = ask(self._redis, self._entries(asked))
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

    def log(
        self, trial: TrialId, after: str = "0-0", block_ms: int | None = None
    ) -> tuple[bytes, str]:
        """Return what a trial printed after an entry of its log, and the id of the last entry.

        Waits at most `block_ms` milliseconds for the first entry. Takes one round trip.
        """
        return ask(self._redis, self.log_question(trial, after, block_ms))

    def log_question(
        self, trial: TrialId, after: str = "0-0", block_ms: int | None = None
    ) -> Question[tuple[bytes, str]]:
        """Ask for what a trial printed after an entry of its log, as `log`."""
        key, record = self._keys.trial(trial, "log"), self._keys.trial(trial, "points")

        def add(pipe: Any) -> None:
            # In this order, since the log of an attempt that ends goes from the first to the second
            pipe.xread({key: after}, block=block_ms)
            pipe.hget(record, "#log")

        answer, packed = yield add
        streams = answered(key, answer)
        rows = streams[0][1] if streams else []
        with decoding(f"{record} field #log"):
            printed = decode_log(answered(record, packed) or b"")
        # An entry that was moved between the two is in both, and whole in the first.
        printed.update((entry_id(eid), fields.get(b"d", b"")) for eid, fields in rows)
        found = sorted(entry for entry in printed if entry > entry_id(after))
        if not found:
            return b"", after
        return b"".join(printed[entry] for entry in found), "{}-{}".format(*found[-1])
