"""The objects of a queue: its Deployment, and with KEDA its scaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from hpq.store.keys import Keys
from hpq_producer.manifests.cluster_file import DEFAULT, GPU, ClusterFile, QueueKeys, cpus
from hpq_producer.manifests.components import Patch, add, delete, merge, replace
from hpq_producer.shipped import shipped

# Per GPU of a pod, as in k8s/worker/deployment.yaml: CPUs; GiB of requested memory, of the memory
# limit, and of /dev/shm, which counts against that limit.
_CPUS, _ASKED_GI, _MOST_GI, _SHM_GI = 2, 8, 16, 2
_PER_TRIAL = "HPQ_GPUS_PER_TRIAL"


def added_queues(file: ClusterFile) -> list[str]:
    """Return the queues besides the one of k8s/base."""
    return [name for name in file.queues if name != DEFAULT]


def deployment(queue: str) -> str:
    """Return the name of a queue's Deployment, its disruption budget and its scaler."""
    return "hpq-worker" if queue == DEFAULT else f"hpq-worker-{queue}"


def kustomization(queue: str, root: str, *, is_scaled: bool) -> dict[str, Any]:
    """Build the kustomization of an added queue; k8s/components/queue is an example."""
    scaler = [f"{root}/components/keda/scaler"] if is_scaled else []
    name = deployment(queue)
    return {
        "resources": [f"{root}/worker", *scaler],
        "nameSuffix": name.removeprefix("hpq"),
        "labels": [{"pairs": {"app.kubernetes.io/instance": name}, "includeSelectors": True}],
    }


def queue_patches(file: ClusterFile) -> list[Patch]:
    """Return the patches of all queues; the queue default is removed if the file lacks it."""
    is_scaled = "keda" in file.names
    found = [patch for queue in file.queues for patch in _patches(file, queue, is_scaled=is_scaled)]
    # The right to scale: roles.yaml has its rule first.
    operators = {"kind": "Role", "name": "hpq-operator"}
    for one in added_queues(file):
        found.append(add(operators, {"/rules/0/resourceNames/-": deployment(one)}))
    if DEFAULT not in file.queues:
        kinds = ("Deployment", "PodDisruptionBudget", *(["ScaledObject"] if is_scaled else []))
        found += [delete(kind, deployment(DEFAULT)) for kind in kinds]
    return found


def _patches(file: ClusterFile, queue: str, *, is_scaled: bool) -> list[Patch]:
    keys = file.queues[queue]
    target = {"kind": "Deployment", "name": deployment(queue)}
    found = [merge(target, {"template": {"spec": _pod(file, queue)}})]
    if keys.tolerations:
        path = "/spec/template/spec/tolerations/-"
        found += [add(target, {path: one}) for one in keys.tolerations]
    if file.is_spot(queue):
        found += [{**patch, "target": target} for patch in _spot_patches()]
    if keys.pod:
        found.append(merge(target, {"template": {"spec": keys.pod}}))
    if is_scaled:
        scaler = {"kind": "ScaledObject", "name": deployment(queue)}
        keys_of = Keys(file.settings.get("HPQ_PREFIX", "hpq"))
        changes: dict[str, Any] = {"/spec/triggers/0/metadata/listName": keys_of.demand(queue)}
        if most := keys.max_pods or _most(file):
            changes["/spec/maxReplicaCount"] = most
        found.append(replace(scaler, changes))
    return found


def _most(file: ClusterFile) -> int:
    """Return MAX of `keda=MAX`; 0: as in the component's files."""
    return next((int(one.value) for one in file.parts if one.name == "keda" and one.value), 0)


def _spot_patches() -> list[Patch]:
    """Return the patches of the component spot, which are for all workers."""
    text = (shipped("k8s") / "components/spot/kustomization.yaml").read_text("utf-8")
    found: list[Patch] = yaml.safe_load(text)["patches"]
    return found


def _pod(file: ClusterFile, queue: str) -> dict[str, Any]:
    """Return the changes of a queue's PodSpec; null removes a field."""
    keys = file.queues[queue]
    env = {"HPQ_QUEUE": queue}
    per_trial = keys.gpus_per_trial or (0 if _PER_TRIAL in file.settings else keys.gpus)
    if per_trial > 1 or keys.gpus_per_trial:
        env[_PER_TRIAL] = str(per_trial)
    pod: dict[str, Any] = {}
    if grace := file.pod_grace(queue):
        env["HPQ_POD_GRACE_S"] = str(grace)
        pod["terminationGracePeriodSeconds"] = grace
    resources = _resources(keys)
    pod["containers"] = [{"name": "worker", "env": _env(env), "resources": resources}]
    sizes = {"shm": keys.shm or (f"{_SHM_GI * keys.gpus}Gi" if keys.gpus > 1 else None)}
    sizes["cache"] = keys.ephemeral_storage
    volumes = [
        {"name": name, "emptyDir": {"sizeLimit": size}} for name, size in sizes.items() if size
    ]
    fields = {
        "volumes": volumes,
        "nodeSelector": keys.node_selector,
        "affinity": keys.affinity,
        "priorityClassName": keys.priority_class,
    }
    return pod | {name: value for name, value in fields.items() if value}


def _env(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _resources(keys: QueueKeys) -> dict[str, dict[str, Any]]:
    """Return the requests and limits of a pod."""
    gpus = keys.gpus
    if gpus:
        requests: dict[str, Any] = {"cpu": str(_CPUS * gpus), "memory": f"{_ASKED_GI * gpus}Gi"}
        limits: dict[str, Any] = {"memory": f"{_MOST_GI * gpus}Gi"}
    else:
        requests, limits = {"cpu": "250m", "memory": "512Mi"}, {"memory": "2Gi"}
    for given in (requests, limits):
        given[GPU] = None
        given |= {keys.gpu_resource: gpus} if gpus else {}
    if keys.cpu_limit:
        limits["cpu"] = keys.cpu_limit
        requests["cpu"] = min(requests["cpu"], keys.cpu_limit, key=cpus)
    if keys.cpu:
        requests["cpu"] = keys.cpu
    if keys.memory:
        requests["memory"] = limits["memory"] = keys.memory
    if keys.ephemeral_storage:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = keys.ephemeral_storage
    return {"requests": requests, "limits": limits}
