"""What `hpq doctor --cluster` says of Redis's StatefulSet, its pod and its volume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpq.errors import HpqError
from producer.checkup import Finding
from producer.cluster.access import SERVICE, anew, kubectl_of
from producer.cluster.api import Api
from producer.cluster.findings import good
from producer.cluster.objects import pod_of
from producer.cluster.pods import warnings

_NAMED = f"app.kubernetes.io/name={SERVICE}"
_REVISION = "controller-revision-hash"


def redis_checkup(api: Api) -> Iterator[Finding]:
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


def _not_ready(api: Api, raw: Any, pods: list[Any]) -> Finding:
    name = raw["metadata"]["name"]
    what, kubectl = f"StatefulSet {name}: no pod is ready", kubectl_of(api)
    pod = next((one for one in pods if one["metadata"]["name"] == f"{name}-0"), None)
    if pod is None:
        why = f"{kubectl} describe statefulset {name}"
        return Finding(
            level="wrong", code="redis-pod-missing", what=f"{what}: none is there", remedy=why
        )
    seen = pod_of(pod, warnings(api, f"{name}-0"))
    reason = seen.reason
    what += f": {name}-0: {reason or seen.phase}"
    wanted = raw.get("status", {}).get("updateRevision")
    is_old = wanted not in (None, pod["metadata"].get("labels", {}).get(_REVISION))
    if is_old and seen.phase != "Terminating":
        what += "; it is as it was before the newest change, which waits for it to become ready"
        remedy = f"{kubectl} delete pod {name}-0"
    elif reason.startswith("secret ") and reason.endswith(" not found"):
        remedy = anew(api)
    else:
        remedy = f"{kubectl} describe pod {name}-0"
    return Finding(level="wrong", code="redis-pod-not-ready", what=what, remedy=remedy)


def _claim(api: Api, claim: dict[str, dict[str, object]]) -> Finding:
    name, phase = claim["metadata"]["name"], claim["status"].get("phase")
    if phase == "Bound":
        return good("volume", f"PersistentVolumeClaim {name} is bound")
    return Finding(
        level="wrong",
        code="volume-unbound",
        what=f"PersistentVolumeClaim {name} is {phase}",
        remedy=f"{kubectl_of(api)} describe pvc {name}; without a default StorageClass, set"
        " storageClassName",
    )
