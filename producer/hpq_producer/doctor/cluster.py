"""Check a cluster for `hpq doctor --cluster`: access, Redis, Secrets, workers."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.code.signing import fingerprint
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import pod_of, refusal
from hpq_producer.cluster.pods import ClusterStatus, autoscalers, read_cluster, warning_events
from hpq_producer.cluster.redis_access import (
    SERVICE,
    RedisService,
    expected_secrets,
    kubectl_of,
    recreate_secrets,
)
from hpq_producer.doctor.local import Finding, good, note, poor, wrong
from hpq_producer.terminal.text import trials_of


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
        why = _last_warning(api, SERVICE, "FailedCreate")
        remedy = _remedies(why.removeprefix(": ")) + describe
        yield wrong("redis-pod-missing", f"StatefulSet {SERVICE} has no pod{why}", remedy)
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
        if not name.startswith(("hpq-", f"data-{SERVICE}-")):
            continue  # of another application
        if phase == "Bound":
            yield good("volume", f"PersistentVolumeClaim {name} is bound")
        else:
            why = _last_warning(api, name, "ProvisioningFailed")
            if phase == "Pending" and not (why or raws):
                continue  # many classes bind a claim only when its pod exists
            remedy = f"{kubectl} describe pvc {name}"
            if phase == "Pending":  # a claim that was bound may have data
                owner = f"statefulset/{SERVICE} " if name.startswith("data-") else ""
                remedy = (
                    f"compare {kubectl} describe pvc {name} with kubectl get storageclass; a claim"
                    f" keeps its class, so for another: {kubectl} delete {owner}pvc/{name}, then"
                    " apply with that storage_class"
                )
            yield wrong("volume-unbound", f"PersistentVolumeClaim {name} is {phase}{why}", remedy)


def _last_warning(api: KubernetesApi, name: str, reason: str) -> str:
    """Return ": MESSAGE" of the last warning about an object; "" if there is none."""
    found = [e for e in warning_events(api, name) if e.get("reason") == reason]
    return f": {refusal(str(found[-1].get('message', '')))}" if found else ""


# The start of a pod's reason, and what to do about it.
_REMEDIES = {
    "ErrImagePull": "push the image to the registry; a private one needs imagePullSecrets",
    "ImagePullBackOff": "push the image to the registry; a private one needs imagePullSecrets",
    "Insufficient nvidia.com/gpu": (
        "scale to fewer pods, add nodes, or install the NVIDIA GPU operator; without GPUs:"
        " hpq manifests --gpus 0"
    ),
    "OOMKilled": "raise the memory limit, or train with smaller batches",
    "quota ": "scale to fewer pods, or ask for a larger quota",
    "without limits.cpu": (
        "set cpu_limit of the queue, and of redis, in a cluster file (hpq manifests --example)"
    ),
    "CrashLoopBackOff": "the log of its last attempt: kubectl logs --previous",
}


def _workers(api: KubernetesApi, cluster: ClusterStatus) -> Iterator[Finding]:
    """Check each Deployment of workers, and its pods."""
    kubectl, scaled_by = kubectl_of(api), autoscalers(api)
    for one in cluster.deployments:
        label = f"Deployment {one.name} (queue {one.queue})"
        if one.reason:
            remedy = _remedies(one.reason) + f"{kubectl} get events --field-selector type=Warning"
            yield wrong("pods-refused", f"{label}: {one.reason}", remedy)
        counts = f"{label}: {trials_of(one.wanted, 'pod')} wanted, {one.ready} ready"
        if one.ready >= one.wanted:
            yield good("pods", counts)
        else:
            yield note("pods-not-ready", counts, f"{kubectl} logs deployment/{one.name}")
        if name := scaled_by.get(one.name):
            yield good("autoscaled", f"{name} sets the number of pods of {one.name}")
    for pod in cluster.pods:
        if pod.reason:
            remedy = f"{_remedies(pod.reason)}{kubectl} describe pod {pod.name}"
            yield wrong("pod-trouble", f"pod {pod.name}, {pod.phase}: {pod.reason}", remedy)


def _remedies(reason: str) -> str:
    return "".join(f"{text}; " for mark, text in _REMEDIES.items() if reason.startswith(mark))


def keys_agree(ours: str, key: str) -> Finding | None:
    """Compare the code key here with that of the connection; None if one of them is not known."""
    theirs = fingerprint(key.encode())
    if not theirs or not ours:
        return None
    if ours == theirs:
        return good("code-key", f"the code key used here is that of the connection, {ours}")
    return poor(
        "code-key-differs",
        f"the connection has code key {theirs}, and yours is {ours}: workers reject code"
        " that you sign",
        "unset HPQ_CODE_KEY",
    )
