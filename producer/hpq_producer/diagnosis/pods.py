"""Describe pods and Deployments, and explain why a sweep waits, also if no pod starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hpq.domain.status import SweepStatus, Worker
from hpq.notice import Notice
from hpq_producer.analysis.owner_limits import explain_limit
from hpq_producer.cluster.objects import Deployment, Pod
from hpq_producer.cluster.pods import ClusterStatus, PodWatcher
from hpq_producer.connection_record import doctor_command, kubectl_command, scale_command
from hpq_producer.diagnosis.waiting import CLUSTER_HINT, explain_full_server, explain_unclaimed
from hpq_producer.session import Server
from hpq_producer.terminal.style import Line, Span, Style
from hpq_producer.terminal.tables import Column, lay
from hpq_producer.terminal.text import clean, trials_of

_COLUMNS = (
    Column(title="pod", keep=90, least=8),
    Column(title="phase", keep=80),
    Column(title="reason", keep=70, least=10),
    Column(title="node", keep=40, least=6),
)
_GOOD = ("Running", "Succeeded")


def count_pods(cluster: ClusterStatus, queue: str | None = None) -> str:
    """Return `pods: 3 wanted, 2 ready`, of one queue or of all."""
    deployments = [d for d in cluster.deployments if queue in (None, d.queue)]
    wanted, ready = sum(d.wanted for d in deployments), sum(d.ready for d in deployments)
    return f"pods: {wanted} wanted, {ready} ready"


def pod_rows(
    cluster: ClusterStatus, workers: Sequence[Worker], queue: str | None, columns: int
) -> list[Line]:
    """Return a line with the reason for each Deployment without pods and each troubled pod.

    They have at most `columns` columns; `queue` None means all queues.
    """
    spans = [
        _deployment_cells(d) for d in cluster.deployments if d.reason and queue in (None, d.queue)
    ]
    spans += [_pod_cells(pod) for pod in troubled_pods(cluster, workers, queue)]
    layout = lay(_COLUMNS, spans, columns)
    return [layout.row(row) for row in spans]


def troubled_pods(
    cluster: ClusterStatus, workers: Sequence[Worker], queue: str | None = None
) -> list[Pod]:
    """Return the pods that have a problem, are terminating, or have no live worker yet."""
    live = {worker.pod for worker in workers}
    return [
        pod
        for pod in cluster.pods
        if queue in (None, pod.queue)
        and (pod.reason or pod.phase not in _GOOD or pod.name not in live)
    ]


def explain_no_pod(cluster: ClusterStatus, queue: str) -> Notice | None:
    """Return why a queue has no worker, if its Deployment or pods show that."""
    deployment = cluster.deployment_of(queue)
    if deployment is None:
        queues = ", ".join(sorted(clean(d.queue) for d in cluster.deployments))
        return Notice(
            "no-deployment",
            f"no worker of queue {queue!r} is running, and namespace {cluster.namespace} has no"
            f" Deployment for it (queues: {queues}); add `{queue}: {{gpus: N}}` to `queues` of the"
            " cluster file, and apply `hpq manifests -f FILE`",
        )
    if deployment.wanted == 0:
        return Notice(
            "scaled-to-0", f"no worker is running: {_explain_scaled_to_zero(cluster, deployment)}"
        )
    doctor = doctor_command(cluster.context, cluster.namespace)
    if deployment.reason:
        why = f"Deployment {deployment.name}: {clean(deployment.reason)}"
        text = f"no worker is running: {why}; what to do: {doctor}"
        return Notice("pods-refused", text)
    pods = [pod for pod in cluster.pods if pod.queue == queue and pod.phase != "Terminating"]
    for pod in pods:
        if pod.reason:
            others = f" (and {len(pods) - 1} more)" if pods[1:] else ""
            why = f"pod {pod.name}{others}: {pod.phase}, {clean(pod.reason)}"
            text = f"no worker is running: {why}; what to do: {doctor}"
            return Notice("pod-trouble", text)
    if not pods:
        return None
    return Notice(
        "pods-starting", f"no worker is running yet: {trials_of(len(pods), 'pod')} starting"
    )


def _explain_scaled_to_zero(cluster: ClusterStatus, deployment: Deployment) -> str:
    """Explain what scaled a Deployment to 0, with the remedy."""
    kind, _, name = deployment.autoscaler.partition(" ")
    kubectl = kubectl_command(cluster.context, cluster.namespace)
    if kind == "ScaledObject":
        return (
            f"{deployment.autoscaler} scaled Deployment {deployment.name} to 0; why: {kubectl}"
            f" describe scaledobject {name}"
        )
    scale = scale_command(kubectl, deployment.name)
    if kind:
        return (
            f"Deployment {deployment.name} is scaled to 0, and {deployment.autoscaler} cannot scale"
            f" up from 0; {scale} starts it"
        )
    return f"Deployment {deployment.name} is scaled to 0; {scale}"


def cluster_record(cluster: ClusterStatus) -> dict[str, Any]:
    """Return the cluster's state for `--json`."""
    return {
        "context": cluster.context,
        "namespace": cluster.namespace,
        "deployments": [
            asdict(d) | {"reason": d.reason or None, "autoscaler": d.autoscaler or None}
            for d in cluster.deployments
        ],
        "pods": [_pod_record(pod) for pod in cluster.pods],
    }


def _pod_record(pod: Pod) -> dict[str, Any]:
    names = ("name", "queue", "phase", "is_ready", "restarts")
    record = {name.removeprefix("is_"): getattr(pod, name) for name in names}
    return {**record, "node": pod.node or None, "reason": pod.reason or None}


def _deployment_cells(deployment: Deployment) -> list[Span]:
    count, reason = f"{deployment.present} of {deployment.wanted}", clean(deployment.reason)
    return [Span(deployment.name), Span(count, Style.RED), Span(reason), Span("")]


def _pod_cells(pod: Pod) -> list[Span]:
    style = Style.RED if pod.reason else Style.PLAIN
    phase = "not ready" if pod.phase == "Running" and not pod.is_ready else pod.phase
    return [Span(pod.name), Span(phase, style), Span(clean(pod.reason)), Span(pod.node)]


def explain_waiting_with_pods(status: SweepStatus, pods: PodWatcher) -> Notice | None:
    """Call `explain_waiting` if trials wait; if there are no workers, read the pods first."""
    if not status.sweep.counts.waits:
        return None
    cluster = None if status.workers else pods.status(status.workers, wait=True)
    return explain_waiting(status, cluster, pods)


def explain_waiting(
    status: SweepStatus, cluster: ClusterStatus | None = None, pods: PodWatcher | None = None
) -> Notice | None:
    """Return the first reason why no trial of the sweep starts, with the remedy.

    `pods` knows the kind of the server, even if it cannot list pods.
    """
    sweep, workers = status.sweep, status.workers
    if reason := explain_full_server(status.memory):
        return reason
    if reason := explain_limit(sweep, status.owner):
        return reason
    if not sweep.counts.waits:
        return None
    if cluster and not workers and (reason := explain_no_pod(cluster, sweep.queue)):
        return reason
    server = pods.server if pods else Server.SHARED
    server = Server.CLUSTER if cluster is not None else server
    hint = CLUSTER_HINT if pods and pods.may_mean_cluster else ""
    return explain_unclaimed(sweep, workers, lambda: status.ahead, server=server, hint=hint)
