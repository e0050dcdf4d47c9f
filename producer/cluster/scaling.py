"""More or fewer pods of a worker class: what goes is chosen here, so that it loses least.

A pod that was idle when it was chosen may be given a trial before it is told to go. So the workers
of the pods that are to go are drained first, for a minute: what the script answers is the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hpq.errors import NotFound
from hpq.snapshot import Worker
from hpq.store import Store
from hpq.view import View
from producer.cluster.api import Api
from producer.cluster.objects import COST, Pod, Workers
from producer.cluster.pods import Crew, look
from producer.cluster.stakes import stakes_of, workers_in
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


class Scaling:
    """Changes of one worker class in one namespace."""

    def __init__(self, api: Api, view: View | None, store: Store | None, queue: str) -> None:
        """Without a view of Redis it cannot tell who is at work."""
        self._api, self._view, self._store, self._queue = api, view, store, queue

    def plan(self, wanted: int, first: Collection[str] = ()) -> Plan:
        """What so many pods come to now; `first` are pods to go before any other.

        Raises:
            NotFound: no Deployment has that class.
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
        return self._plan(workers, pods, wanted, {}, lambda _: first)

    def again(self, plan: Plan, told: Mapping[str, str], agreed: Agreement) -> Plan:
        """The plan as it is now; `told` is what its workers were found at since.

        A pod that was to go still is, unless it was given a trial whose end nobody agreed to:
        costs change with every checkpoint, and what was agreed to should not.
        """

        def first(stakes: Stakes) -> set[str]:
            going = (pod.name for pod in plan.going)
            return {name for name in going if agreed.covers(name, stakes.get(name, ()))}

        pods = pods_of(look(self._api), plan.workers)
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

    def apply(self, plan: Plan) -> set[str]:
        """Mark all pods with what their end costs, scale, and take the marks back.

        Answers the pods that were to go, and stay.
        """
        if plan.going:
            self._mark(plan)
        self._api.patch(
            self._api.of(f"apps/v1/deployments/{plan.workers.name}/scale"),
            {"spec": {"replicas": plan.wanted}},
        )
        return self._settle(plan) if plan.going else set()

    def _mark(self, plan: Plan) -> None:
        costs = {p.name: cost(plan.stakes.get(p.name, ())) for p in plan.pods}
        # Below all others, in their order: among equals the controller would choose by itself.
        costs |= {p.name: n - len(plan.going) for n, p in enumerate(plan.going)}
        for pod in plan.pods:
            if pod.cost != costs[pod.name]:
                self._annotate(pod.name, str(costs[pod.name]))

    def _settle(self, plan: Plan) -> set[str]:
        """Wait until as many pods are going; marks on others would mislead the next time."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            now = pods_of(look(self._api), plan.workers)
            if len(now) <= plan.wanted:
                break
            time.sleep(_POLL_S)
        stay = {p.name for p in now}
        for name in stay & {p.name for p in plan.pods}:
            self._annotate(name, None)
        kept = tuple(p for p in plan.going if p.name in stay)
        if kept:  # the controller chose others
            self.let_go(Plan(workers=plan.workers, wanted=0, pods=(), going=kept, names=plan.names))
        return {p.name for p in kept}

    def _annotate(self, pod: str, value: str | None) -> None:
        with suppress(NotFound):  # it has gone by itself
            self._api.patch(
                self._api.of(f"pods/{pod}"), {"metadata": {"annotations": {COST: value}}}
            )

    def _workers(self, pods: Sequence[Pod], plan: Plan) -> list[Worker]:
        return [w for p in pods for w in plan.names.get(p.name, ())] if self._store else []


def pods_of(crew: Crew, workers: Workers) -> list[Pod]:
    """The pods of a Deployment that are not going."""
    return [
        pod
        for pod in crew.pods
        if pod.owner.startswith(f"{workers.name}-")
        and pod.queue == workers.queue
        and pod.phase not in ("Terminating", "Failed")
    ]
