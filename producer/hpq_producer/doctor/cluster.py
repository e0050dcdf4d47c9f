"""Check a cluster for `hpq doctor --cluster`: access, Redis, Secrets, workers."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.code.signing import fingerprint
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import pod_of
from hpq_producer.cluster.pods import ClusterStatus, autoscaler_of, read_cluster, warning_events
from hpq_producer.cluster.redis_access import (
    SERVICE,
    RedisService,
    expected_secrets,
    kubectl_of,
    recreate_secrets,
)
from hpq_producer.doctor.local import Finding, good, note, poor, wrong


def cluster_checkup(api: KubernetesApi) -> Iterator[Finding]:
    """Yield all findings; what these credentials may not read is a finding, too."""
    try:
        version = api.get("/version")["gitVersion"]
        api.get(api.of("pods"), limit="1")
    except HpqError as error:
        yield Finding.of(error)
        if not isinstance(error, Forbidden) or error.code == "cluster-credentials-refused":
            return
    else:
        yield good(
            "cluster-answers", f"{api.server} answers: Kubernetes {version}, context {api.context}"
        )
    try:
        RedisService(api)
        yield good("namespace", f"namespace {api.namespace} has Service {SERVICE}")
        cluster = read_cluster(api)
    except HpqError as error:
        yield Finding.of(error)
        return
    yield from _redis(api)
    yield from _secrets(api)
    yield from _workers(api, cluster)


def _secrets(api: KubernetesApi) -> Iterator[Finding]:
    """Check that the Secrets that pods mount exist."""
    remedy = recreate_secrets(api)
    for name in expected_secrets(api):
        try:
            api.get(api.of(f"secrets/{name}"))
        except NotFound:
            yield wrong("secret-missing", f"Secret {name} is missing", remedy)
        except Forbidden:
            continue  # a pod that lacks it has a finding of its own
        except OutOfReach as error:
            yield Finding.of(error)


def _redis(api: KubernetesApi) -> Iterator[Finding]:
    """Check the pods of Redis, and the volume claims of the namespace."""
    kubectl = kubectl_of(api)
    try:
        raws = api.get(api.of("pods"), labelSelector=f"app.kubernetes.io/name={SERVICE}")["items"]
        claims = api.get(api.of("persistentvolumeclaims"))["items"]
    except HpqError as error:
        yield note("volume-unknown", f"cannot read Redis's data volume: {error}")
        return
    if not raws:
        describe = f"{kubectl} describe statefulset {SERVICE}"
        yield wrong("redis-pod-missing", f"StatefulSet {SERVICE} has no pod", describe)
    for raw in raws:
        pod = pod_of(raw, warning_events(api, raw["metadata"]["name"]))
        if not pod.is_ready:
            yield wrong(
                "redis-pod-not-ready",
                f"pod {pod.name} is not ready: {pod.reason or pod.phase}",
                f"{kubectl} describe pod {pod.name}; if the manifests have changed since it"
                f" started: {kubectl} delete pod {pod.name}",
            )
    for claim in claims:
        name, phase = claim["metadata"]["name"], claim["status"].get("phase")
        if phase == "Bound":
            yield good("volume", f"PersistentVolumeClaim {name} is bound")
        else:
            yield wrong(
                "volume-unbound",
                f"PersistentVolumeClaim {name} is {phase}",
                f"{kubectl} describe pvc {name}; without a default StorageClass, set"
                " storageClassName",
            )


# The start of a pod's reason, and what to do about it.
_REMEDIES = {
    "ErrImagePull": "push the image to the registry; a private one needs imagePullSecrets",
    "ImagePullBackOff": "push the image to the registry; a private one needs imagePullSecrets",
    "Insufficient nvidia.com/gpu": (
        "hpq scale to fewer pods, add nodes, or install the NVIDIA GPU operator; without GPUs:"
        " hpq manifests --gpus 0"
    ),
    "OOMKilled": "raise the memory limit, or train with smaller batches",
    "CrashLoopBackOff": "the log of its last attempt: kubectl logs --previous",
}


def _workers(api: KubernetesApi, cluster: ClusterStatus) -> Iterator[Finding]:
    """Check each Deployment of workers, and its pods."""
    kubectl = kubectl_of(api)
    for one in cluster.deployments:
        label = f"Deployment {one.name} (queue {one.queue})"
        if one.reason:
            remedy = f"{kubectl} describe replicaset -l {one.selector}"
            yield wrong("pods-refused", f"{label}: {one.reason}", remedy)
        counts = f"{label}: {one.wanted} pods wanted, {one.ready} ready"
        if one.ready >= one.wanted:
            yield good("pods", counts)
        else:
            yield note("pods-not-ready", counts, f"{kubectl} logs deployment/{one.name}")
        if name := autoscaler_of(api, one.name):
            yield good("autoscaled", f"{name} sets the number of pods of {one.name}")
    for pod in cluster.pods:
        if pod.reason:
            starts = (text for mark, text in _REMEDIES.items() if pod.reason.startswith(mark))
            remedy = "".join(f"{text}; " for text in starts)
            remedy += f"{kubectl} describe pod {pod.name}"
            yield wrong("pod-trouble", f"pod {pod.name}, {pod.phase}: {pod.reason}", remedy)


def keys_agree(ours: str, key: bytes | None, flags: str) -> Finding | None:
    """Compare the code key here with that of the workers; None if one of them is not known.

    `flags` are `KubernetesApi.flags`.
    """
    theirs = fingerprint(key)
    if not theirs or not ours:
        return None
    if ours == theirs:
        return good("code-key", f"Secret hpq-code-key has the code key used here, {ours}")
    return poor(
        "code-key-differs",
        f"Secret hpq-code-key has code key {theirs}, and yours is {ours}: workers reject code"
        " that you sign",
        f"unset HPQ_CODE_KEY and run hpq connect{flags}",
    )
