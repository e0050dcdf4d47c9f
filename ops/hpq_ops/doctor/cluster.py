"""Check a cluster for `hpq doctor --cluster`: access, Redis, Secrets, workers."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.code.signing import fingerprint
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.objects import NODE_LOST, Pod, pod_of, refusal
from hpq.kubernetes.pods import ClusterStatus, autoscalers, read_cluster, warning_events
from hpq.kubernetes.redis_access import (
    SERVICE,
    RedisService,
    expected_secrets,
    kubectl_of,
    recreate_secrets,
)
from hpq_ops.doctor.checkup import Finding, good, note, poor, wrong
from hpq_views.text.text import trials_of
from hpq_views.why.pods import explain_pods, remedy_of


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
        remedy = remedy_of(why) + describe
        yield wrong("redis-pod-missing", f"StatefulSet {SERVICE} has no pod{why}", remedy)
    for raw in raws:
        pod = pod_of(raw, warning_events(api, raw["metadata"]["name"]))
        if not pod.is_ready:
            yield _unready_redis(pod, kubectl)
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


def _unready_redis(pod: Pod, kubectl: str) -> Finding:
    node = f" on node {pod.node}" if pod.node else ""
    remedy = f"{kubectl} describe pod {pod.name}"
    if pod.reason == NODE_LOST:
        remedy += "; its volume may bind it to this node: bring the node back"
    else:
        remedy += "; if the manifests have changed since it started:"
        remedy += f" {kubectl} delete pod {pod.name}"
    what = f"pod {pod.name}{node} is not ready: {pod.reason or pod.phase}"
    return wrong("redis-pod-not-ready", what, remedy)


def _last_warning(api: KubernetesApi, name: str, reason: str) -> str:
    """Return ": MESSAGE" of the last warning about an object; "" if there is none."""
    found = [e for e in warning_events(api, name) if e.get("reason") == reason]
    return f": {refusal(str(found[-1].get('message', '')))}" if found else ""


def _workers(api: KubernetesApi, cluster: ClusterStatus) -> Iterator[Finding]:
    """Check each Deployment of workers, and its pods."""
    scaled_by = autoscalers(api)
    for one in cluster.deployments:
        if one.ready >= one.wanted:
            counts = f"{trials_of(one.wanted, 'pod')} wanted, {one.ready} ready"
            yield good("pods", f"Deployment {one.name} (queue {one.queue}): {counts}")
        for why in explain_pods(cluster, one.queue):
            is_well = why.code in ("pods-starting", "scaled-to-0")
            yield note(why.code, why.text) if is_well else wrong(why.code, why.text)
        if name := scaled_by.get(one.name):
            yield good("autoscaled", f"{name} sets the number of pods of {one.name}")


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
