"""Which pods go when there are to be fewer: idle ones first, then those with the newest checkpoint.

The ReplicaSet decides, by what it sees of the pods and by their deletion cost. The costs and the
order here follow its rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from hpq.domain.snapshot import Worker
from hpq.domain.trial import Trial, TrialState
from hpq.errors import NotFound
from hpq.store.reader import StoreReader
from hpq_producer.cluster.objects import Pod

_BUSY = 1_000  # more than any idle pod costs
_MOST = 2_000_000_000  # the annotation is an int32
FIRST = -_MOST  # the cost of a pod that was drained: below whatever `hpq scale` marks
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_LOWEST = (False, -1, False)

Busy = Mapping[str, Sequence[Trial]]  # running trials by pod; a pod of unknown state has ()


def workers_in(reader: StoreReader, pods: Collection[str]) -> dict[str, list[Worker]]:
    """Live workers by their pod, of these pods."""
    found = defaultdict(list)
    for worker in reader.workers.live():
        if worker.pod in pods:
            found[worker.pod].append(worker)
    return dict(found)


def running(
    reader: StoreReader, workers: Mapping[str, Sequence[Worker]], claims: Mapping[str, str]
) -> dict[str, list[Trial]]:
    """Running trials by pod; `claims` names trials of workers that are newer than `workers`."""
    by_sweep: dict[str, list[int]] = defaultdict(list)
    for worker in (w for many in workers.values() for w in many):
        sweep, _, number = claims.get(worker.name, worker.trial).partition("/")
        if number.isdigit():
            by_sweep[sweep].append(int(number))
    trials: dict[str, Trial] = {}
    for sweep, numbers in by_sweep.items():
        with suppress(NotFound):  # the sweep was removed meanwhile
            found = reader.trials.get_many(sweep, numbers)
            trials |= {t.worker: t for t in found if t.state is TrialState.RUNNING}
    at_work = {
        pod: [trials[w.name] for w in many if w.name in trials] for pod, many in workers.items()
    }
    return {pod: found for pod, found in at_work.items() if found}


def cost(trials: Sequence[Trial], now_ms: int) -> int:
    """The deletion cost of a busy pod: its trials' seconds since their last checkpoint or start."""
    unsaved_ms = sum(max(0, now_ms - max(t.checkpoint_ms, t.claimed_ms)) for t in trials)
    return min(_MOST, _BUSY + unsaved_ms // 1000)


def victims(
    pods: Iterable[Pod], costs: Mapping[str, int], wanted: int, first: Collection[str] = ()
) -> list[Pod]:
    """The pods that go so that `wanted` are left, the first to go first; `first` before others."""
    newest_first = sorted(_present(pods), key=lambda pod: (pod.made, pod.name), reverse=True)
    line = sorted(
        newest_first,
        key=lambda pod: (*_standing(pod), pod.name not in first, costs.get(pod.name, 0)),
    )
    return line[: max(0, len(line) - wanted)]


def in_front(pods: Iterable[Pod], going: Collection[str]) -> list[Pod]:
    """The pods that a ReplicaSet takes before the last of `going`, whatever they cost."""
    there = _present(pods)
    last = max((_standing(pod) for pod in there if pod.name in going), default=_LOWEST)
    return [pod for pod in there if pod.name not in going and _standing(pod) < last]


def _present(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.phase != "Terminating"]


def _standing(pod: Pod) -> tuple[bool, int, bool]:
    return bool(pod.node), _PHASES.get(pod.phase, 1), pod.is_ready
