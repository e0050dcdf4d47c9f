"""Choose the pods to remove: idle ones first, then those whose trial is the youngest.

The ReplicaSet compares the state of pods before their deletion cost; the order here does the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from hpq.domain.status import Worker
from hpq.domain.trial import TrialState, TrialView
from hpq.errors import NotFound
from hpq.store.reader import StoreReader
from hpq_producer.cluster.objects import Pod

LOWEST_COST = -2_000_000_000  # of a drained pod: below every cost that `hpq scale` sets (int32)
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_LOWEST_RANK = (False, -1, False)

Busy = Mapping[str, Sequence[TrialView]]  # running trials by pod; a pod of unknown state has ()


def workers_by_pod(reader: StoreReader, pods: Collection[str]) -> dict[str, list[Worker]]:
    """Return the live workers of these pods, by pod."""
    found = defaultdict(list)
    for worker in reader.workers.live():
        if worker.pod in pods:
            found[worker.pod].append(worker)
    return dict(found)


def running_trials(
    reader: StoreReader, workers: Mapping[str, Sequence[Worker]], claims: Mapping[str, str]
) -> dict[str, list[TrialView]]:
    """Return running trials by pod; `claims`, newer than `workers`, has trials by worker."""
    by_sweep: dict[str, list[int]] = defaultdict(list)
    for worker in (w for many in workers.values() for w in many):
        sweep, _, number = claims.get(worker.name, worker.trial).partition("/")
        if number.isdigit():
            by_sweep[sweep].append(int(number))
    trials: dict[str, TrialView] = {}
    for sweep, numbers in by_sweep.items():
        with suppress(NotFound):  # the sweep was removed meanwhile
            found = reader.trials.get_many(sweep, numbers)
            trials |= {t.worker: t for t in found if t.state is TrialState.RUNNING}
    at_work = {
        pod: [trials[w.name] for w in many if w.name in trials] for pod, many in workers.items()
    }
    return {pod: found for pod, found in at_work.items() if found}


def pods_to_remove(
    pods: Iterable[Pod], busy: Busy, wanted: int, first: Collection[str] = ()
) -> list[Pod]:
    """Return the pods to remove, in order, so that `wanted` remain; `first` before others."""
    newest_first = sorted(_present(pods), key=lambda pod: (pod.made, pod.name), reverse=True)
    line = sorted(
        newest_first,
        key=lambda pod: (*_removal_rank(pod), pod.name not in first, *_age(pod.name, busy)),
    )
    return line[: max(0, len(line) - wanted)]


def _age(pod: str, busy: Busy) -> tuple[bool, float]:
    started_ms = (trial.claimed_ms for trial in busy.get(pod, ()))
    return pod in busy, -max(started_ms, default=math.inf)


def pods_removed_before(pods: Iterable[Pod], going: Collection[str]) -> list[Pod]:
    """Return the pods that a ReplicaSet removes before the last of `going` at any cost."""
    present = _present(pods)
    last = max((_removal_rank(pod) for pod in present if pod.name in going), default=_LOWEST_RANK)
    return [pod for pod in present if pod.name not in going and _removal_rank(pod) < last]


def _present(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.phase != "Terminating"]


def _removal_rank(pod: Pod) -> tuple[bool, int, bool]:
    return bool(pod.node), _PHASES.get(pod.phase, 1), pod.is_ready
