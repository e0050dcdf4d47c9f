"""Which pods go when there are to be fewer, and what that throws away. Pure.

The ReplicaSet decides, by what it sees of the pods and by their deletion cost. So the costs are
set such that it takes idle ones first and then those that lose least, and the same order is
followed here, so that what is said before is what happens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from producer.cluster.objects import Pod

_BUSY = 1_000  # more than any idle pod costs
_MOST = 2_000_000_000  # the annotation is an int32
FIRST = -_MOST  # the cost of a pod that was drained: below whatever `hpq scale` marks
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_LOWEST = (False, -1, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """A running trial, in milliseconds: for how long, and since its last checkpoint or start.

    Or what cannot be told: then the pod's name stands for the trial.
    """

    trial: str
    ran_ms: int
    unsaved_ms: int
    has_checkpoint: bool
    is_known: bool = True


def unknown(pod: str) -> Stake:
    """A pod may run something, but nothing tells what."""
    return Stake(trial=pod, ran_ms=0, unsaved_ms=0, has_checkpoint=False, is_known=False)


Stakes = Mapping[str, Sequence[Stake]]  # by the pod's name


@dataclass(slots=True)
class Agreement:
    """What somebody agreed to stop: trials, and in their pods whatever loses no more.

    A short trial may end while the question is read, and its pod then has the next one.
    """

    trials: set[str] = field(default_factory=set)
    limits_ms: dict[str, int] = field(default_factory=dict)

    def add(self, stops: Stakes) -> None:
        """Agree to all of these."""
        for pod, stakes in stops.items():
            self.trials |= {stake.trial for stake in stakes}
            lost_ms = sum(stake.unsaved_ms for stake in stakes)
            self.limits_ms[pod] = max(lost_ms, self.limits_ms.get(pod, 0))

    def covers(self, pod: str, stakes: Sequence[Stake]) -> bool:
        """True where that was agreed to for this pod."""
        fresh = [stake for stake in stakes if stake.trial not in self.trials]
        lost_ms = sum(stake.unsaved_ms for stake in fresh)
        return not fresh or (
            all(stake.is_known for stake in fresh) and lost_ms <= self.limits_ms.get(pod, -1)
        )

    def covers_all(self, stops: Stakes) -> bool:
        """True where nothing is among these that was not agreed to."""
        return all(self.covers(pod, stakes) for pod, stakes in stops.items())


def cost(stakes: Sequence[Stake]) -> int:
    """The deletion cost of a pod: what its end throws away, then how long it has been busy."""
    if not stakes:
        return 0
    lost_s = sum(stake.unsaved_ms for stake in stakes) // 1000
    ran_s = max(stake.ran_ms for stake in stakes) // 1000
    return min(_MOST, _BUSY + 100 * lost_s + min(99, ran_s // 600))


def victims(
    pods: Iterable[Pod], stakes: Stakes, wanted: int, first: Collection[str] = ()
) -> list[Pod]:
    """The pods that go so that so many are left, the first to go first; `first` before others."""
    there = [pod for pod in pods if pod.phase != "Terminating"]
    line = sorted(order(there, stakes), key=lambda pod: (*_standing(pod), pod.name not in first))
    return line[: max(0, len(there) - wanted)]


def in_front(pods: Iterable[Pod], going: Collection[str]) -> list[Pod]:
    """The pods that a ReplicaSet takes before the last of `going`, whatever they cost."""
    there = [pod for pod in pods if pod.phase != "Terminating"]
    last = max((_standing(pod) for pod in there if pod.name in going), default=_LOWEST)
    return [pod for pod in there if pod.name not in going and _standing(pod) < last]


def order(pods: Iterable[Pod], stakes: Stakes) -> list[Pod]:
    """As a ReplicaSet takes them when their costs are set: the first to go first."""
    newest_first = sorted(pods, key=lambda pod: (pod.made, pod.name), reverse=True)
    return sorted(newest_first, key=lambda pod: (*_standing(pod), cost(stakes.get(pod.name, ()))))


def _standing(pod: Pod) -> tuple[bool, int, bool]:
    return bool(pod.node), _PHASES.get(pod.phase, 1), pod.is_ready
