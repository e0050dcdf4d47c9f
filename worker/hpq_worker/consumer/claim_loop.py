"""The claim loop of a worker: claim a trial, run the attempt, commit or release, repeat.

Main thread only. An RQ ticket wakes the loop (rq_worker); requests to end a trial arrive through
the heartbeat thread and the signals.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from redis.exceptions import RedisError

from hpq.domain.attempt import CommitReply, Nothing, Outcome, Reason
from hpq.domain.retry_policy import retry_rule
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Claim, Failure, FailureKind, TrialState
from hpq.errors import BadParams, DecodeError, HpqError
from hpq.gpus import visible
from hpq.notice import Notice, tagged
from hpq.redis.client import short_reason
from hpq.redis.damage import damage
from hpq_worker.attempt.attempt import AttemptRunner
from hpq_worker.attempt.outcome import Result
from hpq_worker.attempt.parts import WorkerParts
from hpq_worker.attempt.trust import DISTRUST
from hpq_worker.consumer.backoff import Backoff
from hpq_worker.consumer.run_limit import RunLimit
from hpq_worker.lease.spool import Spool
from hpq_worker.process import devices
from hpq_worker.process.logs import during, log_end
from hpq_worker.process.protocol import Halt

log = logging.getLogger("hpq.worker")
_DRAINED = tagged("drained; claims no more trials until `hpq drain --undo`", "drained")
_UNDRAINED = tagged("claims trials again", "drain-undone")
_FULL_DISK = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
T = TypeVar("T")


class ClaimLoop:
    """Claims trials of one queue, one after another."""

    def __init__(self, parts: WorkerParts, attempts: AttemptRunner, run_limit: RunLimit) -> None:
        self._parts = parts
        self._attempts = attempts
        self._run_limit = run_limit
        self._settings = parts.settings
        self._store = parts.store
        self._signals = parts.signals
        self._heartbeat = parts.heartbeat
        self._outage = parts.outage
        self._without_suggester = set[str]()  # sweeps for which this worker logged that
        self._outages = self._outage.count  # seen by this loop
        per = parts.settings.gpus_per_trial
        shared = parts.settings.trials_per_gpu
        self._gpus = devices.share(visible(parts.environ), per, shared)
        self._spool = Spool(self._settings.home, self._settings.prefix)
        self.backoff = Backoff(parts.launches)
        self.trial = ""  # that runs now; "" when idle
        self.is_drained = False  # by `hpq drain`

    @property
    def is_stopping(self) -> bool:
        """True once a signal asked this worker to stop."""
        return self._signals.is_stopping

    def drain(self) -> int:
        """Run trials until none can be claimed, or a signal comes; return how many ran."""
        ran = 0
        while self._run_limit.may_start():
            claim = self._retry(self._claim, lambda: self._run_limit.is_idle_too_long)
            if claim is None:
                self._run_limit.not_started()
                break
            self.trial = str(claim.trial)
            has_trained = False
            with during(claim.trial):
                try:
                    has_trained = self._run_trial(claim)
                except Exception as error:  # our own bug must not keep a lease alive for ever
                    log.exception("%s", claim.trial)
                    why = _fault(f"a fault of this worker: {error!r}")
                    self._release_at_fault(claim, claim.trial.sweep, why)
                finally:
                    self.trial = ""
                    self._run_limit.trial_ended(is_stopping=self.is_stopping)
                    if not has_trained:
                        self._run_limit.not_started()
            ran += 1
        return ran

    def _claim(self, nonce: str) -> Claim | None:
        if self._outage.count != self._outages:
            self._outages = self._outage.count
            self._spool.retry_unknown()
        self._spool.flush(self._store)  # it may hold the result of the next claim
        reply = self._store.claim(
            self._parts.worker,
            nonce=nonce,
            lease_ms=self._settings.lease_ms,
            provenance=self._parts.provenance,
            skip=self.backoff.current(),
            only=self._settings.sweep,
            gpus=self._gpus,
            left_ms=self._run_limit.left_ms,
        )
        self._run_limit.short = reply.short if isinstance(reply, Nothing) else ""
        if reply.unfed:
            self._start_suggester(reply.unfed)
        is_drained = reply == Nothing(is_drained=True)
        was_drained = self.is_drained
        self.is_drained = is_drained
        if is_drained != was_drained:
            log.info(_DRAINED if is_drained else _UNDRAINED)
        return reply if isinstance(reply, Claim) else None

    def _start_suggester(self, sid: str) -> None:
        """Start a suggester for a sweep that has none."""
        try:
            sweep = self._parts.launches.sweep(sid)
            # Rows that another key signed, or none, would be refused by the others.
            reason = self._parts.trust.unsigned(sweep)
            reason = reason or self._parts.suggesters.ensure_running(sweep)
        except HpqError as error:
            reason = error.notice
        except OSError as error:
            reason = _fault(str(error))
        except RedisError as error:
            if not (why := damage(error)):
                raise
            reason = Notice("value-unreadable", why)
        if reason is not None:
            if sid not in self._without_suggester:
                log.warning("cannot suggest trials of sweep %s: %s", sid, reason)
            self._without_suggester.add(sid)
            self.backoff.refuse(sid, reason)

    def _retry(
        self, call: Callable[[str], T], gives_up: Callable[[], bool] = lambda: False
    ) -> T | None:
        """Call the store until Redis answers; None once a signal asked this worker to stop.

        Each try passes the same nonce, so that a lost reply loses nothing.
        """
        nonce = secrets.token_hex(8)
        pause_s = 0.1
        while not self.is_stopping:
            self._parts.progress.stamp()
            try:
                answer = call(nonce)
            except RedisError as error:
                self._outage.failed("claims", error)
                if gives_up():
                    return None
                self._signals.pause(pause_s)
                pause_s = min(2.0, pause_s * 2)
            else:
                self._outage.answered("claims")
                return answer
        return None

    # --- one trial ----------------------------------------------------------------------------

    def _run_trial(self, claim: Claim) -> bool:
        """Run one attempt; False if it did not train for a reason that is not the trial's."""
        if claim.unreadable:
            why = Notice("value-unreadable", claim.unreadable)
            self._release_at_fault(claim, claim.trial.sweep, why)
            return False
        try:
            admitted = self._retry(lambda _: self._parts.launches.admit(claim.trial.sweep, claim))
        except DecodeError as error:
            return self._refuse(claim, error.notice)
        except HpqError as error:
            self._release_at_fault(claim, claim.trial.sweep, error.notice)
            return False
        if admitted is None:  # a signal came meanwhile
            self._release(claim, Reason.STOPPING)
            return False
        sweep, reason = admitted
        if reason is not None:
            return self._refuse(claim, reason)
        opened = self._parts.trust.open(sweep, claim)
        if isinstance(opened, Failure):
            return self._fail(claim, sweep, opened)
        log.info("%s attempt %d starts", claim.trial, claim.attempt)
        try:
            result = self._attempts.run(opened, sweep)
        except BadParams as error:  # for the command line; nothing was started
            failure = Failure(kind=FailureKind.BAD_PARAMS, message=str(error))
            return self._fail(claim, sweep, failure)
        except OSError as error:
            why = _fault(f"cannot start the trial on this machine: {error}")
            self._release_at_fault(claim, sweep.id, why)
            return False
        self._finish(claim, sweep, result)
        self._parts.garbage.schedule(claim, has_keep=sweep.keep is not None)
        outcome = result.outcome
        return outcome is None or not retry_rule(outcome.failure).released

    def _refuse(self, claim: Claim, reason: Notice) -> bool:
        """Return a trial of a sweep that this worker may not run, or cannot read."""
        sid = claim.trial.sweep
        log.warning("cannot run sweep %s: %s", sid, reason)
        self.backoff.refuse(sid, reason)
        self._release(claim, Reason.REFUSED)
        if reason.code in DISTRUST:
            with suppress(RedisError):
                self._store.count("code_refused")
        return False

    def _fail(self, claim: Claim, sweep: RunnableSweep, failure: Failure) -> bool:
        """End a trial that cannot start with these parameters; it did not train."""
        self._commit(claim, sweep, Outcome(state=TrialState.FAILED, failure=failure))
        return False

    def _finish(self, claim: Claim, sweep: RunnableSweep, result: Result) -> None:
        outcome = result.outcome
        if outcome is None:
            self._heartbeat.end()
            if result.halt is Halt.STOPPING:
                self._release_stopped(claim, result.overfilled)
            elif result.halt is Halt.UNKNOWN:
                line = "Redis does not know the attempt of %s any more: removed, or lost by Redis"
                log.warning(tagged(line, "trial-unknown"), claim.trial)
            else:
                line = tagged("another worker has claimed %s since attempt %d", "attempt-lost")
                log.warning(line, claim.trial, claim.attempt)
            return
        if outcome.failure is not None and retry_rule(outcome.failure).released:
            failure = outcome.failure
            why = _fault(failure.message)
            if failure.kind is FailureKind.DATA_MISSING:
                why = Notice("data-missing", failure.message)
            self._release_at_fault(claim, sweep.id, why)
            return
        if (
            self._commit(claim, sweep, outcome) == CommitReply.SUSPECT
            and outcome.failure is not None
        ):
            text = f"only this worker fails like this: {outcome.failure.message}"
            why = Notice("worker-suspect", text)
            log.error("%s: this worker pauses sweep %s: %s", claim.trial, sweep.id, why)
            self.backoff.back_off(sweep.id, why)
        else:
            self.backoff.reset(sweep.id)

    def _release_stopped(self, claim: Claim, overfilled: str) -> None:
        reason = Reason.STOPPING
        if overfilled:
            reason = Reason.OVERFILLED
            log.warning("%s: %s", claim.trial, overfilled)
        elif self._run_limit.is_time_up:
            reason = Reason.TIME_UP
        if self._release(claim, reason, overfilled):
            line = tagged("%s: stopped; trial returned to the queue", "trial-returned")
            log.info(line, claim.trial)

    def _release_at_fault(self, claim: Claim, sid: str, reason: Notice) -> None:
        self._heartbeat.end()
        log.error("%s returned to the queue: %s", claim.trial, reason)
        self.backoff.back_off(sid, reason)
        is_data = reason.code == "data-missing"
        self._release(claim, Reason.DATA_MISSING if is_data else Reason.WORKER_FAULT)

    def _release(self, claim: Claim, reason: Reason, overfilled: str = "") -> bool:
        try:
            left_ms = self._run_limit.left_ms or 0
            reply = self._store.release(claim, reason, left_ms, overfilled)
            return reply in ("released", "already")
        except RedisError as error:  # the lease ends by itself
            log.warning("%s: cannot return the trial to the queue: %s", claim.trial, error)
            return False

    def _commit(self, claim: Claim, sweep: RunnableSweep, outcome: Outcome) -> str:
        """Deliver the result with the last reports; the spool keeps it while Redis is away."""

        def deliver() -> CommitReply:
            return self._store.commit(claim, outcome, self._heartbeat.last_batch())

        answer: CommitReply | None = None
        try:
            answer = deliver()
        except RedisError as error:
            self._outage.spooled()
            kept = self._spool.keep(claim, outcome)
            log.warning("%s: Redis: %s; %s", claim.trial, short_reason(error), kept)
            answer = self._retry(lambda _: deliver())
        if answer is not None:
            if answer is CommitReply.UNKNOWN:  # only an operator may drop it
                kept = self._spool.keep(claim, outcome)
                what = "Redis does not know the attempt, or its record is damaged"
                log.warning("%s: %s; %s", claim.trial, what, kept)
            self._spool.remove_answered(claim, answer)
        self._heartbeat.end()
        status: str = answer or "on disk"
        log_end(claim, outcome, sweep.metric, status)
        return status


def _fault(text: str) -> Notice:
    """Return the notice of a fault of this machine; `hpq run` waits while a disk is full."""
    is_full = any(words in text for words in _FULL_DISK)
    return Notice("disk-full" if is_full else "worker-fault", text)
