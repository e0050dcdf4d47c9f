"""A worker for one trial, as a Kubernetes Job has it: it works until that trial is over, and ends.

Its exit code is the trial's: 0 for finished, pruned or cancelled, 1 for failed; 143 where it was
told to go before, so that nobody takes the Job for done; 75 where another machine may do better.
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
from hpq_worker.process.signals import Stopping

log = logging.getLogger("hpq.worker")
ELSEWHERE = 75  # EX_TEMPFAIL
_LOOK_S = 2.0


def trial_of(settings: Settings) -> TrialId:
    """The trial that HPQ_SWEEP names."""
    sweep, _, number = settings.sweep.partition("/")
    return TrialId(sweep=sweep, number=int(number))


class SingleTrialWorker:
    """Claims one trial as often as it takes: also after another pod that had it was lost."""

    def __init__(self, trial: TrialId, slot: ClaimLoop, reader: StoreReader) -> None:
        self._trial, self._slot, self._reader = trial, slot, reader
        self._waits = ""

    def serve(self, stopping: Stopping) -> None:
        """Work until the trial is over.

        Raises:
            SystemExit: told to stop before, or something is missing on this machine.
            HpqError: it failed, its sweep is held, or this worker cannot run it; says why.
            NotFound: there is no such trial.
        """
        while stopping.level == 0:
            try:
                self._slot.drain()
                if stopping.level == 0 and self._is_over():
                    return
            except RedisError as error:
                self._say(f"Redis: {short_reason(error)}")
            stopping.pause(_LOOK_S)
        raise SystemExit(TOLD_TO_GO)

    def _is_over(self) -> bool:
        trial, sweep = (
            self._reader.trials.get(self._trial),
            self._reader.sweeps.get(self._trial.sweep),
        )
        if trial.state is TrialState.FAILED:
            why = trial.failure.message if trial.failure else "for a reason that was not kept"
            raise HpqError(f"{self._trial} failed: {why}", code="trial-failed")
        if trial.state.is_terminal or sweep.state.is_over:
            log.info("%s is over: %s", self._trial, trial.state)
            return True
        refusals = self._slot.refusals
        if refusals.fault:  # here, but perhaps not on another node
            log.error("%s cannot run here: %s", self._trial, refusals.fault)
            raise SystemExit(ELSEWHERE)
        if self._trial.sweep in refusals.reasons:
            reason = refusals.reasons[self._trial.sweep]
            raise Held(f"{self._trial} cannot run here: {reason}", code="trial-refused")
        if sweep.state is SweepState.HELD:
            raise Held(f"{self._trial}: its sweep is held: {sweep.held}", code="sweep-held")
        where = f"{trial.state} on {trial.worker}" if trial.worker else str(trial.state)
        self._say(f"{where}, its sweep is {sweep.state}")
        return False

    def _say(self, why: str) -> None:
        if why != self._waits:
            self._waits = why
            log.info("waits for %s: %s", self._trial, why)
