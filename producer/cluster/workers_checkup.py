"""What `hpq doctor --cluster` says of the workers: their Deployments, ConfigMaps, pods and GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpq.errors import HpqError, NotFound
from producer.checkup import Finding
from producer.cluster.access import kubectl_of
from producer.cluster.api import Api
from producer.cluster.findings import good
from producer.cluster.objects import GPU, WORKERS, Pod, Workers, container_of
from producer.cluster.pods import Crew, autoscaler_of

_QUOTA = re.compile(r"quota (\S+) is used up")
_RANGE = re.compile(r"(maximum|minimum) \S+ usage per|limit to request ratio per")


def workers_checkup(api: Api, crew: Crew) -> Iterator[Finding]:
    """Look at each class of workers, and whether a node has what they want."""
    for workers in crew.workers:
        yield from _workers(api, crew, workers)
    yield from _gpus(api, crew)


def _workers(api: Api, crew: Crew, workers: Workers) -> Iterator[Finding]:
    called = f"Deployment {workers.name} (class {workers.queue})"
    if workers.reason:
        yield Finding(
            level="wrong",
            code="pods-refused",
            what=f"{called}: {workers.reason}",
            remedy=_of_refusal(api, workers),
        )
    counts = f"{called}: {workers.wanted} pods wanted, {workers.ready} ready"
    if workers.ready >= workers.wanted:
        yield good("pods", counts)
    else:
        yield Finding(
            level="note",
            code="pods-not-ready",
            what=counts,
            remedy=f"{kubectl_of(api)} logs deployment/{workers.name} says why",
        )
    if name := autoscaler_of(api, workers.name):
        yield good("autoscaled", f"{name} decides how many pods {workers.name} has")
    for name in workers.settings:
        yield from _settings(api, workers, name)
    for pod in crew.pods:
        if pod.queue == workers.queue and pod.reason:
            yield Finding(
                level="wrong",
                code="pod-trouble",
                what=f"pod {pod.name}, {pod.phase}: {pod.reason}",
                remedy=_of_pod(api, workers, pod),
            )


def _of_refusal(api: Api, workers: Workers) -> str:
    """What to do where the API server refuses to make a pod."""
    kubectl = kubectl_of(api)
    if quota := _QUOTA.search(workers.reason):
        fewer = f"hpq scale {workers.there}{workers.flag}{api.flags}"
        return f"raise the quota: {kubectl} edit resourcequota {quota[1]}, or {fewer}"
    if _RANGE.search(workers.reason):
        return f"{kubectl} describe limitrange; change it, or what {workers.name} asks for"
    return f"{kubectl} describe replicaset -l {workers.selector}"


def _settings(api: Api, workers: Workers, name: str) -> Iterator[Finding]:
    """A ConfigMap that was edited in place: pods that run do not hear of it."""
    try:
        meta = api.get(api.of(f"configmaps/{name}"))["metadata"]
        pods = api.get(api.of("pods"), labelSelector=WORKERS)["items"]
    except NotFound:
        yield Finding(
            level="wrong",
            code="settings-missing",
            what=f"ConfigMap {name} of Deployment {workers.name} is not there: no pod can start",
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
            remedy=f"{kubectl_of(api)} rollout restart deployment/{workers.name}",
        )


def _reads(pod: dict[str, dict[str, object]], name: str) -> bool:
    """Whether it is that ConfigMap's; one of before an apply has another."""
    told = container_of(pod["spec"]).get("envFrom", ())
    return any(one.get("configMapRef", {}).get("name") == name for one in told)


def _of_pod(api: Api, workers: Workers, pod: Pod) -> str:
    see = f"{kubectl_of(api)} describe pod {pod.name}"
    if "Image" in pod.reason:
        return (
            f"the node cannot pull {workers.image}: push it, or correct it"
            f" (hpq manifests --namespace {api.namespace} --image …); a private registry wants"
            f" imagePullSecrets; {see}"
        )
    if f"Insufficient {GPU}" in pod.reason:
        return (
            f"no node has {workers.gpus} free {GPU}: fewer pods"
            f" (hpq scale N{workers.flag}{api.flags}), more nodes, or the GPU operator's device"
            f" plugin is missing; without GPUs: hpq manifests --namespace {api.namespace}"
            + (f" --with class={workers.queue}:0" if workers.flag else " --gpus 0")
        )
    if pod.reason.startswith("OOMKilled"):
        return f"raise the memory limit of Deployment {workers.name}, or train with smaller batches"
    if pod.reason.startswith("CrashLoopBackOff"):
        return f"{kubectl_of(api)} logs {pod.name} --previous"
    return see


def _gpus(api: Api, crew: Crew) -> Iterator[Finding]:
    if not any(workers.gpus for workers in crew.workers):
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
        yield good("gpus", f"{GPU}: {total} on {sum(map(bool, has.values()))} of {len(has)} nodes")
        return
    yield Finding(
        level="wrong",
        code="gpus-missing",
        what=f"none of {len(has)} nodes has {GPU}, and the workers want some",
        remedy="install the NVIDIA GPU operator; workers without GPUs: hpq manifests --namespace"
        f" {api.namespace} --gpus 0",
    )
