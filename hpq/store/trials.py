"""The write side: one method a transition, each one script call, safe to send twice.

Both sides import it. Whatever makes a trial claimable tops up the tickets of its class in the same
breath; a crash between the two costs at most one reap interval.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from hpq.domain.attempt import (
    CommitReply,
    HeartbeatReply,
    Outcome,
    Reaped,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.retry_policy import AWAIT_LEASES
from hpq.domain.sweep import SCHEMA, Sweep
from hpq.domain.trial import Claim
from hpq.errors import DecodeError, NotFound
from hpq.store.code import UNSEALED_TTL_S
from hpq.store.control import ROWS, ControlStore
from hpq.store.wire import attempt
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire.fields import flatten

_ROW_PARTS = ("params", "waiting", "ids", "staged", "origin")


class Store(ControlStore):
    """Writes of one prefix on one client.

    `top_up(class, wanted)` mints tickets; a process that may not write RQ's keys passes a no-op.
    """

    # --- enqueue ------------------------------------------------------------------------------

    def add_rows(self, sid: str, first: int, rows: Sequence[tuple[str, bytes]]) -> None:
        """Write parameter sets (JSON, identity) numbered from `first`; invisible until `seal`."""
        for start in range(0, len(rows), ROWS):
            some = [part for row in rows[start : start + ROWS] for part in row]
            self._scripts.run("create", sid, UNSEALED_TTL_S, first + start, *some)

    def seal(self, sweep: Sweep, *, again: bool = False, manifest: str = "") -> str | None:
        """Make a sweep visible; None, or the id of the sweep that has its digest already.

        `manifest` is that of the code which is kept with it, as JSON.
        """
        fields = flatten(sweep_codec.encode_sweep(sweep))
        word, rest = self._scripts.run(
            "seal",
            *fields,
            sweep=sweep.id,
            digest=sweep.digest,
            owner=sweep.owner,
            again=again,
            manifest=manifest,
        )
        if word == "exists":
            return str(rest[0].decode())
        self._tickets(rest[0], rest[1])
        return None

    def discard(self, sid: str) -> None:
        """Forget the rows of an enqueue that will not be sealed; those of a sweep stay."""
        if self._redis.exists(self._keys.sweep(sid)):  # sealed, and the answer was lost
            return
        self._redis.delete(*(self._keys.sweep(sid, part) for part in _ROW_PARTS))

    # --- a worker's ---------------------------------------------------------------------------

    def claim(
        self,
        who: WorkerPresence,
        *,
        nonce: str,
        lease_ms: int,
        provenance: str = "",
        skip: Sequence[str] = (),
        only: str = "",
        leave: Callable[[str], object] = lambda _: None,
        feed: Callable[[str], object] = lambda _: None,
        drained: Callable[[], object] = lambda: None,
    ) -> Claim | None:
        """The next trial for a worker (of one sweep `only`), or None where it may take none.

        `leave` hears of a sweep that was left because a newer version made it, `feed` of one whose
        sets nobody makes, `drained` that a person told this worker to take nothing.
        """
        while True:
            word, rest = self._scripts.run(
                "claim",
                worker_class=who.worker_class,
                worker=who.name,
                host=who.host,
                nonce=nonce,
                lease_ms=lease_ms,
                schema=SCHEMA,
                provenance=provenance,
                skip=list(skip),
                only=only,
            )
            if word == "drained":
                drained()
                return None
            if rest[-1]:
                feed(rest[-1].decode())
            if word == "empty":
                if rest[0]:
                    leave(rest[0].decode())
                return None
            try:
                return attempt.decode_claim(rest, nonce)
            except DecodeError as error:  # nobody can train it; the next one, then
                claim = attempt.blank_claim(rest, nonce)
                self.commit(claim, attempt.unreadable(error))
                nonce += "+"

    def sweep(self, sid: str) -> Sweep:
        """A sweep as a worker needs it: counts are not filled in.

        Raises:
            NotFound: it is gone.
        """
        key = self._keys.sweep(sid)
        row: Any = self._redis.hgetall(key)
        if not row:
            raise NotFound(f"sweep {sid!r} is not there", code="sweep-not-found")
        return sweep_codec.decode_sweep(key, sid, row, 0, 0, 0)

    def there(self, sids: Collection[str]) -> frozenset[str]:
        """Those of some sweeps that the server has."""
        pipe = self._redis.pipeline(transaction=False)
        for sid in sids:
            pipe.exists(self._keys.sweep(sid))
        return frozenset(
            sid for sid, is_there in zip(sids, pipe.execute(), strict=True) if is_there
        )

    def beat(
        self, claim: Claim, who: WorkerPresence, batch: ReportBatch, *, lease_ms: int
    ) -> HeartbeatReply:
        """Extend the lease and hand over a batch (again, if it is the one sent last)."""
        word, _ = self._scripts.run(
            "beat",
            batch.log,
            *attempt.encode_points(batch.points),
            sweep=claim.trial.sweep,
            number=claim.trial.number,
            attempt=claim.attempt,
            nonce=claim.nonce,
            worker=who.name,
            lease_ms=lease_ms,
            **attempt.encode_batch(batch),
        )
        return HeartbeatReply(word)

    def commit(self, claim: Claim, outcome: Outcome) -> CommitReply:
        """Record the end of an attempt, once."""
        word, rest = self._scripts.run(
            "commit",
            sweep=claim.trial.sweep,
            number=claim.trial.number,
            attempt=claim.attempt,
            nonce=claim.nonce,
            **attempt.encode_outcome(outcome),
        )
        self._tickets(rest[0], rest[1])
        return CommitReply(word)

    def release(self, claim: Claim, reason: Reason) -> str:
        """Give a running trial back uncharged; answers released, already, stale or unknown."""
        word, rest = self._scripts.run(
            "release",
            claim.trial.sweep,
            claim.trial.number,
            claim.attempt,
            reason,
            claim.nonce,
        )
        self._tickets(rest[0], rest[1])
        return word

    def reap(
        self, worker_class: str, *, lease_ms: int, lost_max: int, as_of_ms: int | None = None
    ) -> int | None:
        """Take trials whose lease had ended by then (now): how many, or None if settling."""
        reaped = self.take_lost(
            worker_class, lease_ms=lease_ms, lost_max=lost_max, as_of_ms=as_of_ms
        )
        return None if reaped is None else reaped.queued + reaped.ended

    def take_lost(
        self,
        worker_class: str,
        *,
        lease_ms: int,
        lost_max: int,
        as_of_ms: int | None = None,
        every_ms: int = 0,
    ) -> Reaped | None:
        """As `reap`; says also how many of them are queued again, and how many have ended.

        Counts and tickets of the class are put right where nobody did so for `every_ms`.
        """
        word, rest = self._scripts.run(
            "reap",
            worker_class=worker_class,
            lease_ms=lease_ms,
            lost_max=lost_max,
            await_leases=AWAIT_LEASES,
            as_of_ms=as_of_ms or None,
            every_ms=every_ms,
        )
        for i in range(2, len(rest), 2):
            self._tickets(rest[i], rest[i + 1])
        return None if word == "settling" else Reaped(queued=int(rest[0]), ended=int(rest[1]))

    def present(
        self,
        who: WorkerPresence,
        *,
        idle: bool,
        lifetime_ms: int,
        lost: Callable[[], object] = lambda: None,
    ) -> int:
        """Say that a worker is there; answers the server's time in ms.

        `lost` hears that what its attempts run on is not kept.
        """
        fields = flatten(who.fields)
        _, rest = self._scripts.run(
            "presence",
            *fields,
            worker=who.name,
            worker_class=who.worker_class,
            host=who.host,
            idle=idle,
            lifetime_ms=lifetime_ms,
        )
        if rest[1]:
            lost()
        return int(rest[0])

    def absent(self, who: WorkerPresence) -> None:
        """Say that a worker is leaving."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.zrem(self._keys.workers, who.name)
        pipe.zrem(self._keys.worker_class(who.worker_class, "idle"), who.name)
        pipe.delete(self._keys.worker(who.name))
        pipe.execute()
