"""One worker: claims trials of its class one after another and sees each to its outcome.

The main thread only. What wakes it is an RQ ticket (supervisor); what ends a trial from outside
arrives through the beat thread and the signals.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from redis.exceptions import RedisError

from hpq.codes import Code, Notice
from hpq.connection.client import short_reason
from hpq.domain.attempt import CommitReply, Outcome, Reason, WorkerPresence
from hpq.domain.retry_policy import retry_rule
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Claim, FailureKind
from hpq.errors import HpqError
from hpq.settings import Settings
from hpq.store.trials import TrialStore
from hpq_worker.attempt.attempt import AttemptRunner
from hpq_worker.attempt.execution import Result
from hpq_worker.attempt.outcome import Halt
from hpq_worker.attempt.trust import DISTRUST, Access
from hpq_worker.consumer.backoff import Backoff
from hpq_worker.consumer.run_limit import RunLimit
from hpq_worker.files.garbage import GarbageCollector
from hpq_worker.health.telemetry import Telemetry
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.redis_outage import Outage
from hpq_worker.lease.spool import Spool
from hpq_worker.process.logs import say_end
from hpq_worker.process.signals import Stopping
from hpq_worker.suggest.processes import Suggesters

log = logging.getLogger("hpq.worker")
_RESTS = "takes no further trial until `hpq drain --undo`: somebody drained this worker"
T = TypeVar("T")


class ClaimLoop:
    """The claim loop of one worker."""

    def __init__(
        self,
        settings: Settings,
        store: TrialStore,
        who: WorkerPresence,
        *,
        access: Access,
        attempts: AttemptRunner,
        beats: Heartbeat,
        stopping: Stopping,
        tidy: GarbageCollector,
        outage: Outage,
        suggesters: Suggesters,
        provenance: str,
        vitals: Telemetry,
        errand: RunLimit,
    ) -> None:
        self._settings, self._store, self._who = settings, store, who
        self._access, self._attempts, self._beats = access, attempts, beats
        self._stopping, self._tidy, self._provenance = stopping, tidy, provenance
        self._vitals, self._outage, self._errand = vitals, outage, errand
        self._suggesters, self._unfed = suggesters, set[str]()
        self._outages = outage.times  # seen by this slot
        self._spool = Spool(settings.home, settings.prefix)
        self.refusals = Backoff(access)
        self.trial = ""  # what it runs now; "" when idle
        self.is_resting = False  # a person told it to take nothing more

    @property
    def is_told(self) -> bool:
        """True once this worker was told to stop."""
        return self._stopping.level > 0

    def drain(self) -> int:
        """Claim and run until nothing is left to claim, or until told to stop; how many ran."""
        ran = 0
        while self._errand.may_start():
            if (claim := self._insist(self._claim)) is None:
                self._errand.not_started()
                break
            self.trial, has_trained = str(claim.trial), False
            try:
                has_trained = self._one(claim)
            except Exception as error:  # a fault of ours must not leave a claim that beats for ever
                log.exception("%s", claim.trial)
                why = Notice("worker-fault", f"a fault of this worker: {error!r}")
                self._at_fault(claim, claim.trial.sweep, why)
            finally:
                self.trial = ""
                if not has_trained:
                    self._errand.not_started()
            ran += 1
        return ran

    def _claim(self, nonce: str) -> Claim | None:
        if self._outage.times != self._outages:
            self._outages = self._outage.times
            self._spool.look_again()
        if self._spool.flush(self._store):  # it may hold the result of what would be claimed
            self._tidy.soon()
        was_resting, self.is_resting = self.is_resting, False

        def rest() -> None:
            self.is_resting = True

        claim = self._store.claim(
            self._who,
            nonce=nonce,
            lease_ms=self._settings.lease_ms,
            provenance=self._provenance,
            skip=self.refusals.current(self._store),
            only=self._settings.sweep,
            leave=self._leave,
            feed=self._feed,
            drained=rest,
        )
        if self.is_resting != was_resting:
            log.info(_RESTS if self.is_resting else "takes trials again")
        return claim

    def _feed(self, sid: str) -> None:
        """Let sets be made for a sweep that nobody makes them for."""
        try:
            reason = self._suggesters.feed(self._store.sweep(sid))
        except HpqError as error:
            reason = error.notice
        except OSError as error:
            reason = Notice("worker-fault", str(error))
        if reason is not None:
            if sid not in self._unfed:
                log.warning("sweep %s gets no sets from here: %s", sid, reason)
            self._unfed.add(sid)
            self.refusals.refuse(sid, reason)

    def _leave(self, sid: str) -> None:
        """Say why a newer version's sweep waits; the next claim skips it."""
        try:
            sweep = self._store.sweep(sid)
            reason = self._access.refusal(sweep, None)
        except HpqError as error:
            reason = error.notice
        if reason is not None and sid not in self.refusals.reasons:
            log.warning("sweep %s is left alone: %s", sid, reason)
            self.refusals.refuse(sid, reason)

    def _insist(self, call: Callable[[str], T]) -> T | None:
        """The store's answer, however long Redis is away; None once told to stop.

        The call gets a nonce that stays the same through all tries: a lost reply loses nothing.
        """
        nonce, pause_s = secrets.token_hex(8), 0.1
        while self._stopping.level == 0:
            try:
                answer = call(nonce)
            except RedisError as error:
                self._outage.missed("claims", error)
                self._stopping.pause(pause_s)
                pause_s = min(2.0, pause_s * 2)
            else:
                self._outage.answered("claims")
                return answer
        return None

    # --- one trial ----------------------------------------------------------------------------

    def _one(self, claim: Claim) -> bool:
        """See a trial to its end here; False where it was not trained, by no fault of its own."""
        try:
            read = self._insist(lambda _: self._read(claim.trial.sweep))
        except HpqError as error:
            self._at_fault(claim, claim.trial.sweep, error.notice)
            return False
        if read is None:  # told to stop meanwhile
            self._release(claim, Reason.STOPPING)
            return False
        sweep, reason = read
        if reason is not None:
            log.warning("sweep %s is left alone: %s", sweep.id, reason)
            self.refusals.refuse(sweep.id, reason)
            self._release(claim, Reason.REFUSED)
            if reason.code in DISTRUST:
                with suppress(RedisError):
                    self._store.count_refused_code()
            return False
        log.info("%s attempt %d starts", claim.trial, claim.attempt)
        try:
            result = self._attempts.run(claim, sweep)
        except OSError as error:
            why = Notice("worker-fault", f"cannot start anything here: {error}")
            self._at_fault(claim, sweep.id, why)
            return False
        self._finish(claim, sweep, result)
        outcome = result.outcome
        return outcome is None or not retry_rule(outcome.failure).released

    def _read(self, sid: str) -> tuple[Sweep, Notice | None]:
        """A sweep, and why this worker may not run it."""
        sweep = self._store.sweep(sid)
        return sweep, self._access.refusal(sweep, self._store.code_manifest(sweep.launch.code))

    def _finish(self, claim: Claim, sweep: Sweep, result: Result) -> None:
        outcome = result.outcome
        if outcome is None:
            self._beats.end()
            if result.halt is Halt.STOPPING:
                if self._release(claim, Reason.STOPPING):
                    log.info("%s: told to stop; given back, others go on with it", claim.trial)
            elif result.halt is Halt.UNKNOWN:
                log.warning(
                    "Redis does not know %s any more: removed, or its data lost", claim.trial
                )
            else:
                log.warning("%s attempt %d is another worker's now", claim.trial, claim.attempt)
            return
        if outcome.failure is not None and retry_rule(outcome.failure).released:
            failure = outcome.failure
            is_data = failure.kind is FailureKind.DATA_MISSING
            code: Code = "data-missing" if is_data else "worker-fault"
            self._at_fault(claim, sweep.id, Notice(code, failure.message))
            return
        if (
            self._commit(claim, sweep, outcome) == CommitReply.SUSPECT
            and outcome.failure is not None
        ):
            text = f"others do not fail as it does: {outcome.failure.message}"
            why = Notice("worker-suspect", text)
            log.error("%s: sweep %s is left to other workers: %s", claim.trial, sweep.id, why)
            self.refusals.back_off(sweep.id, why)
        else:
            self.refusals.forgive(sweep.id)

    def _at_fault(self, claim: Claim, sid: str, why: Notice) -> None:
        self._beats.end()
        log.error("%s is given back: %s", claim.trial, why)
        self.refusals.back_off(sid, why)
        is_data = why.code == "data-missing"
        self._release(claim, Reason.DATA_MISSING if is_data else Reason.WORKER_FAULT)

    def _release(self, claim: Claim, reason: Reason) -> bool:
        try:
            return self._store.release(claim, reason) in ("released", "already")
        except RedisError as error:  # the lease ends by itself
            log.warning("%s could not be given back: %s", claim.trial, error)
            return False

    def _commit(self, claim: Claim, sweep: Sweep, outcome: Outcome) -> str:
        """Hand over the last reports and then the result; the disk keeps it while Redis is away."""

        def hand_over() -> CommitReply:
            self._beats.flush()
            return self._store.commit(claim, outcome)

        answer: CommitReply | None = None
        try:
            answer = hand_over()
        except RedisError as error:
            self._outage.kept()
            kept = self._spool.keep(claim, outcome)
            log.warning("%s: Redis: %s; %s", claim.trial, short_reason(error), kept)
            answer = self._insist(lambda _: hand_over())
        if answer is not None:
            if answer is CommitReply.UNKNOWN:  # only a person may drop it
                log.warning("%s: unknown; %s", claim.trial, self._spool.keep(claim, outcome))
            self._spool.settle(claim, answer)
        self._beats.end()
        said: str = answer or "on disk"
        say_end(claim, outcome, said)
        self._vitals.end(outcome, said)
        self._tidy.soon()
        return said
