"""The objects of a queue: its Deployment, its disruption budget, and with KEDA its scaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpq.access.connection_record import deployment_name
from hpq.store.keys import Keys
from hpq_ops.manifests.cluster_file import GPU, ClusterFile, QueueKeys
from hpq_ops.manifests.key_types import cpus
from hpq_ops.manifests.objects import Object, Objects, documents, merge, put

# Per GPU of a pod, as in k8s/worker/deployment.yaml: CPUs; GiB of requested memory, of the memory
# limit, and of /dev/shm, which counts against that limit.
_CPUS = 2
_ASKED_GI = 8
_MOST_GI = 16
_SHM_GI = 2
_PER_TRIAL = "HPQ_GPUS_PER_TRIAL"


def instance(queue: str) -> dict[str, str]:
    """Return the label by which the pods of a queue are selected."""
    return {"app.kubernetes.io/instance": deployment_name(queue)}


def put_queues(objects: Objects, file: ClusterFile) -> None:
    """Replace the templates of a queue's objects by the objects of each queue of the file."""
    template = objects.pop(("Deployment", deployment_name()))
    budget = objects.pop(("PodDisruptionBudget", deployment_name()))
    scaler = objects.pop(("ScaledObject", deployment_name()), None)
    (spot,) = documents("components/spot")
    for queue, keys in file.queues.items():
        own = merge(template, _workers(file, queue))
        if file.is_spot(queue):
            own = merge(own, {"spec": spot["spec"]})
        own = merge(own, {"spec": {"template": {"spec": keys.pod or {}}}})
        put(objects, [_of_queue(own, queue, {})])
        selector = {"selector": {"matchLabels": instance(queue)}}
        put(objects, [_of_queue(budget, queue, selector)])
        if scaler is not None:
            put(objects, [_of_queue(scaler, queue, _scaling(file, queue, scaler))])
    # The right to scale: roles.yaml has its rule first.
    rule = objects["Role", "hpq-operator"]["rules"][0]
    rule["resourceNames"] = [deployment_name(queue) for queue in file.queues]


def _of_queue(template: Object, queue: str, spec: Mapping[str, Any]) -> Object:
    metadata = {"name": deployment_name(queue), "labels": instance(queue)}
    found: Object = merge(template, {"metadata": metadata, "spec": spec})
    return found


def _workers(file: ClusterFile, queue: str) -> Object:
    """Return the changes of a queue's Deployment."""
    label = instance(queue)
    template = {"metadata": {"labels": label}, "spec": _pod(file, queue)}
    return {"spec": {"selector": {"matchLabels": label}, "template": template}}


def _scaling(file: ClusterFile, queue: str, scaler: Object) -> Object:
    """Return the changes of the spec of a queue's scaler."""
    assert file.keda is not None
    demand = Keys(file.prefix).demand(queue)
    (trigger,) = scaler["spec"]["triggers"]
    return {
        "scaleTargetRef": {"name": deployment_name(queue)},
        "maxReplicaCount": file.queues[queue].max_pods or file.keda.max_pods,
        "triggers": [merge(trigger, {"metadata": {"listName": demand}})],
    }


def _pod(file: ClusterFile, queue: str) -> dict[str, Any]:
    """Return the changes of a queue's PodSpec; null removes a field."""
    keys = file.queues[queue]
    env = {"HPQ_QUEUE": queue, "HPQ_IMAGE": file.workers_image}
    per_trial = keys.gpus_per_trial or (0 if _PER_TRIAL in file.settings else keys.gpus)
    if per_trial > 1 or keys.gpus_per_trial:
        env[_PER_TRIAL] = str(per_trial)
    pod: dict[str, Any] = {}
    if grace := file.pod_grace(queue):
        env["HPQ_POD_GRACE_S"] = str(grace)
        pod["terminationGracePeriodSeconds"] = grace
    resources = _resources(keys)
    pod["containers"] = [{"name": "worker", "env": _env(env), "resources": resources}]
    pod["topologySpreadConstraints"] = [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": instance(queue)}}
    ]
    sizes = {"shm": keys.shm or (f"{_SHM_GI * keys.gpus}Gi" if keys.gpus > 1 else None)}
    sizes["cache"] = keys.ephemeral_storage
    volumes = [
        {"name": name, "emptyDir": {"sizeLimit": size}} for name, size in sizes.items() if size
    ]
    fields = {
        "volumes": volumes,
        "nodeSelector": keys.node_selector,
        "affinity": keys.affinity,
        "tolerations": list(keys.tolerations),
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
