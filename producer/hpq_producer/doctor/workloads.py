"""Check a cluster's Redis and its volume, its workers and GPUs, for `hpq doctor --cluster`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpq.errors import HpqError, NotFound
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import GPU, WORKER_SELECTOR, Deployment, Pod, container_of, pod_of
from hpq_producer.cluster.pods import ClusterStatus, autoscaler_of, warning_events
from hpq_producer.cluster.redis_access import SERVICE, kubectl_of, recreate_secrets
from hpq_producer.doctor.local import Finding, good, note, poor, wrong

_NAMED = f"app.kubernetes.io/name={SERVICE}"
_REVISION = "controller-revision-hash"


def redis_checkup(api: KubernetesApi) -> Iterator[Finding]:
    """Check each StatefulSet of Redis, and the volume claims of the namespace."""
    try:
        raws = api.get(api.of("apps/v1/statefulsets"), labelSelector=_NAMED)["items"]
        pods = api.get(api.of("pods"), labelSelector=_NAMED)["items"]
        claims = api.get(api.of("persistentvolumeclaims"))["items"]
    except HpqError as error:
        yield note("volume-unknown", f"cannot read Redis's data volume: {error}")
        return
    for raw in raws:
        name = raw["metadata"]["name"]
        if not raw.get("status", {}).get("readyReplicas", 0):
            yield _not_ready(api, raw, pods)
        if not raw["spec"].get("volumeClaimTemplates"):
            yield poor(
                "volume-missing",
                f"StatefulSet {name} has no volume: all sweeps are lost with its pod",
                "add a volumeClaimTemplate named data",
            )
    for claim in claims:
        yield _claim(api, claim)


def _not_ready(api: KubernetesApi, raw: Any, pods: list[Any]) -> Finding:
    name = raw["metadata"]["name"]
    what, kubectl = f"StatefulSet {name}: no pod is ready", kubectl_of(api)
    raw_pod = next((one for one in pods if one["metadata"]["name"] == f"{name}-0"), None)
    if raw_pod is None:
        remedy = f"{kubectl} describe statefulset {name}"
        what += ", because it has no pod"
        return wrong("redis-pod-missing", what, remedy)
    pod = pod_of(raw_pod, warning_events(api, f"{name}-0"))
    reason = pod.reason
    what += f": {name}-0: {reason or pod.phase}"
    wanted = raw.get("status", {}).get("updateRevision")
    is_old = wanted not in (None, raw_pod["metadata"].get("labels", {}).get(_REVISION))
    if is_old and pod.phase != "Terminating":
        what += "; the newest change is applied only after this old pod is ready or deleted"
        remedy = f"{kubectl} delete pod {name}-0"
    elif reason.startswith("secret ") and reason.endswith(" not found"):
        remedy = recreate_secrets(api)
    else:
        remedy = f"{kubectl} describe pod {name}-0"
    return wrong("redis-pod-not-ready", what, remedy)


def _claim(api: KubernetesApi, claim: dict[str, dict[str, object]]) -> Finding:
    name, phase = claim["metadata"]["name"], claim["status"].get("phase")
    if phase == "Bound":
        return good("volume", f"PersistentVolumeClaim {name} is bound")
    return wrong(
        "volume-unbound",
        f"PersistentVolumeClaim {name} is {phase}",
        f"{kubectl_of(api)} describe pvc {name}; without a default StorageClass, set"
        " storageClassName",
    )


_QUOTA = re.compile(r"quota (\S+) is exhausted")
_RANGE = re.compile(r"(maximum|minimum) \S+ usage per|limit to request ratio per")


def workers_checkup(api: KubernetesApi, cluster: ClusterStatus) -> Iterator[Finding]:
    """Check each Deployment of workers, and whether a node has the GPUs they request."""
    for deployment in cluster.deployments:
        yield from _workers(api, cluster, deployment)
    yield from _gpus(api, cluster)


def _workers(
    api: KubernetesApi, cluster: ClusterStatus, deployment: Deployment
) -> Iterator[Finding]:
    label = f"Deployment {deployment.name} (queue {deployment.queue})"
    if deployment.reason:
        yield wrong(
            "pods-refused", f"{label}: {deployment.reason}", _refusal_remedy(api, deployment)
        )
    counts = f"{label}: {deployment.wanted} pods wanted, {deployment.ready} ready"
    if deployment.ready >= deployment.wanted:
        yield good("pods", counts)
    else:
        yield note(
            "pods-not-ready",
            counts,
            f"{kubectl_of(api)} logs deployment/{deployment.name} shows why",
        )
    if name := autoscaler_of(api, deployment.name):
        yield good("autoscaled", f"{name} sets the number of pods of {deployment.name}")
    for name in deployment.settings:
        yield from _settings(api, deployment, name)
    for pod in cluster.pods:
        if pod.queue == deployment.queue and pod.reason:
            yield wrong(
                "pod-trouble",
                f"pod {pod.name}, {pod.phase}: {pod.reason}",
                _pod_remedy(api, deployment, pod),
            )


def _refusal_remedy(api: KubernetesApi, deployment: Deployment) -> str:
    """Return what to do if the API server refuses to create a pod."""
    kubectl = kubectl_of(api)
    if quota := _QUOTA.search(deployment.reason):
        fewer = f"hpq scale {deployment.present}{deployment.flag}{api.flags}"
        return f"raise the quota: {kubectl} edit resourcequota {quota[1]}, or {fewer}"
    if _RANGE.search(deployment.reason):
        return f"{kubectl} describe limitrange; change it, or the requests of {deployment.name}"
    return f"{kubectl} describe replicaset -l {deployment.selector}"


def _settings(api: KubernetesApi, deployment: Deployment, name: str) -> Iterator[Finding]:
    """Check for a missing ConfigMap, or one that was edited after running pods read it."""
    try:
        meta = api.get(api.of(f"configmaps/{name}"))["metadata"]
        pods = api.get(api.of("pods"), labelSelector=WORKER_SELECTOR)["items"]
    except NotFound:
        yield wrong(
            "settings-missing",
            f"ConfigMap {name} of Deployment {deployment.name} is missing: no pod can start",
            "apply the manifests again with the same flags: hpq manifests --namespace"
            f" {api.namespace} … | {kubectl_of(api)} apply -f -",
        )
        return
    except HpqError:
        return
    edited = max((str(one.get("time", "")) for one in meta.get("managedFields", ())), default="")
    older = [
        pod["metadata"]["name"]
        for pod in pods
        if str(pod["metadata"].get("creationTimestamp", "")) < edited and _reads(pod, name)
    ]
    if older:
        yield poor(
            "settings-stale",
            f"ConfigMap {name} was edited after {', '.join(older[:3])} started; these pods"
            " have the old settings",
            f"{kubectl_of(api)} rollout restart deployment/{deployment.name}",
        )


def _reads(pod: dict[str, dict[str, object]], name: str) -> bool:
    """Return whether a pod reads this ConfigMap; a pod of an older apply reads another one."""
    sources = container_of(pod["spec"]).get("envFrom", ())
    return any(one.get("configMapRef", {}).get("name") == name for one in sources)


def _pod_remedy(api: KubernetesApi, deployment: Deployment, pod: Pod) -> str:
    describe = f"{kubectl_of(api)} describe pod {pod.name}"
    if "Image" in pod.reason:
        return (
            f"the node cannot pull {deployment.image}: push it, or correct it"
            f" (hpq manifests --namespace {api.namespace} --image …); a private registry needs"
            f" imagePullSecrets; {describe}"
        )
    if f"Insufficient {GPU}" in pod.reason:
        return (
            f"no node has {deployment.gpus} free {GPU}: run fewer pods"
            f" (hpq scale N{deployment.flag}{api.flags}), add nodes, or install the GPU operator's"
            f" device plugin; without GPUs: hpq manifests --namespace {api.namespace}"
            + (f" --with queue={deployment.queue}:0" if deployment.flag else " --gpus 0")
        )
    if pod.reason.startswith("OOMKilled"):
        return (
            f"raise the memory limit of Deployment {deployment.name}, or train with smaller batches"
        )
    if pod.reason.startswith("CrashLoopBackOff"):
        return f"{kubectl_of(api)} logs {pod.name} --previous"
    return describe


def _gpus(api: KubernetesApi, cluster: ClusterStatus) -> Iterator[Finding]:
    if not any(deployment.gpus for deployment in cluster.deployments):
        yield note("no-gpu", "no Deployment of workers requests a GPU")
        return
    try:
        nodes = api.get("/api/v1/nodes")["items"]
    except HpqError:  # most users may not list nodes
        yield note("gpus-unknown", "unknown which nodes have GPUs: you may not list nodes")
        return
    gpus = {n["metadata"]["name"]: int(n["status"]["allocatable"].get(GPU, 0)) for n in nodes}
    total = sum(gpus.values())
    if total:
        yield good(
            "gpus", f"{GPU}: {total} on {sum(map(bool, gpus.values()))} of {len(gpus)} nodes"
        )
        return
    yield wrong(
        "gpus-missing",
        f"none of {len(gpus)} nodes has {GPU}, which the workers request",
        "install the NVIDIA GPU operator; workers without GPUs: hpq manifests --namespace"
        f" {api.namespace} --gpus 0",
    )
