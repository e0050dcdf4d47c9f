"""What the workers in pods are at, as Redis has it, and what an end would throw away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from hpq.errors import NotFound
from hpq.snapshot import Worker
from hpq.trial import Trial, TrialState
from hpq.view import View
from producer.cluster.victims import Stake

NOTHING: Mapping[str, str] = {}


def workers_in(view: View, pods: Collection[str]) -> dict[str, list[Worker]]:
    """Live workers by their pod, of these pods."""
    found = defaultdict(list)
    for worker in view.workers():
        if worker.pod in pods:
            found[worker.pod].append(worker)
    return dict(found)


def stakes_of(
    view: View, workers: Mapping[str, Sequence[Worker]], told: Mapping[str, str] = NOTHING
) -> dict[str, list[Stake]]:
    """By pod, the trials that its workers run; `told` is what some of them were found at since."""
    trials = {w.name: told.get(w.name, w.trial) for many in workers.values() for w in many}
    found = {t.worker: t for t in read_trials(view, set(trials.values()))}
    now_ms = view.now_ms()
    return {
        pod: [stake_of(found[w.name], now_ms) for w in many if w.name in found]
        for pod, many in workers.items()
    }


def read_trials(view: View, names: Iterable[str]) -> list[Trial]:
    """Those of some trials that run now; of whatever sweeps."""
    by_sweep: dict[str, list[int]] = defaultdict(list)
    for name in names:
        sweep, _, number = name.partition("/")
        if number.isdigit():
            by_sweep[sweep].append(int(number))
    found: list[Trial] = []
    for sweep, numbers in by_sweep.items():
        found += _running(view, sweep, numbers)
    return found


def _running(view: View, sweep: str, numbers: Sequence[int]) -> list[Trial]:
    try:
        return [t for t in view.trials(sweep, numbers) if t.state is TrialState.RUNNING]
    except NotFound:  # removed meanwhile
        return []


def stake_of(trial: Trial, now_ms: int) -> Stake:
    """What its end now would throw away, at most: a graceful one may still save it."""
    saved = trial.checkpoint_ms > trial.claimed_ms
    since = trial.checkpoint_ms if saved else trial.claimed_ms
    return Stake(
        trial=str(trial.id),
        ran_ms=max(0, now_ms - trial.claimed_ms),
        unsaved_ms=max(0, now_ms - since),
        has_checkpoint=saved,
    )
