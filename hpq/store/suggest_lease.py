"""The lease for generating the trials of a late-bound sweep; one process holds it at a time.

A token fences the lease: the server rejects what a process appends after another took the lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpq.store.scripts import StoreContext
from hpq.store.wire.row import NewRow, SignRow, stored, unsigned

_MIN_LEASE_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReply:
    """A reply to the holder: `ok`, or the word that says why it must end.

    `ahead` is how many trials should be queued; `rows` is how many trials the sweep has.
    """

    word: str
    ahead: int = 0
    rows: int = 0

    @property
    def is_ok(self) -> bool:
        """True if this process holds the lease and more trials are wanted."""
        return self.word == "ok"


class SuggestLease:
    """The lease for one sweep, as one process requests it in the name of its worker.

    It lasts a third of a trial's lease: workers wait for suggestions, and a new holder only has
    to read the history.
    """

    def __init__(
        self,
        context: StoreContext,
        sid: str,
        worker: str,
        lease_ms: int,
        sign: SignRow = unsigned,
    ) -> None:
        self._context = context
        self._sid = sid
        self._worker = worker
        self._sign = sign
        self._lease_ms = max(_MIN_LEASE_MS, lease_ms // 3)
        self._token = ""

    @property
    def lease_s(self) -> float:
        """How long the lease lasts, in seconds."""
        return self._lease_ms / 1000

    def acquire(self) -> LeaseReply:
        """Request the lease; another process may hold it."""
        self._token = ""
        return self._call(self._lease_ms)

    def renew(self) -> LeaseReply:
        """Hold the lease for another `lease_s`."""
        return self._call(self._lease_ms)

    def append(
        self, first: int, rows: Sequence[NewRow], no_more: str = "", by: str = ""
    ) -> LeaseReply:
        """Add trials numbered from `first`, and renew the lease.

        `by` names the sampler that generated them, and why if it is not the sweep's own; `no_more`
        gives the reason if they are the last.
        """
        return self._call(self._lease_ms, first, rows, no_more, by)

    def release(self) -> None:
        """Let another process take the lease."""
        if self._token:
            self._call(0)

    def _call(
        self,
        lease_ms: int,
        first: int = 0,
        rows: Sequence[NewRow] = (),
        no_more: str = "",
        by: str = "",
    ) -> LeaseReply:
        flat = [part for pair in stored(rows, first, self._sign) for part in pair]
        reply, rest = self._context.scripts.run(
            "suggest",
            *flat,
            sweep=self._sid,
            suggester=self._worker,
            token=self._token,
            lease_ms=lease_ms,
            no_more=no_more,
            first=first,
            by=by,
        )
        if reply not in ("ok", "over"):
            return LeaseReply(word=reply)
        self._token = rest[0].decode()
        self._context.mint(rest[1], rest[2])
        return LeaseReply(word=reply, ahead=int(rest[3]), rows=int(rest[4]))
