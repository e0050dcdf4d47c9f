"""Read the Deployments of workers of a namespace, their pods and their autoscalers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpq.access.connection_record import deployment_name
from hpq.errors import Forbidden, HpqError, NotFound
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.objects import (
    CONTAINER,
    WORKER_SELECTOR,
    Deployment,
    Pod,
    deployment_of,
    pod_of,
)
from hpq.kubernetes.redis_access import explain_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The Deployments of workers in a namespace, and their pods."""

    context: str
    namespace: str
    deployments: tuple[Deployment, ...]
    pods: tuple[Pod, ...]

    def deployment_of(self, queue: str) -> Deployment | None:
        """Return the Deployment of a queue, if any."""
        return next((one for one in self.deployments if one.queue == queue), None)


def read_cluster(
    api: KubernetesApi, logged: dict[tuple[str, int], str] | None = None
) -> ClusterStatus:
    """Read Deployments and pods with two to five requests.

    Events are read only if a status has no reason, a log only if they have none either, autoscalers
    only if a Deployment is at 0 pods. `logged` keeps the reasons that were read from logs, by pod
    and its number of restarts, so that a view reads each log once.

    Raises:
        NotFound: the namespace has no Deployment of workers.
        HpqError: as `KubernetesApi`.
    """
    raws = deployments(api)
    found = [deployment_of(raw) for raw in raws]
    if not all(one.wanted for one in found):
        names = autoscalers(api)
        found = [
            one if one.wanted else replace(one, autoscaler=names.get(one.name, "")) for one in found
        ]
    raws = api.get(api.of("pods"), labelSelector=WORKER_SELECTOR)["items"]
    pods = [pod_of(raw) for raw in raws]
    if any(p.phase in ("Pending", "Running") and not (p.reason or p.is_ready) for p in pods):
        events = warning_events(api)
        pods = [
            pod_of(raw, [e for e in events if e["involvedObject"].get("name") == pod.name])
            for raw, pod in zip(raws, pods, strict=True)
        ]
    unready = [pod for pod in pods if pod.phase == "Running" and not (pod.reason or pod.is_ready)]
    if unready:  # one stands for the others
        one = unready[0]
        known = {} if logged is None else logged
        reason = known.get((one.name, one.restarts), "") or _logged_reason(api, one.name)
        known[one.name, one.restarts] = reason
        pods = [replace(pod, reason=reason) if pod in unready else pod for pod in pods]
    return ClusterStatus(
        context=api.context,
        namespace=api.namespace,
        deployments=tuple(found),
        pods=tuple(sorted(pods, key=lambda pod: pod.name)),
    )


def _logged_reason(api: KubernetesApi, pod: str) -> str:
    """Return why a pod is not ready, as its worker has logged it; "" if it has not."""
    try:
        text = api.text(api.of(f"pods/{pod}/log"), container=CONTAINER, tailLines="50")
    except HpqError:  # a member may not read logs
        return ""
    found = re.findall(r"not ready: ([^\n\"]+)", text)
    return f"not ready: {found[-1]}" if found else ""


def deployments(api: KubernetesApi) -> list[Any]:
    """Return the Deployments of workers; if listing is forbidden, only the default one."""
    try:
        found: list[Any] = api.get(api.of("apps/v1/deployments"), labelSelector=WORKER_SELECTOR)[
            "items"
        ]
    except Forbidden:
        found = [api.get(api.of(f"apps/v1/deployments/{deployment_name()}"))]
    if not found:
        raise NotFound(explain_missing(api, "Deployment of workers"), code="cluster-object-missing")
    return found


def autoscalers(api: KubernetesApi) -> dict[str, str]:
    """Return the autoscalers by Deployment name, e.g. "ScaledObject hpq-worker".

    A paused ScaledObject counts as none.
    """
    try:
        found = api.get(
            f"/apis/autoscaling/v2/namespaces/{api.namespace}/horizontalpodautoscalers"
        )["items"]
    except HpqError:  # viewers may lack the permission; only a hint depends on the answer
        return {}
    names = {}
    for one in found:
        target = one["spec"]["scaleTargetRef"]
        if target["kind"] == "Deployment":
            keda = one["metadata"].get("labels", {}).get("scaledobject.keda.sh/name")
            names[target["name"]] = (
                f"ScaledObject {keda}" if keda else f"HPA {one['metadata']['name']}"
            )
    return names


def warning_events(api: KubernetesApi, name: str = "") -> Sequence[Any]:
    """Return Warning events of one object or of all, newest last; none if forbidden."""
    about = f",involvedObject.name={name}" if name else ""
    try:
        found = api.get(api.of("events"), fieldSelector=f"type=Warning{about}", limit="500")[
            "items"
        ]
    except HpqError:
        return []
    return sorted(found, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
