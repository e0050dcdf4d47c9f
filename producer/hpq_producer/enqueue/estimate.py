"""Estimate the duration of trials from earlier ones, for `hpq plan`; starts no server."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialState, TrialView
from hpq.errors import HpqError
from hpq.store.reader import StoreReader
from hpq_producer.embedded_redis.state import ServerHome
from hpq_producer.enqueue import provenance
from hpq_producer.enqueue.reuse import Reuse, ReuseCriteria, sweeps_of_same_code
from hpq_producer.enqueue.submission import Submission
from hpq_producer.session import load_settings, open_session

_MAX_TRIALS = 2_000  # trials read, newest sweeps first
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationEstimate:
    """The median duration of `trials` finished trials, in milliseconds.

    `gpus` is the number of GPUs of each; 0 for CPU trials.
    """

    median_ms: float
    trials: int
    same_code: bool  # False: edited code of the same program or trainer
    gpus: int
    sweep: Sweep  # the newest of their sweeps

    def hours(self, count: int) -> float:
        """Return the GPU hours, or worker hours without GPUs, of `count` trials."""
        return count * self.median_ms * max(1, self.gpus) / _HOUR_MS


def estimate_duration(submission: Submission) -> DurationEstimate | str | None:
    """Return the estimate, None if no trial is known, or the error if Redis is out of reach."""
    try:
        settings = load_settings()
        if not settings.redis_url and not ServerHome.of(settings.home).data_bytes():
            return None
        launch, owner = submission.code.launch, submission.spec.owner or settings.user
        place = provenance.local_code_location(launch, owner, submission.code.folder)
        criteria = ReuseCriteria(launch=launch, location=place)
        with open_session() as session:
            for which in Reuse:
                trials = list(islice(_finished(session.reader, criteria, which), _MAX_TRIALS))
                if trials:
                    return _summarize(session.reader, trials, which, settings.gpus_per_trial)
    except HpqError as error:
        return str(error)
    return None


def _finished(reader: StoreReader, criteria: ReuseCriteria, which: Reuse) -> Iterator[TrialView]:
    for sweep in sweeps_of_same_code(reader, criteria, which):
        for trial in reader.trials.all(sweep.id) if sweep.counts.finished else ():
            if trial.state is TrialState.FINISHED and not trial.reused:
                yield trial


def _summarize(
    reader: StoreReader, trials: list[TrialView], which: Reuse, gpus: int
) -> DurationEstimate:
    ran_on = reader.trials.provenance(trials[0].provenance)
    return DurationEstimate(
        median_ms=statistics.median(trial.total_ms for trial in trials),
        trials=len(trials),
        same_code=which is Reuse.SAME_CODE,
        gpus=gpus if ran_on.get("gpus") else 0,
        sweep=reader.sweeps.get(trials[0].id.sweep),
    )
