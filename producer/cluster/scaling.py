"""More or fewer pods of a worker class: what goes is chosen here, so that it loses least.

A pod that was idle when it was chosen may be given a trial before it is told to go. So the workers
of the pods that are to go are drained first, for a minute: what the script answers is the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hpq.errors import Held, NotFound
from hpq.snapshot import Worker
from hpq.store import Store
from hpq.view import View
from producer.cluster.api import Api
from producer.cluster.objects import COST, Pod, Workers
from producer.cluster.pods import Crew, look
from producer.cluster.stakes import stakes_of, workers_in
from producer.cluster.tunnel import kubectl_in
from producer.cluster.victims import Agreement, Stake, Stakes, cost, unknown, victims

DRAIN_MS = 60_000  # how long chosen workers take nothing, should nothing come of it
_SETTLE_S = 20.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `hpq scale` would do: these pods go, the first to go first."""

    workers: Workers
    wanted: int
    pods: tuple[Pod, ...]  # all of the class, but those that are going already
    going: tuple[Pod, ...] = ()
    stakes: Mapping[str, Sequence[Stake]] = field(default_factory=dict)
    names: Mapping[str, Sequence[Worker]] = field(default_factory=dict)  # workers by their pod

    @property
    def stops(self) -> dict[str, Sequence[Stake]]:
        """The pods that go although they are at work, and at what."""
        return {p.name: self.stakes[p.name] for p in self.going if self.stakes.get(p.name)}

    @property
    def trials(self) -> set[str]:
        """The trials among these."""
        return {stake.trial for stakes in self.stops.values() for stake in stakes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Pods that were to go, and stay; and those that the controller took instead."""

    stay: frozenset[str] = frozenset()
    instead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a change of scale has come; `lacks` is what keeps it, `why` the trouble in that."""

    ready: int
    is_reached: bool
    why: str
    lacks: str


class Scaling:
    """Changes of one worker class in one namespace."""

    def __init__(self, api: Api, view: View | None, store: Store | None, queue: str) -> None:
        """Without a view of Redis it cannot tell who is at work."""
        self._api, self._view, self._store, self._queue = api, view, store, queue

    def plan(self, wanted: int, first: Collection[str] = ()) -> Plan:
        """What so many pods come to now; `first` are pods to go before any other.

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
        return self._plan(workers, pods, wanted, {}, lambda _: first)

    def again(self, plan: Plan, told: Mapping[str, str], agreed: Agreement) -> Plan:
        """The plan as it is now; `told` is what its workers were found at since.

        A pod that was to go still is, unless it was given a trial whose end nobody agreed to:
        costs change with every checkpoint, and what was agreed to should not.

        Raises:
            Held: as `plan`.
        """

        def first(stakes: Stakes) -> set[str]:
            going = (pod.name for pod in plan.going)
            return {name for name in going if agreed.covers(name, stakes.get(name, ()))}

        crew = look(self._api)
        pods = pods_of(crew, plan.workers)
        _see_choice(crew, crew.of_queue(self._queue) or plan.workers, pods, plan.wanted)
        return self._plan(plan.workers, pods, plan.wanted, told, first)

    def _plan(
        self,
        workers: Workers,
        pods: Sequence[Pod],
        wanted: int,
        told: Mapping[str, str],
        first: Callable[[Stakes], Collection[str]],
    ) -> Plan:
        names = workers_in(self._view, {p.name for p in pods}) if self._view else {}
        stakes = stakes_of(self._view, names, told) if self._view else {}
        if self._view:  # a ready pod has said so on its Redis: on another then, or lost since
            stakes |= {
                p.name: [unknown(p.name)] for p in pods if p.is_ready and p.name not in names
            }
        return Plan(
            workers=workers,
            wanted=wanted,
            pods=tuple(pods),
            going=tuple(victims(pods, stakes, wanted, first(stakes))),
            stakes=stakes,
            names=names,
        )

    def hold(self, plan: Plan) -> dict[str, str]:
        """Let the workers of the pods that go take nothing more; answers what each is at."""
        told: dict[str, str] = {}
        for worker in self._workers(plan.going, plan):
            assert self._store is not None
            at = self._store.drain(worker.name, lasts_ms=DRAIN_MS)
            if at is not None:
                told[worker.name] = at
        return told

    def let_go(self, plan: Plan) -> None:
        """Let the workers of these pods take trials again."""
        for worker in self._workers(plan.going, plan):
            assert self._store is not None
            self._store.drain(worker.name, undo=True)

    def apply(self, plan: Plan) -> Settled:
        """Mark all pods with what their end costs, scale, and take the marks back."""
        if plan.going:
            self._mark(plan)
        self._api.patch(
            self._api.of(f"apps/v1/deployments/{plan.workers.name}/scale"),
            {"spec": {"replicas": plan.wanted}},
        )
        return self._settle(plan) if plan.going else Settled()

    def _mark(self, plan: Plan) -> None:
        costs = {p.name: cost(plan.stakes.get(p.name, ())) for p in plan.pods}
        # Below all others, in their order: among equals the controller would choose by itself.
        costs |= {p.name: n - len(plan.going) for n, p in enumerate(plan.going)}
        for pod in plan.pods:
            if pod.cost != costs[pod.name]:
                mark(self._api, pod.name, costs[pod.name])

    def _settle(self, plan: Plan) -> Settled:
        """Wait until as many pods are going; marks on others would mislead the next time."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            now = pods_of(look(self._api), plan.workers)
            if len(now) <= plan.wanted:
                break
            time.sleep(_POLL_S)
        stay = {p.name for p in now}
        before, going = ({p.name for p in pods} for pods in (plan.pods, plan.going))
        for name in stay & before:
            mark(self._api, name, None)
        kept = tuple(p for p in plan.going if p.name in stay)
        if kept:  # the controller chose others
            self.let_go(Plan(workers=plan.workers, wanted=0, pods=(), going=kept, names=plan.names))
        return Settled(stay=frozenset(going & stay), instead=frozenset(before - going - stay))

    def _workers(self, pods: Sequence[Pod], plan: Plan) -> list[Worker]:
        return [w for p in pods for w in plan.names.get(p.name, ())] if self._store else []


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
