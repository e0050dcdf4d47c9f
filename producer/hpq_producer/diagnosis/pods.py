"""Pods and Deployments in words: how many there are, and what keeps which from its work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from hpq.codes import Notice
from hpq.domain.snapshot import Worker
from hpq_producer.cluster.objects import Pod, Workers
from hpq_producer.cluster.pods import Crew
from hpq_producer.connection_record import kubectl_in
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


def words(crew: Crew, queue: str | None = None) -> str:
    """`pods: 3 wanted, 2 ready`, of a class or of all."""
    those = [one for one in crew.workers if queue in (None, one.queue)]
    wanted, ready = sum(one.wanted for one in those), sum(one.ready for one in those)
    return f"pods: {wanted} wanted, {ready} ready"


def rows(crew: Crew, workers: Sequence[Worker], queue: str | None, columns: int) -> list[Line]:
    """A line for each pod that is not at work: why; and for a Deployment that cannot make pods."""
    spans = [_deployment(one) for one in crew.workers if one.reason and queue in (None, one.queue)]
    spans += [_pod(pod) for pod in troubled(crew, workers, queue)]
    layout = lay(_COLUMNS, spans, columns)
    return [layout.row(row) for row in spans]


def troubled(crew: Crew, workers: Sequence[Worker], queue: str | None = None) -> list[Pod]:
    """The pods that have a reason, go, or have no live worker yet."""
    live = {worker.pod for worker in workers}
    return [
        pod
        for pod in crew.pods
        if queue in (None, pod.queue)
        and (pod.reason or pod.phase not in _GOOD or pod.name not in live)
    ]


def why_nobody(crew: Crew, queue: str) -> Notice | None:
    """Why a class has no worker, by what is seen of its pods; None where that tells nothing."""
    workers = crew.of_queue(queue)
    if workers is None:
        there = ", ".join(sorted(clean(one.queue) for one in crew.workers))
        return Notice(
            "no-deployment",
            f"no worker of class {queue!r} is alive, and namespace {crew.namespace} has no"
            f" Deployment for it (it has {there})",
        )
    if workers.wanted == 0:
        return Notice("scaled-to-0", f"no worker is alive: {_none_wanted(crew, workers)}")
    if workers.reason:
        text = f"no worker is alive: Deployment {workers.name}: {clean(workers.reason)}"
        return Notice("pods-refused", text)
    pods = [pod for pod in crew.pods if pod.queue == queue and pod.phase != "Terminating"]
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


def _none_wanted(crew: Crew, workers: Workers) -> str:
    """Who wants no pod of a Deployment, and what to do."""
    kind, _, name = workers.autoscaler.partition(" ")
    if kind == "ScaledObject":
        kubectl = kubectl_in(crew.context, crew.namespace)
        return (
            f"{workers.autoscaler} decides how many pods Deployment {workers.name} has, and has"
            f" made it 0; why: {kubectl} describe scaledobject {name}"
        )
    scale = f"`hpq scale 1{workers.flag}{crew.flags}`"
    if kind:
        return (
            f"Deployment {workers.name} is scaled to 0, from where {workers.autoscaler} scales"
            f" nothing up; {scale}, and it goes on from there"
        )
    return f"Deployment {workers.name} is scaled to 0; {scale}"


def crew_record(crew: Crew) -> dict[str, Any]:
    """For `--json`."""
    return {
        "context": crew.context,
        "namespace": crew.namespace,
        "deployments": [_workers_record(one) for one in crew.workers],
        "pods": [_record(pod) for pod in crew.pods],
    }


def _workers_record(one: Workers) -> dict[str, Any]:
    return {**asdict(one), "reason": one.reason or None, "autoscaler": one.autoscaler or None}


def _record(pod: Pod) -> dict[str, Any]:
    names = ("name", "queue", "phase", "is_ready", "restarts")
    told = {name.removeprefix("is_"): getattr(pod, name) for name in names}
    return {**told, "node": pod.node or None, "reason": pod.reason or None}


def _deployment(one: Workers) -> list[Span]:
    count = f"{one.there} of {one.wanted}"
    return [Span(one.name), Span(count, Style.RED), Span(clean(one.reason)), Span("")]


def _pod(pod: Pod) -> list[Span]:
    style = Style.RED if pod.reason else Style.PLAIN
    return [Span(pod.name), Span(_phase(pod), style), Span(clean(pod.reason)), Span(pod.node)]


def _phase(pod: Pod) -> str:
    return "not ready" if pod.phase == "Running" and not pod.is_ready else pod.phase


def pages(crew: Crew, workers: Sequence[Worker]) -> Iterator[str]:
    """Lines for `hpq workers`, below its table."""
    yield words(crew)
    for one in crew.workers:
        if one.reason:
            yield f"{one.name}: {one.there} of {one.wanted} pods: {clean(one.reason)}"
    for pod in troubled(crew, workers):
        told = f", {clean(pod.reason)}" if pod.reason else ""
        yield f"{pod.name}: {_phase(pod)}{told}{f', on {pod.node}' if pod.node else ''}"
