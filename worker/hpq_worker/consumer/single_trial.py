"""A worker for one trial, as in a Kubernetes Job: it ends when that trial is over.

Its exit code is the trial's: 0 for finished, pruned or cancelled; 1 for failed; 143 if a signal
stopped it before, so that the Job does not count as done; 75 if another machine may succeed.
"""

from __future__ import annotations

import logging

from redis.exceptions import RedisError

from hpq.connection.client import short_reason
from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialId, TrialState
from hpq.errors import TOLD_TO_GO, Held, HpqError
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq_worker.consumer.claim_loop import ClaimLoop
from hpq_worker.process.signals import Signals

log = logging.getLogger("hpq.worker")
ELSEWHERE = 75  # EX_TEMPFAIL
_RETRY_S = 2.0


def trial_of(settings: Settings) -> TrialId:
    """Return the trial that HPQ_SWEEP names."""
    sweep, _, number = settings.sweep.partition("/")
    return TrialId(sweep=sweep, number=int(number))


class SingleTrialWorker:
    """Claims one trial until it is over, also after another pod that ran it was lost."""

    def __init__(self, trial: TrialId, loop: ClaimLoop, reader: StoreReader) -> None:
        self._trial, self._loop, self._reader = trial, loop, reader
        self._logged = ""

    def serve(self, signals: Signals) -> None:
        """Serve until the trial is over.

        Raises:
            SystemExit: a signal came first, or another machine may succeed.
            HpqError: the trial failed, its sweep is held, or this worker cannot run it.
            NotFound: the trial does not exist.
        """
        while not signals.is_stopping:
            try:
                self._loop.drain()
                if not signals.is_stopping and self._is_over():
                    return
            except RedisError as error:
                self._log_wait(f"Redis: {short_reason(error)}")
            signals.pause(_RETRY_S)
        raise SystemExit(TOLD_TO_GO)

    def _is_over(self) -> bool:
        trial, sweep = (
            self._reader.trials.get(self._trial),
            self._reader.sweeps.get(self._trial.sweep),
        )
        if trial.state is TrialState.FAILED:
            why = trial.failure.message if trial.failure else "no reason was recorded"
            raise HpqError(f"{self._trial} failed: {why}", code="trial-failed")
        if trial.state.is_terminal or sweep.state.is_over:
            log.info("%s is %s; no more work, exiting", self._trial, trial.state)
            return True
        backoff = self._loop.backoff
        if backoff.fault:  # here, but perhaps not on another node
            log.error("%s cannot run here: %s", self._trial, backoff.fault)
            raise SystemExit(ELSEWHERE)
        if self._trial.sweep in backoff.reasons:
            reason = backoff.reasons[self._trial.sweep]
            raise Held(f"{self._trial} cannot run here: {reason}", code="trial-refused")
        if sweep.state is SweepState.HELD:
            raise Held(f"{self._trial}: its sweep is held: {sweep.held}", code="sweep-held")
        where = f"{trial.state} on {trial.worker}" if trial.worker else str(trial.state)
        self._log_wait(f"{where}, its sweep is {sweep.state}")
        return False

    def _log_wait(self, why: str) -> None:
        if why != self._logged:
            self._logged = why
            log.info("waiting for %s: %s", self._trial, why)
