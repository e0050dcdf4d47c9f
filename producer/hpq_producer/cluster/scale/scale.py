"""Change the number of pods of a queue: idle pods go before busy ones.

A pod that was idle when it was chosen may claim a trial before it is deleted. Therefore the workers
of the chosen pods are drained first, for a minute.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hpq.domain.status import Worker
from hpq.errors import Held, NotFound
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import COST_ANNOTATION, Deployment, Pod
from hpq_producer.cluster.pods import ClusterStatus, read_cluster
from hpq_producer.cluster.scale.plan import (
    Busy,
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
    """The pods that `hpq scale` removes, in order."""

    deployment: Deployment
    wanted: int
    pods: tuple[Pod, ...]  # all pods of the queue that are not terminating
    going: tuple[Pod, ...] = ()
    busy: Busy = field(default_factory=dict)
    workers: Mapping[str, Sequence[Worker]] = field(default_factory=dict)  # workers by their pod

    @property
    def stopped_pods(self) -> list[str]:
        """The pods to remove that are busy, or not known to be idle."""
        return [p.name for p in self.going if p.name in self.busy]

    @property
    def trials(self) -> list[str]:
        """The trials that are requeued when these pods are removed."""
        return [str(trial.id) for pod in self.stopped_pods for trial in self.busy[pod]]


class Scaling:
    """Scale one queue in one namespace."""

    def __init__(
        self,
        api: KubernetesApi,
        reader: StoreReader | None,
        control: SweepControl | None,
        queue: str,
    ) -> None:
        """Without a reader of Redis, no pod is known to be busy."""
        self._api, self._reader, self._control, self._queue = api, reader, control, queue

    def plan(self, wanted: int, first: Collection[str] = ()) -> ScalePlan:
        """Choose the pods to remove so that `wanted` remain; `first` before any other.

        Raises:
            NotFound: no Deployment has that queue.
            Held: pods are to be removed during a rollout, which ignores deletion costs.
        """
        cluster = read_cluster(self._api)
        deployment = cluster.deployment_of(self._queue)
        if deployment is None:
            queues = ", ".join(sorted(w.queue for w in cluster.deployments))
            raise NotFound(
                f"namespace {cluster.namespace}: no Deployment for queue {self._queue!r};"
                f" choose one of {queues}: --queue NAME",
                code="no-deployment",
            )
        pods = deployment_pods(cluster, deployment)
        _refuse_during_rollout(cluster, deployment, pods, wanted)
        return self._plan(deployment, pods, wanted, {}, first)

    def drain(self, plan: ScalePlan) -> ScalePlan:
        """Drain the pods to remove; replace those that claimed a trial meanwhile if possible."""
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
        workers, busy = {}, {}
        if self._reader:
            workers = workers_by_pod(self._reader, {p.name for p in pods})
            busy = running_trials(self._reader, workers, claims)
            # A ready pod without a live worker may use another Redis, or have lost this one.
            busy |= {p.name: [] for p in pods if p.is_ready and p.name not in workers}
        return ScalePlan(
            deployment=deployment,
            wanted=wanted,
            pods=tuple(pods),
            going=tuple(pods_to_remove(pods, busy, wanted, first)),
            busy=busy,
            workers=workers,
        )

    def _drain(self, pods: Sequence[Pod], plan: ScalePlan) -> dict[str, str]:
        """Stop the workers of these pods from claiming; return the running trial by worker."""
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
        """Set deletion costs, scale, and reset the costs; return chosen pods that remain."""
        if plan.going:
            self._set_deletion_costs(plan)
        self._api.patch(
            self._api.of(f"apps/v1/deployments/{plan.deployment.name}/scale"),
            {"spec": {"replicas": plan.wanted}},
        )
        return self._settle(plan) if plan.going else frozenset()

    def _set_deletion_costs(self, plan: ScalePlan) -> None:
        # Below all others and distinct: among equal costs the controller chooses by itself.
        costs = {p.name: n - len(plan.going) for n, p in enumerate(plan.going)}
        for pod in plan.pods:
            if pod.cost != costs.get(pod.name, 0):
                set_deletion_cost(self._api, pod.name, costs.get(pod.name))

    def _settle(self, plan: ScalePlan) -> frozenset[str]:
        """Wait for the removal, then reset the costs, which would mislead the next scaling."""
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
    """Set the deletion cost of a pod; None removes the annotation."""
    value = None if cost is None else str(cost)
    with suppress(NotFound):  # the pod has ended meanwhile
        api.patch(api.of(f"pods/{pod}"), {"metadata": {"annotations": {COST_ANNOTATION: value}}})


def deployment_pods(cluster: ClusterStatus, deployment: Deployment) -> list[Pod]:
    """Return the pods of a Deployment that are neither Terminating nor Failed."""
    return [
        pod
        for pod in cluster.pods
        if pod.owner.startswith(f"{deployment.name}-")
        and pod.queue == deployment.queue
        and pod.phase not in ("Terminating", "Failed")
    ]


def _refuse_during_rollout(
    cluster: ClusterStatus, deployment: Deployment, pods: Sequence[Pod], wanted: int
) -> None:
    """Refuse during a rollout: deletion costs count within one ReplicaSet, a rollout has two."""
    fewer = 0 < wanted < max(len(pods), deployment.wanted)
    if not fewer or not (deployment.is_rolling or len({pod.owner for pod in pods}) > 1):
        return
    kubectl, name = (
        kubectl_command(cluster.context, cluster.namespace),
        f"deployment/{deployment.name}",
    )
    raise Held(
        f"{deployment.name}: a rollout is in progress and would remove busy pods, too; wait for it"
        f" ({kubectl} rollout status {name}) or undo it ({kubectl} rollout undo {name})",
        code="rollout-running",
    )
