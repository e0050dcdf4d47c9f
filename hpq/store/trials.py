"""Transitions of trials that workers request: claim, heartbeat, commit, release, reap.

One method a transition, each one script call that may be sent twice. A call that makes a trial
claimable also mints tickets for its queue; a crash between the two costs at most one
HPQ_REAP_S.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import OutOfMemoryError

from hpq.domain.attempt import (
    AttachReply,
    CommitReply,
    HeartbeatReply,
    IdleReply,
    Nothing,
    Outcome,
    PresenceReply,
    Reaped,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.retry_policy import AWAIT_LEASES, OVERFILLED_MAX
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Artifacts, Claim, TrialId
from hpq.errors import DecodeError, no_sweep
from hpq.redis.damage import answered
from hpq.store.scripts import StoreContext
from hpq.store.wire import attempt
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire.fields import flatten
from hpq.store.worker_reader import clock_ms, memory_of

_NOTICE_TTL_S = 30 * 86_400
_LOOK_MS = 4_000  # below the default of HPQ_REAP_S: a lone worker looks at each reap


class TrialStore:
    """The worker's half of the store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts

    def noticed(self, sids: Sequence[str]) -> tuple[list[str], int]:
        """Return the state that the last notice of each sweep told, or "", and the server's time.

        The time is in ms.
        """
        pipe = self._redis.pipeline(transaction=False)
        for sid in sids:
            pipe.get(self._keys.notice(sid))
        pipe.time()
        *found, now = pipe.execute(raise_on_error=False)
        told = [""] * len(sids)
        for i, sid in enumerate(sids):
            with suppress(DecodeError):  # of another type: the other states are returned
                told[i] = (answered(self._keys.notice(sid), found[i]) or b"").decode(
                    "utf-8", "replace"
                )
        return told, clock_ms(answered("", now))

    def take_notice(self, sid: str, state: str) -> bool:
        """Return True for the one worker that must send a notice of a sweep's state."""
        key = self._keys.notice(sid)
        with suppress(OutOfMemoryError):  # the next look finds the same state
            before: Any = self._redis.set(key, state, get=True, ex=_NOTICE_TTL_S)
            return bool(before != state.encode())
        return False

    def drop_notice(self, sid: str) -> None:
        """Let the same notice be sent again: the sweep has left that state."""
        self._redis.delete(self._keys.notice(sid))

    def take_look(self, queue: str) -> bool:
        """Return True for the one worker of a queue that must look for notices now."""
        key = self._keys.queue(queue, "checked")
        with suppress(OutOfMemoryError):  # then no notice could be taken, either
            return bool(self._redis.set(key, "1", nx=True, px=_LOOK_MS))
        return False

    def claim(
        self,
        who: WorkerPresence,
        *,
        nonce: str,
        lease_ms: int,
        provenance: str = "",
        skip: Sequence[str] = (),
        only: str = "",
        no_starts: bool = False,
        gpus: float = 1,
        left_ms: int | None = None,
    ) -> Claim | Nothing:
        """Claim the next trial (of the sweep `only`, if given).

        Args:
            nonce: Identifies this call: sent twice, it returns the same claim.
            lease_ms: How long the claim is valid without a heartbeat.
            provenance: Digest of the record of what the worker runs on.
            skip: Ids of sweeps that this worker cannot run.
            no_starts: Skip trials that begin at the checkpoint of another trial.
            gpus: How many GPUs a trial has here, for budgets and limits; 1 also on a CPU.
            left_ms: Time until this worker is stopped; a trial that needs more is not claimed.

        Raises:
            DecodeError: the reply names a sweep with an invalid id.
        """
        reply, rest = self._scripts.run(
            "claim",
            queue=who.queue,
            worker=who.name,
            host=who.host,
            nonce=nonce,
            lease_ms=lease_ms,
            provenance=provenance,
            skip=list(skip),
            only=only,
            no_starts=no_starts or None,
            gpus=None if gpus == 1 else float(gpus),
            left_ms=left_ms,
        )
        return attempt.decode_claim(reply, rest, nonce)

    def sweep(self, sid: str) -> RunnableSweep:
        """Read what a worker needs of a sweep.

        Raises:
            NotFound: the sweep does not exist.
            DecodeError: it cannot be decoded.
        """
        key = self._keys.sweep(sid)
        pipe = self._redis.pipeline(transaction=False)
        pipe.hgetall(key)
        row = answered(key, pipe.execute(raise_on_error=False)[0])
        if not row:
            raise no_sweep(sid)
        return sweep_codec.decode_runnable(key, sid, row)

    def existing(self, sids: Collection[str]) -> frozenset[str]:
        """Return those of these sweeps that the server has."""
        pipe = self._redis.pipeline(transaction=False)
        for sid in sids:
            pipe.exists(self._keys.sweep(sid))
        return frozenset(sid for sid, found in zip(sids, pipe.execute(), strict=True) if found)

    def count(self, what: str) -> None:
        """Count what happened to a worker, such as `code_refused`, for metrics."""
        self._redis.hincrby(self._keys.counters, what, 1)

    def keep_provenance(self, digest: str, record: str) -> None:
        """Write the record of what a worker's attempts run on (JSON), under its digest."""
        self._scripts.run("keep_ran_on", digest, record)

    def beat(
        self, claim: Claim, who: WorkerPresence, batch: ReportBatch, *, lease_ms: int
    ) -> HeartbeatReply:
        """Renew the lease of a claim and write a batch of reports (once, if sent again)."""
        reply, _ = self._scripts.run(
            "beat",
            *attempt.encode_rows(batch),
            sweep=claim.trial.sweep,
            number=claim.trial.number,
            attempt=claim.attempt,
            nonce=claim.nonce,
            worker=who.name,
            lease_ms=lease_ms,
            **attempt.encode_batch(batch),
        )
        return HeartbeatReply(reply)

    def commit(
        self, claim: Claim, outcome: Outcome, last: ReportBatch | None = None
    ) -> CommitReply:
        """Write the outcome of an attempt, once, and the last batch of its reports."""
        reply, rest = self._scripts.run(
            "commit",
            *(attempt.encode_rows(last) if last else ()),
            sweep=claim.trial.sweep,
            number=claim.trial.number,
            attempt=claim.attempt,
            nonce=claim.nonce,
            **attempt.encode_outcome(outcome, last),
        )
        self._context.mint(rest[0], rest[1])
        return CommitReply(reply)

    def attach_files(self, claim: Claim, artifacts: Artifacts) -> AttachReply:
        """Name files of an ended attempt that its store did not take at once, once."""
        reply, _ = self._scripts.run(
            "attach_files",
            sweep=claim.trial.sweep,
            number=claim.trial.number,
            attempt=claim.attempt,
            nonce=claim.nonce,
            artifacts=attempt.encode_files(artifacts),
        )
        return AttachReply(reply)

    def release(self, claim: Claim, reason: Reason, left_ms: int = 0, overfilled: str = "") -> str:
        """Requeue a running trial; the attempt does not count as a failure.

        `left_ms` is the rest of the worker's time if the reason is that its time is up.
        `overfilled` says which volume is how full if that is the reason: the trial is then poison
        after `OVERFILLED_MAX` such returns.

        Returns:
            `released`, `poison`, `already`, `stale` or `unknown`.
        """
        reply, rest = self._scripts.run(
            "release",
            sweep=claim.trial.sweep,
            number=claim.trial.number,
            attempt=claim.attempt,
            reason=reason,
            nonce=claim.nonce,
            left_ms=left_ms or None,
            overfilled=overfilled or None,
            overfilled_max=OVERFILLED_MAX,
        )
        self._context.mint(rest[0], rest[1])
        return reply

    def reap(
        self,
        queue: str,
        *,
        lease_ms: int,
        lost_max: int,
        as_of_ms: int | None = None,
        every_ms: int = 0,
        dead: Collection[tuple[TrialId, str]] = (),
    ) -> Reaped | None:
        """Requeue or fail trials whose lease expired before `as_of_ms` (None: now).

        The leases of `dead` expire at once: attempts whose process is known to be dead, each as its
        trial and `Claim.token`. Counts and tickets of the queue are repaired if no reaper has done
        so for `every_ms`.

        Returns:
            How many trials were queued again and how many ended; None while the server settles.
        """
        reply, rest = self._scripts.run(
            "reap",
            queue=queue,
            lease_ms=lease_ms,
            lost_max=lost_max,
            await_leases=AWAIT_LEASES,
            as_of_ms=as_of_ms or None,
            every_ms=every_ms,
            dead=[f"{trial}/{token}" for trial, token in dead] or None,
        )
        for i in range(2, len(rest), 2):
            self._context.mint(rest[i], rest[i + 1])
        return None if reply == "settling" else Reaped(queued=int(rest[0]), ended=int(rest[1]))

    def present(
        self,
        who: WorkerPresence,
        *,
        idle: bool,
        lifetime_ms: int,
    ) -> PresenceReply:
        """Write the presence record of a worker."""
        fields = flatten(who.fields)
        _, rest = self._scripts.run(
            "presence",
            *fields,
            worker=who.name,
            queue=who.queue,
            host=who.host,
            idle=idle,
            lifetime_ms=lifetime_ms,
        )
        return PresenceReply(now_ms=int(rest[0]), lacks_provenance=bool(rest[1]))

    def needs_reaper(self, queue: str) -> bool:
        """Return whether a queue has trials that may start, or that a stop has left."""
        return bool(self._redis.exists(self._keys.queue(queue, "pending")))

    def still_idle(self, who: WorkerPresence, at_ms: int) -> IdleReply | None:
        """Record that an idle worker lives at a time of the server.

        Returns:
            None if the server does not know the worker, or is full.
        """
        pipe = self._redis.pipeline(transaction=False)
        pipe.zadd(self._keys.workers, {who.name: at_ms}, xx=True, ch=True)
        pipe.zrange(self._keys.leases, 0, 0, withscores=True)
        pipe.info()  # of all sections: Redis 6.2 takes one name or none
        try:
            is_known, first, info = pipe.execute()
        except OutOfMemoryError:  # `presence` and `reap`, which makes room, go on
            return None
        if not is_known:
            return None
        return IdleReply(
            now_ms=int(info.get("server_time_usec", 1000 * at_ms)) // 1000,
            run_id=info.get("run_id", ""),
            lease_end_ms=float(first[0][1]) if first else math.inf,
            is_short=memory_of(info).is_short,
        )

    def absent(self, who: WorkerPresence) -> None:
        """Delete the presence record of a worker that exits."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.zrem(self._keys.workers, who.name)
        pipe.zrem(self._keys.queue(who.queue, "idle"), who.name)
        pipe.delete(self._keys.worker(who.name))
        pipe.execute()
