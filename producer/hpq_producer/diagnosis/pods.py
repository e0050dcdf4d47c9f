"""Pods and Deployments in words: how many there are, and what keeps which from its work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from hpq.domain.snapshot import Worker
from hpq.notice import Notice
from hpq_producer.cluster.objects import Deployment, Pod
from hpq_producer.cluster.pods import ClusterSnapshot
from hpq_producer.connection_record import kubectl_command
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


def count_pods(cluster: ClusterSnapshot, queue: str | None = None) -> str:
    """`pods: 3 wanted, 2 ready`, of a class or of all."""
    deployments = [one for one in cluster.deployments if queue in (None, one.queue)]
    wanted, ready = sum(one.wanted for one in deployments), sum(one.ready for one in deployments)
    return f"pods: {wanted} wanted, {ready} ready"


def pod_rows(
    cluster: ClusterSnapshot, workers: Sequence[Worker], queue: str | None, columns: int
) -> list[Line]:
    """A line for each pod that is not at work: why; and for a Deployment that cannot make pods."""
    spans = [
        _deployment_cells(one)
        for one in cluster.deployments
        if one.reason and queue in (None, one.queue)
    ]
    spans += [_pod_cells(pod) for pod in troubled_pods(cluster, workers, queue)]
    layout = lay(_COLUMNS, spans, columns)
    return [layout.row(row) for row in spans]


def troubled_pods(
    cluster: ClusterSnapshot, workers: Sequence[Worker], queue: str | None = None
) -> list[Pod]:
    """The pods that have a reason, go, or have no live worker yet."""
    live = {worker.pod for worker in workers}
    return [
        pod
        for pod in cluster.pods
        if queue in (None, pod.queue)
        and (pod.reason or pod.phase not in _GOOD or pod.name not in live)
    ]


def explain_no_pod(cluster: ClusterSnapshot, queue: str) -> Notice | None:
    """Why a class has no worker, by what is seen of its pods; None where that tells nothing."""
    deployment = cluster.deployment_of(queue)
    if deployment is None:
        queues = ", ".join(sorted(clean(one.queue) for one in cluster.deployments))
        return Notice(
            "no-deployment",
            f"no worker of class {queue!r} is alive, and namespace {cluster.namespace} has no"
            f" Deployment for it (it has {queues})",
        )
    if deployment.wanted == 0:
        return Notice(
            "scaled-to-0", f"no worker is alive: {_explain_scaled_to_zero(cluster, deployment)}"
        )
    if deployment.reason:
        text = f"no worker is alive: Deployment {deployment.name}: {clean(deployment.reason)}"
        return Notice("pods-refused", text)
    pods = [pod for pod in cluster.pods if pod.queue == queue and pod.phase != "Terminating"]
    for pod in pods:
        if pod.reason:
            others = f" (and {len(pods) - 1} more)" if pods[1:] else ""
            text = f"no worker is alive: pod {pod.name}{others}: {pod.phase}, {clean(pod.reason)}"
            return Notice("pod-trouble", text)
    if not pods:
        return None
    return Notice(
        "pods-starting", f"no worker is alive yet: {trials_of(len(pods), 'pod')} starting"
    )


def _explain_scaled_to_zero(cluster: ClusterSnapshot, deployment: Deployment) -> str:
    """Who wants no pod of a Deployment, and what to do."""
    kind, _, name = deployment.autoscaler.partition(" ")
    if kind == "ScaledObject":
        kubectl = kubectl_command(cluster.context, cluster.namespace)
        return (
            f"{deployment.autoscaler} decides how many pods Deployment {deployment.name} has, and"
            f" has made it 0; why: {kubectl} describe scaledobject {name}"
        )
    scale = f"`hpq scale 1{deployment.flag}{cluster.flags}`"
    if kind:
        return (
            f"Deployment {deployment.name} is scaled to 0, from where {deployment.autoscaler}"
            f" scales nothing up; {scale}, and it goes on from there"
        )
    return f"Deployment {deployment.name} is scaled to 0; {scale}"


def cluster_record(cluster: ClusterSnapshot) -> dict[str, Any]:
    """For `--json`."""
    return {
        "context": cluster.context,
        "namespace": cluster.namespace,
        "deployments": [_deployment_record(one) for one in cluster.deployments],
        "pods": [_pod_record(pod) for pod in cluster.pods],
    }


def _deployment_record(one: Deployment) -> dict[str, Any]:
    record = asdict(one)
    record["there"] = record.pop("present")
    return record | {"reason": one.reason or None, "autoscaler": one.autoscaler or None}


def _pod_record(pod: Pod) -> dict[str, Any]:
    names = ("name", "queue", "phase", "is_ready", "restarts")
    record = {name.removeprefix("is_"): getattr(pod, name) for name in names}
    return {**record, "node": pod.node or None, "reason": pod.reason or None}


def _deployment_cells(one: Deployment) -> list[Span]:
    count = f"{one.present} of {one.wanted}"
    return [Span(one.name), Span(count, Style.RED), Span(clean(one.reason)), Span("")]


def _pod_cells(pod: Pod) -> list[Span]:
    style = Style.RED if pod.reason else Style.PLAIN
    return [Span(pod.name), Span(_phase(pod), style), Span(clean(pod.reason)), Span(pod.node)]


def _phase(pod: Pod) -> str:
    return "not ready" if pod.phase == "Running" and not pod.is_ready else pod.phase


def pod_report(cluster: ClusterSnapshot, workers: Sequence[Worker]) -> Iterator[str]:
    """Lines for `hpq workers`, below its table."""
    yield count_pods(cluster)
    for one in cluster.deployments:
        if one.reason:
            yield f"{one.name}: {one.present} of {one.wanted} pods: {clean(one.reason)}"
    for pod in troubled_pods(cluster, workers):
        record = f", {clean(pod.reason)}" if pod.reason else ""
        yield f"{pod.name}: {_phase(pod)}{record}{f', on {pod.node}' if pod.node else ''}"
