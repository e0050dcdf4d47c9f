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
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import COST_ANNOTATION, Deployment, Pod
from hpq_producer.cluster.pods import ClusterSnapshot, read_cluster
from hpq_producer.cluster.scale.plan import (
    Busy,
    deletion_cost,
    pods_to_remove,
    running_trials,
    workers_by_pod,
)
from hpq_producer.connection_record import kubectl_command

DRAIN_MS = 60_000  # how long chosen workers claim nothing, if no deletion follows
_SETTLE_S = 20.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """What `hpq scale` would do: these pods go, the first to go first."""

    deployment: Deployment
    wanted: int
    pods: tuple[Pod, ...]  # all of the class, but those that are going already
    going: tuple[Pod, ...] = ()
    busy: Busy = field(default_factory=dict)
    costs: Mapping[str, int] = field(default_factory=dict)  # of busy pods
    workers: Mapping[str, Sequence[Worker]] = field(default_factory=dict)  # workers by their pod

    @property
    def stopped_pods(self) -> list[str]:
        """The pods that go although they are busy, or not known to be idle."""
        return [p.name for p in self.going if p.name in self.busy]

    @property
    def trials(self) -> list[str]:
        """The trials that are requeued when these pods go."""
        return [str(trial.id) for pod in self.stopped_pods for trial in self.busy[pod]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleProgress:
    """How far a change of scale has come; `lacks` is what keeps it, `why` the trouble in that."""

    ready: int
    is_done: bool
    why: str
    unmet: str


class Scaling:
    """Changes of one worker class in one namespace."""

    def __init__(
        self,
        api: KubernetesApi,
        reader: StoreReader | None,
        control: SweepControl | None,
        queue: str,
    ) -> None:
        """Without a view of Redis it cannot tell which pods are busy."""
        self._api, self._reader, self._control, self._queue = api, reader, control, queue

    def plan(self, wanted: int, first: Collection[str] = ()) -> ScalePlan:
        """Choose the pods that go so that `wanted` are left; `first` are to go before any other.

        Raises:
            NotFound: no Deployment has that class.
            Held: some are to go, and a rollout is under way, which chooses by itself.
        """
        cluster = read_cluster(self._api)
        deployment = cluster.deployment_of(self._queue)
        if deployment is None:
            queues = ", ".join(sorted(w.queue for w in cluster.deployments))
            raise NotFound(
                f"namespace {cluster.namespace}: no Deployment for class {self._queue!r};"
                f" there is {queues}: --queue CLASS",
                code="no-deployment",
            )
        pods = deployment_pods(cluster, deployment)
        _refuse_during_rollout(cluster, deployment, pods, wanted)
        return self._plan(deployment, pods, wanted, {}, first)

    def drain(self, plan: ScalePlan) -> ScalePlan:
        """Drain the pods that go; those that were handed a trial before that are chosen anew."""
        if not self._control or not plan.going:
            return plan
        claims = self._drain(plan.going, plan)
        late = {w.pod for w in self._workers(plan.going, plan) if claims.get(w.name)}
        before = {p.name for p in plan.going}
        first = before - (late - plan.busy.keys())
        new = self._plan(plan.deployment, plan.pods, plan.wanted, claims, first)
        after = {p.name for p in new.going}
        self.undrain([p for p in plan.going if p.name not in after], plan)
        self._drain([p for p in new.going if p.name not in before], new)
        return new

    def _plan(
        self,
        deployment: Deployment,
        pods: Sequence[Pod],
        wanted: int,
        claims: Mapping[str, str],
        first: Collection[str],
    ) -> ScalePlan:
        workers, busy, costs = {}, {}, {}
        if self._reader:
            workers = workers_by_pod(self._reader, {p.name for p in pods})
            busy, now_ms = running_trials(self._reader, workers, claims), self._reader.now_ms()
            # A ready pod without a worker here is on another Redis, or lost its own.
            busy |= {p.name: [] for p in pods if p.is_ready and p.name not in workers}
            costs = {pod: deletion_cost(trials, now_ms) for pod, trials in busy.items()}
        return ScalePlan(
            deployment=deployment,
            wanted=wanted,
            pods=tuple(pods),
            going=tuple(pods_to_remove(pods, costs, wanted, first)),
            busy=busy,
            costs=costs,
            workers=workers,
        )

    def _drain(self, pods: Sequence[Pod], plan: ScalePlan) -> dict[str, str]:
        """Let the workers of these pods claim nothing more; answers the trial that each runs."""
        claims: dict[str, str] = {}
        for worker in self._workers(pods, plan):
            assert self._control is not None
            trial = self._control.drain(worker.name, lasts_ms=DRAIN_MS)
            if trial is not None:
                claims[worker.name] = trial
        return claims

    def undrain(self, pods: Sequence[Pod], plan: ScalePlan) -> None:
        """Let the workers of these pods claim trials again."""
        for worker in self._workers(pods, plan):
            assert self._control is not None
            self._control.drain(worker.name, undo=True)

    def apply(self, plan: ScalePlan) -> frozenset[str]:
        """Set the deletion costs, scale, and take the costs back; answers chosen pods that stay."""
        if plan.going:
            self._set_deletion_costs(plan)
        self._api.patch(
            self._api.of(f"apps/v1/deployments/{plan.deployment.name}/scale"),
            {"spec": {"replicas": plan.wanted}},
        )
        return self._settle(plan) if plan.going else frozenset()

    def _set_deletion_costs(self, plan: ScalePlan) -> None:
        costs = {p.name: plan.costs.get(p.name, 0) for p in plan.pods}
        # Below all others, in their order: among equals the controller would choose by itself.
        costs |= {p.name: n - len(plan.going) for n, p in enumerate(plan.going)}
        for pod in plan.pods:
            if pod.cost != costs[pod.name]:
                set_deletion_cost(self._api, pod.name, costs[pod.name])

    def _settle(self, plan: ScalePlan) -> frozenset[str]:
        """Wait until as many pods are going; costs left on others would mislead the next time."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            now = deployment_pods(read_cluster(self._api), plan.deployment)
            if len(now) <= plan.wanted:
                break
            time.sleep(_POLL_S)
        present = {p.name for p in now}
        for pod in plan.pods:
            if pod.name in present:
                set_deletion_cost(self._api, pod.name, None)
        kept = [p for p in plan.going if p.name in present]  # the controller chose others
        self.undrain(kept, plan)
        return frozenset(p.name for p in kept)

    def _workers(self, pods: Sequence[Pod], plan: ScalePlan) -> list[Worker]:
        return [w for p in pods for w in plan.workers.get(p.name, ())] if self._control else []


def set_deletion_cost(api: KubernetesApi, pod: str, cost: int | None) -> None:
    """Say what the end of a pod costs, None for nothing in particular."""
    value = None if cost is None else str(cost)
    with suppress(NotFound):  # it has gone by itself
        api.patch(api.of(f"pods/{pod}"), {"metadata": {"annotations": {COST_ANNOTATION: value}}})


def deployment_pods(
    cluster: ClusterSnapshot, deployment: Deployment, *, also: str = ""
) -> list[Pod]:
    """The pods of a Deployment that are not going, nor have failed; `also` is a phase to add."""
    return [
        pod
        for pod in cluster.pods
        if pod.owner.startswith(f"{deployment.name}-")
        and pod.queue == deployment.queue
        and (pod.phase not in ("Terminating", "Failed") or pod.phase == also)
    ]


def scale_progress(cluster: ClusterSnapshot, plan: ScalePlan) -> ScaleProgress:
    """How far the pods of this look are from the plan: as many ready, and no others there."""
    pods = deployment_pods(cluster, plan.deployment, also="Terminating")
    ready, deployment = (
        sum(pod.is_ready for pod in pods),
        cluster.deployment_of(plan.deployment.queue),
    )
    ending = [pod.name for pod in pods if pod.phase == "Terminating"]
    whys = [deployment.reason] if deployment else []
    whys += [f"{pod.name}: {pod.reason}" for pod in pods if pod.reason and pod.name not in ending]
    why = next((one for one in whys if one), "")
    return ScaleProgress(
        ready=ready,
        is_done=ready == len(pods) == plan.wanted,
        why=why,
        unmet=why or (f"{ending[0]} has not ended yet" if ending else ""),
    )


def _refuse_during_rollout(
    cluster: ClusterSnapshot, deployment: Deployment, pods: Sequence[Pod], wanted: int
) -> None:
    """See that who goes can be chosen: costs count within one ReplicaSet, a rollout has two."""
    fewer = 0 < wanted < max(len(pods), deployment.wanted)
    if not fewer or not (deployment.is_rolling or len({pod.owner for pod in pods}) > 1):
        return
    kubectl, name = (
        kubectl_command(cluster.context, cluster.namespace),
        f"deployment/{deployment.name}",
    )
    raise Held(
        f"{deployment.name}: a rollout is under way, and would choose what goes, busy or not;"
        f" wait for its end first ({kubectl} rollout status {name}) or take it back"
        f" ({kubectl} rollout undo {name})",
        code="rollout-running",
    )
