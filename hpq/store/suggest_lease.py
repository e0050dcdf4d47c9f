"""The lease for making a late-bound sweep's sets, held by one process at a time.

A token fences it: what a holder appends that was taken over comes to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import OutOfMemoryError

from hpq.store.control import TopUp
from hpq.store.keys import Keys
from hpq.store.scripts import Scripts

LEAST_MS = 1_000
Rows = Sequence[tuple[str, bytes]]  # parameters as JSON, identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the holder is told: `ok`, or the word for why it has to leave off.

    `ahead` is how many sets should wait; `rows` how many trials the sweep has.
    """

    word: str
    ahead: int = 0
    rows: int = 0

    @property
    def is_ok(self) -> bool:
        """True where the lease is held and there is more to make."""
        return self.word == "ok"


class SuggestLease:
    """The lease for one sweep, as one process asks for it under its worker's name.

    It is a third of a trial's lease: whoever takes over has but to read, and workers wait.
    """

    def __init__(
        self, redis: Redis, keys: Keys, top_up: TopUp, sid: str, who: str, lease_ms: int
    ) -> None:
        self._scripts, self._top_up = Scripts(redis, keys), top_up
        self._sid, self._who = sid, who
        self._lease_ms = max(LEAST_MS, lease_ms // 3)
        self._token = ""

    @property
    def lease_s(self) -> float:
        """How long it is held at a time."""
        return self._lease_ms / 1000

    def take(self) -> Answer:
        """Take the lease, unless another holds it."""
        self._token = ""
        return self._call(self._lease_ms)

    def extend(self) -> Answer:
        """Hold it for another while."""
        return self._call(self._lease_ms)

    def append(self, first: int, rows: Rows, no_more: str = "", by: str = "") -> Answer:
        """Add sets, numbered from `first`; `no_more` says why these were the last, `by` whose."""
        return self._call(self._lease_ms, first, rows, no_more, by)

    def give_back(self) -> None:
        """Let another take it."""
        if self._token:
            self._call(0)

    def _call(
        self, lease_ms: int, first: int = 0, rows: Rows = (), no_more: str = "", by: str = ""
    ) -> Answer:
        flat = [part for row in rows for part in row]
        word, rest = self._scripts.run(
            "suggest",
            *flat,
            sweep=self._sid,
            who=self._who,
            token=self._token,
            lease_ms=lease_ms,
            no_more=no_more,
            first=first,
            by=by,
        )
        if word not in ("ok", "over"):
            return Answer(word=word)
        self._token = rest[0].decode()
        if rest[1]:
            with suppress(OutOfMemoryError):  # a ticket only wakes
                self._top_up(rest[1].decode(), rest[2])
        return Answer(word=word, ahead=int(rest[3]), rows=int(rest[4]))
