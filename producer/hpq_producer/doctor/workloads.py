"""Check a cluster's Redis and its volume, its workers and GPUs, for `hpq doctor --cluster`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpq.codes import Code
from hpq.errors import HpqError, NotFound
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import GPU, WORKER_SELECTOR, Deployment, Pod, container_of, pod_of
from hpq_producer.cluster.pods import ClusterSnapshot, autoscaler_of, warning_events
from hpq_producer.cluster.redis_access import SERVICE, kubectl_of, recreate_secrets
from hpq_producer.doctor.local import Finding


def good_finding(code: Code, what: str) -> Finding:
    """All is well."""
    return Finding(level="good", code=code, what=what)


_NAMED = f"app.kubernetes.io/name={SERVICE}"
_REVISION = "controller-revision-hash"


def redis_checkup(api: KubernetesApi) -> Iterator[Finding]:
    """Look at each StatefulSet that is Redis's, and at the claims of the namespace."""
    try:
        raws = api.get(api.of("apps/v1/statefulsets"), labelSelector=_NAMED)["items"]
        pods = api.get(api.of("pods"), labelSelector=_NAMED)["items"]
        claims = api.get(api.of("persistentvolumeclaims"))["items"]
    except HpqError as error:
        yield Finding(
            level="note", code="volume-unknown", what=f"Redis's data volume is not known: {error}"
        )
        return
    for raw in raws:
        name = raw["metadata"]["name"]
        if not raw.get("status", {}).get("readyReplicas", 0):
            yield _not_ready(api, raw, pods)
        if not raw["spec"].get("volumeClaimTemplates"):
            yield Finding(
                level="poor",
                code="volume-missing",
                what=f"StatefulSet {name} has no volume: a pod that goes takes all sweeps with it",
                remedy="give it a volumeClaimTemplate named data",
            )
    for claim in claims:
        yield _claim(api, claim)


def _not_ready(api: KubernetesApi, raw: Any, pods: list[Any]) -> Finding:
    name = raw["metadata"]["name"]
    what, kubectl = f"StatefulSet {name}: no pod is ready", kubectl_of(api)
    pod = next((one for one in pods if one["metadata"]["name"] == f"{name}-0"), None)
    if pod is None:
        why = f"{kubectl} describe statefulset {name}"
        return Finding(
            level="wrong", code="redis-pod-missing", what=f"{what}: none is there", remedy=why
        )
    seen = pod_of(pod, warning_events(api, f"{name}-0"))
    reason = seen.reason
    what += f": {name}-0: {reason or seen.phase}"
    wanted = raw.get("status", {}).get("updateRevision")
    is_old = wanted not in (None, pod["metadata"].get("labels", {}).get(_REVISION))
    if is_old and seen.phase != "Terminating":
        what += "; it is as it was before the newest change, which waits for it to become ready"
        remedy = f"{kubectl} delete pod {name}-0"
    elif reason.startswith("secret ") and reason.endswith(" not found"):
        remedy = recreate_secrets(api)
    else:
        remedy = f"{kubectl} describe pod {name}-0"
    return Finding(level="wrong", code="redis-pod-not-ready", what=what, remedy=remedy)


def _claim(api: KubernetesApi, claim: dict[str, dict[str, object]]) -> Finding:
    name, phase = claim["metadata"]["name"], claim["status"].get("phase")
    if phase == "Bound":
        return good_finding("volume", f"PersistentVolumeClaim {name} is bound")
    return Finding(
        level="wrong",
        code="volume-unbound",
        what=f"PersistentVolumeClaim {name} is {phase}",
        remedy=f"{kubectl_of(api)} describe pvc {name}; without a default StorageClass, set"
        " storageClassName",
    )


_QUOTA = re.compile(r"quota (\S+) is used up")
_RANGE = re.compile(r"(maximum|minimum) \S+ usage per|limit to request ratio per")


def workers_checkup(api: KubernetesApi, cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Look at each class of workers, and whether a node has what they want."""
    for deployment in cluster.deployments:
        yield from _workers(api, cluster, deployment)
    yield from _gpus(api, cluster)


def _workers(
    api: KubernetesApi, cluster: ClusterSnapshot, deployment: Deployment
) -> Iterator[Finding]:
    called = f"Deployment {deployment.name} (class {deployment.queue})"
    if deployment.reason:
        yield Finding(
            level="wrong",
            code="pods-refused",
            what=f"{called}: {deployment.reason}",
            remedy=_of_refusal(api, deployment),
        )
    counts = f"{called}: {deployment.wanted} pods wanted, {deployment.ready} ready"
    if deployment.ready >= deployment.wanted:
        yield good_finding("pods", counts)
    else:
        yield Finding(
            level="note",
            code="pods-not-ready",
            what=counts,
            remedy=f"{kubectl_of(api)} logs deployment/{deployment.name} says why",
        )
    if name := autoscaler_of(api, deployment.name):
        yield good_finding("autoscaled", f"{name} decides how many pods {deployment.name} has")
    for name in deployment.settings:
        yield from _settings(api, deployment, name)
    for pod in cluster.pods:
        if pod.queue == deployment.queue and pod.reason:
            yield Finding(
                level="wrong",
                code="pod-trouble",
                what=f"pod {pod.name}, {pod.phase}: {pod.reason}",
                remedy=_of_pod(api, deployment, pod),
            )


def _of_refusal(api: KubernetesApi, deployment: Deployment) -> str:
    """What to do where the API server refuses to make a pod."""
    kubectl = kubectl_of(api)
    if quota := _QUOTA.search(deployment.reason):
        fewer = f"hpq scale {deployment.present}{deployment.flag}{api.flags}"
        return f"raise the quota: {kubectl} edit resourcequota {quota[1]}, or {fewer}"
    if _RANGE.search(deployment.reason):
        return f"{kubectl} describe limitrange; change it, or what {deployment.name} asks for"
    return f"{kubectl} describe replicaset -l {deployment.selector}"


def _settings(api: KubernetesApi, deployment: Deployment, name: str) -> Iterator[Finding]:
    """A ConfigMap that was edited in place: pods that run do not hear of it."""
    try:
        meta = api.get(api.of(f"configmaps/{name}"))["metadata"]
        pods = api.get(api.of("pods"), labelSelector=WORKER_SELECTOR)["items"]
    except NotFound:
        yield Finding(
            level="wrong",
            code="settings-missing",
            what=f"ConfigMap {name} of Deployment {deployment.name} is not there: no pod can start",
            remedy="apply the manifests again, with the flags of before: hpq manifests --namespace"
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
        yield Finding(
            level="poor",
            code="settings-stale",
            what=f"ConfigMap {name} was edited after {', '.join(older[:3])} began, which still have"
            " the settings of before",
            remedy=f"{kubectl_of(api)} rollout restart deployment/{deployment.name}",
        )


def _reads(pod: dict[str, dict[str, object]], name: str) -> bool:
    """Whether it is that ConfigMap's; one of before an apply has another."""
    sources = container_of(pod["spec"]).get("envFrom", ())
    return any(one.get("configMapRef", {}).get("name") == name for one in sources)


def _of_pod(api: KubernetesApi, deployment: Deployment, pod: Pod) -> str:
    see = f"{kubectl_of(api)} describe pod {pod.name}"
    if "Image" in pod.reason:
        return (
            f"the node cannot pull {deployment.image}: push it, or correct it"
            f" (hpq manifests --namespace {api.namespace} --image …); a private registry wants"
            f" imagePullSecrets; {see}"
        )
    if f"Insufficient {GPU}" in pod.reason:
        return (
            f"no node has {deployment.gpus} free {GPU}: fewer pods"
            f" (hpq scale N{deployment.flag}{api.flags}), more nodes, or the GPU operator's device"
            f" plugin is missing; without GPUs: hpq manifests --namespace {api.namespace}"
            + (f" --with class={deployment.queue}:0" if deployment.flag else " --gpus 0")
        )
    if pod.reason.startswith("OOMKilled"):
        return (
            f"raise the memory limit of Deployment {deployment.name}, or train with smaller batches"
        )
    if pod.reason.startswith("CrashLoopBackOff"):
        return f"{kubectl_of(api)} logs {pod.name} --previous"
    return see


def _gpus(api: KubernetesApi, cluster: ClusterSnapshot) -> Iterator[Finding]:
    if not any(deployment.gpus for deployment in cluster.deployments):
        yield Finding(level="note", code="no-gpu", what="no Deployment of workers asks for a GPU")
        return
    try:
        nodes = api.get("/api/v1/nodes")["items"]
    except HpqError:  # nodes are the cluster's; most users may not list them
        yield Finding(
            level="note",
            code="gpus-unknown",
            what="which nodes have GPUs is not known: you may not list nodes",
        )
        return
    has = {n["metadata"]["name"]: int(n["status"]["allocatable"].get(GPU, 0)) for n in nodes}
    total = sum(has.values())
    if total:
        yield good_finding(
            "gpus", f"{GPU}: {total} on {sum(map(bool, has.values()))} of {len(has)} nodes"
        )
        return
    yield Finding(
        level="wrong",
        code="gpus-missing",
        what=f"none of {len(has)} nodes has {GPU}, and the workers want some",
        remedy="install the NVIDIA GPU operator; workers without GPUs: hpq manifests --namespace"
        f" {api.namespace} --gpus 0",
    )
