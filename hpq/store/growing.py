"""What is done to the number of a sweep's trials, and to those that need not run at all.

A method a transition, each safe to send twice. Rows are staged where nobody looks, and one script
call takes all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice

from redis import Redis
from redis.exceptions import OutOfMemoryError

from hpq.domain.attempt import Capped
from hpq.domain.trial import Trial
from hpq.errors import UserError
from hpq.store.code import UNSEALED_TTL_S
from hpq.store.control import ROWS, TopUp
from hpq.store.keys import Keys
from hpq.store.scripts import Scripts, judge
from hpq.store.trials import Store
from hpq.store.wire.fields import dumps
from hpq.store.wire.trial import encode_result

Row = tuple[str, bytes]  # parameters as JSON, identity


class Growing:
    """Changes how many trials sweeps of one prefix have."""

    def __init__(self, redis: Redis, keys: Keys, top_up: TopUp) -> None:
        self._store = Store(redis, keys, top_up)
        self._redis, self._keys, self._top_up = redis, keys, top_up
        self._scripts = Scripts(redis, keys)

    def _tickets(self, worker_class: bytes, wanted: int) -> None:
        if wanted > 0:
            with suppress(OutOfMemoryError):  # a ticket only wakes
                self._top_up(worker_class.decode(), wanted)

    def cap(self, sid: str, most: int) -> Capped:
        """Bound how many trials a sweep has (0: not at all), also while it runs.

        Raises:
            NotFound: there is no such sweep.
            UserError: it is stopped or cancelled.
        """
        word, rest = self._scripts.run("cap", sid, most)
        judge(sid, word)
        self._tickets(rest[0], rest[1])
        return Capped(dropped=int(rest[2]), back=int(rest[3]), trials=int(rest[4]))

    def cancel(self, sid: str, numbers: Sequence[int] = ()) -> int:
        """Cancel the trials with these numbers (none: the whole sweep); answers how many.

        Raises:
            NotFound: there is no such sweep.
        """
        if not numbers:
            return self._store.control(sid, "cancel")
        some = (numbers[i : i + ROWS] for i in range(0, len(numbers), ROWS))
        return sum(self._store.control(sid, "cancel", *chunk) for chunk in some)

    def grow(
        self,
        sid: str,
        rows: Iterable[Row],
        file: str,
        *,
        varying: Sequence[str],
        digest: str,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Add rows to a sweep, all visible in one step; return how many were added.

        `file` is what `wire_growth.encode_file` makes. Rows that another file has added meanwhile
        are left out.

        Raises:
            NotFound: there is no such sweep.
            UserError: it is stopped or cancelled, or this took longer than an hour.
        """
        stage = f"{sid}-{secrets.token_hex(8)}"
        try:
            pairs = ((str(n), mark + text.encode()) for n, (text, mark) in enumerate(rows, 1))
            count = self._stage(stage, pairs, progress)
            told = dumps(list(varying))
            word, rest = self._scripts.run(
                "grow",
                sweep=sid,
                stage=stage,
                count=count,
                file=file,
                varying=told,
                digest=digest,
            )
        except BaseException:
            self._redis.delete(self._keys.sweep(stage, "staged"))
            raise
        judge(sid, word)
        if word == "torn":
            raise UserError(
                f"{sid}: the new rows expired before they were whole; do it again",
                code="rows-expired",
            )
        self._tickets(rest[0], rest[1])
        return int(rest[2])

    def stage_results(self, sid: str, results: Iterable[tuple[int, Trial]]) -> int:
        """Write, for a sweep that is yet to be sealed, trials whose results it begins with.

        Each is given with the number of the trial that it is of; answers how many.
        """
        pairs = ((str(n), encode_result(trial).encode()) for n, trial in results)
        return self._stage(sid, pairs)

    def _stage(
        self,
        stage: str,
        pairs: Iterable[tuple[str, bytes]],
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        every, count = iter(pairs), 0
        while some := list(islice(every, ROWS)):
            flat = [part for pair in some for part in pair]
            self._scripts.run("stage", stage, UNSEALED_TTL_S, *flat)
            count += len(some)
            progress(count)
        return count
