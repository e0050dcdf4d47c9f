"""Change the number of pods of a worker class: idle pods go before busy ones.

A pod that was idle when it was chosen may be handed a trial before it is deleted. So the workers
of the chosen pods are drained first, for a minute.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hpq.domain.snapshot import Worker
from hpq.errors import Held, NotFound
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq_producer.cluster.api import Api
from hpq_producer.cluster.objects import COST, Pod, Workers
from hpq_producer.cluster.pods import Crew, look
from hpq_producer.cluster.scale.plan import Busy, cost, running, victims, workers_in
from hpq_producer.connection_record import kubectl_in

DRAIN_MS = 60_000  # how long chosen workers claim nothing, if no deletion follows
_SETTLE_S = 20.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `hpq scale` would do: these pods go, the first to go first."""

    workers: Workers
    wanted: int
    pods: tuple[Pod, ...]  # all of the class, but those that are going already
    going: tuple[Pod, ...] = ()
    busy: Busy = field(default_factory=dict)
    costs: Mapping[str, int] = field(default_factory=dict)  # of busy pods
    names: Mapping[str, Sequence[Worker]] = field(default_factory=dict)  # workers by their pod

    @property
    def stops(self) -> list[str]:
        """The pods that go although they are busy, or not known to be idle."""
        return [p.name for p in self.going if p.name in self.busy]

    @property
    def trials(self) -> list[str]:
        """The trials that are requeued when these pods go."""
        return [str(trial.id) for pod in self.stops for trial in self.busy[pod]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a change of scale has come; `lacks` is what keeps it, `why` the trouble in that."""

    ready: int
    is_reached: bool
    why: str
    lacks: str


class Scaling:
    """Changes of one worker class in one namespace."""

    def __init__(
        self, api: Api, reader: StoreReader | None, control: SweepControl | None, queue: str
    ) -> None:
        """Without a view of Redis it cannot tell which pods are busy."""
        self._api, self._reader, self._control, self._queue = api, reader, control, queue

    def plan(self, wanted: int, first: Collection[str] = ()) -> Plan:
        """Choose the pods that go so that `wanted` are left; `first` are to go before any other.

        Raises:
            NotFound: no Deployment has that class.
            Held: some are to go, and a rollout is under way, which chooses by itself.
        """
        crew = look(self._api)
        workers = crew.of_queue(self._queue)
        if workers is None:
            there = ", ".join(sorted(w.queue for w in crew.workers))
            raise NotFound(
                f"namespace {crew.namespace}: no Deployment for class {self._queue!r};"
                f" there is {there}: --queue CLASS"
            )
        pods = pods_of(crew, workers)
        _see_choice(crew, workers, pods, wanted)
        return self._plan(workers, pods, wanted, {}, first)

    def drained(self, plan: Plan) -> Plan:
        """Drain the pods that go; those that were handed a trial before that are chosen anew."""
        if not self._control or not plan.going:
            return plan
        claims = self._drain(plan.going, plan)
        late = {w.pod for w in self._workers(plan.going, plan) if claims.get(w.name)}
        before = {p.name for p in plan.going}
        first = before - (late - plan.busy.keys())
        new = self._plan(plan.workers, plan.pods, plan.wanted, claims, first)
        after = {p.name for p in new.going}
        self.undrain([p for p in plan.going if p.name not in after], plan)
        self._drain([p for p in new.going if p.name not in before], new)
        return new

    def _plan(
        self,
        workers: Workers,
        pods: Sequence[Pod],
        wanted: int,
        claims: Mapping[str, str],
        first: Collection[str],
    ) -> Plan:
        names, busy, costs = {}, {}, {}
        if self._reader:
            names = workers_in(self._reader, {p.name for p in pods})
            busy, now_ms = running(self._reader, names, claims), self._reader.now_ms()
            # A ready pod without a worker here is on another Redis, or lost its own.
            busy |= {p.name: [] for p in pods if p.is_ready and p.name not in names}
            costs = {pod: cost(trials, now_ms) for pod, trials in busy.items()}
        return Plan(
            workers=workers,
            wanted=wanted,
            pods=tuple(pods),
            going=tuple(victims(pods, costs, wanted, first)),
            busy=busy,
            costs=costs,
            names=names,
        )

    def _drain(self, pods: Sequence[Pod], plan: Plan) -> dict[str, str]:
        """Let the workers of these pods claim nothing more; answers the trial that each runs."""
        claims: dict[str, str] = {}
        for worker in self._workers(pods, plan):
            assert self._control is not None
            trial = self._control.drain(worker.name, lasts_ms=DRAIN_MS)
            if trial is not None:
                claims[worker.name] = trial
        return claims

    def undrain(self, pods: Sequence[Pod], plan: Plan) -> None:
        """Let the workers of these pods claim trials again."""
        for worker in self._workers(pods, plan):
            assert self._control is not None
            self._control.drain(worker.name, undo=True)

    def apply(self, plan: Plan) -> frozenset[str]:
        """Set the deletion costs, scale, and take the costs back; answers chosen pods that stay."""
        if plan.going:
            self._mark(plan)
        self._api.patch(
            self._api.of(f"apps/v1/deployments/{plan.workers.name}/scale"),
            {"spec": {"replicas": plan.wanted}},
        )
        return self._settle(plan) if plan.going else frozenset()

    def _mark(self, plan: Plan) -> None:
        costs = {p.name: plan.costs.get(p.name, 0) for p in plan.pods}
        # Below all others, in their order: among equals the controller would choose by itself.
        costs |= {p.name: n - len(plan.going) for n, p in enumerate(plan.going)}
        for pod in plan.pods:
            if pod.cost != costs[pod.name]:
                mark(self._api, pod.name, costs[pod.name])

    def _settle(self, plan: Plan) -> frozenset[str]:
        """Wait until as many pods are going; costs left on others would mislead the next time."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            now = pods_of(look(self._api), plan.workers)
            if len(now) <= plan.wanted:
                break
            time.sleep(_POLL_S)
        present = {p.name for p in now}
        for pod in plan.pods:
            if pod.name in present:
                mark(self._api, pod.name, None)
        kept = [p for p in plan.going if p.name in present]  # the controller chose others
        self.undrain(kept, plan)
        return frozenset(p.name for p in kept)

    def _workers(self, pods: Sequence[Pod], plan: Plan) -> list[Worker]:
        return [w for p in pods for w in plan.names.get(p.name, ())] if self._control else []


def mark(api: Api, pod: str, cost: int | None) -> None:
    """Say what the end of a pod costs, None for nothing in particular."""
    value = None if cost is None else str(cost)
    with suppress(NotFound):  # it has gone by itself
        api.patch(api.of(f"pods/{pod}"), {"metadata": {"annotations": {COST: value}}})


def pods_of(crew: Crew, workers: Workers, *, also: str = "") -> list[Pod]:
    """The pods of a Deployment that are not going, nor have failed; `also` is a phase to add."""
    return [
        pod
        for pod in crew.pods
        if pod.owner.startswith(f"{workers.name}-")
        and pod.queue == workers.queue
        and (pod.phase not in ("Terminating", "Failed") or pod.phase == also)
    ]


def standing(crew: Crew, plan: Plan) -> Standing:
    """How far the pods of this look are from the plan: as many ready, and no others there."""
    pods = pods_of(crew, plan.workers, also="Terminating")
    ready, workers = sum(pod.is_ready for pod in pods), crew.of_queue(plan.workers.queue)
    ending = [pod.name for pod in pods if pod.phase == "Terminating"]
    whys = [workers.reason] if workers else []
    whys += [f"{pod.name}: {pod.reason}" for pod in pods if pod.reason and pod.name not in ending]
    why = next((one for one in whys if one), "")
    return Standing(
        ready=ready,
        is_reached=ready == len(pods) == plan.wanted,
        why=why,
        lacks=why or (f"{ending[0]} has not ended yet" if ending else ""),
    )


def _see_choice(crew: Crew, workers: Workers, pods: Sequence[Pod], wanted: int) -> None:
    """See that who goes can be chosen: costs count within one ReplicaSet, a rollout has two."""
    fewer = 0 < wanted < max(len(pods), workers.wanted)
    if not fewer or not (workers.is_rolling or len({pod.owner for pod in pods}) > 1):
        return
    kubectl, name = kubectl_in(crew.context, crew.namespace), f"deployment/{workers.name}"
    raise Held(
        f"{workers.name}: a rollout is under way, and would choose what goes, busy or not; wait for"
        f" its end first ({kubectl} rollout status {name}) or take it back ({kubectl} rollout undo"
        f" {name})"
    )
