"""Render the objects of a cluster file: those of k8s/ that its keys choose, with its values.

A queue has a Deployment, a disruption budget, and with KEDA a scaler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from hpq import __version__
from hpq.access.connection_record import deployment_name
from hpq.domain.owner import name_of, stored_value
from hpq.store.keys import Keys
from hpq_ops.manifests import objects
from hpq_ops.manifests.cluster_file import GPU, ClaimKeys, ClusterFile, QueueKeys, RedisKeys
from hpq_ops.manifests.key_types import cpus, is_size, size_bytes
from hpq_ops.manifests.objects import Object, Objects, documents, merge, put

_REDIS_IMAGE = "docker.io/library/redis:7"
_SHARED = {
    "app.kubernetes.io/part-of": "hpq",
    "app.kubernetes.io/managed-by": "hpq",
    "app.kubernetes.io/version": __version__,
}
# Of these, in this order, before all others: what pods need, and the policies before the pods.
_FIRST = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "ConfigMap",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "NetworkPolicy",
    "Service",
)
_RESTARTS = ("hpq-settings", "hpq-redis-conf")  # a change of these ConfigMaps restarts the pods
_MAXMEMORY = re.compile("(?m)^maxmemory .*$")


def render(file: ClusterFile) -> str:
    """Return all objects as YAML."""
    found: Objects = {}
    put(found, documents("base"))
    put(found, documents("worker"))
    for name in file.components:
        put(found, documents(f"components/{name}"))
    put(found, _values(file, found))
    put(found, _redis_changes(file.redis, found))
    put(found, _limits(file))
    put_queues(found, file)
    made = _filled(list(found.values()), _images(file), _name_by_content(found))
    for one in made:
        _place(one, file.namespace)
    return objects.to_yaml(sorted(made, key=_rank))


def _values(file: ClusterFile, rendered: Objects) -> list[Object]:
    """Return the changes that hold values of the file, but for Redis and the queues."""
    url = rendered["ConfigMap", "hpq-settings"]["data"]["HPQ_REDIS_URL"]
    settings = {"HPQ_REDIS_URL": url.replace("//hpq-", f"//{file.prefix}-", 1)}  # the user
    if file.bucket:
        settings["HPQ_STORE"] = file.bucket
    found = [_change("ConfigMap", "hpq-settings", data=settings | file.settings)]
    if file.backup is not None:
        args = ["/store/backups", str(file.backup.keep)]
        pod = {"containers": [{"name": "backup", "args": args}]}
        pod = objects.merge(pod, file.backup.pod or {})
        job = {"spec": {"template": {"spec": pod}}}
        spec = {"schedule": file.backup.schedule, "jobTemplate": job}
        found.append(_change("CronJob", "hpq-backup", spec=spec))
    if file.dashboard is not None and file.dashboard.pod:
        changes = {"template": {"spec": file.dashboard.pod}}
        found.append(_change("Deployment", "hpq-dashboard", spec=changes))
    if file.dashboard is not None and file.dashboard.host:
        spec = rendered["Deployment", "hpq-dashboard"]["spec"]
        spec["template"]["spec"]["containers"][0]["args"].append(
            f"--allow-host={file.dashboard.host}"
        )
    if file.kueue is not None:
        labels = {"kueue.x-k8s.io/queue-name": file.kueue}
        found.append(_change("Deployment", deployment_name(), labels=labels))
    if file.nfs is not None:
        server, _, path = file.nfs.partition(":")
        claim = {"name": "hpq-nfs", "namespace": file.namespace}
        spec = {"claimRef": claim, "nfs": {"server": server, "path": path}}
        found.append(_change("PersistentVolume", "hpq-nfs", spec=spec))
        volume = {"volumeName": f"hpq-nfs-{file.namespace}"}
        found.append(_change("PersistentVolumeClaim", "hpq-nfs", spec=volume))
    if file.store is not None:
        found.append(_change("PersistentVolumeClaim", "hpq-store", spec=_claim(file.store)))
    if file.dataset is not None:
        found.append(_change("PersistentVolumeClaim", "hpq-dataset", spec=_claim(file.dataset)))
    if "monitoring" in file.components:
        graphs = (objects.folder() / "components/monitoring/grafana.json").read_text("utf-8")
        found.append(_change("ConfigMap", "hpq-grafana", data={"hpq.json": graphs}))
    return found


def _change(kind: str, name: str, *, labels: Mapping[str, str] | None = None, **of: Any) -> Object:
    """Return the change of an object, for `put`."""
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"kind": kind, "metadata": metadata, **of}


def _limits(file: ClusterFile) -> list[Object]:
    """Return the change that has the commands of redis-cli for the limits of owners, if any."""
    if not file.limits:
        return []
    key = Keys(file.prefix).limits
    words = []
    for owner, keys in file.limits.items():
        values = keys.model_dump(exclude_none=True)
        words += [
            f'"{owner}/{name_of(name)}" {stored_value(name, value)}'
            for name, value in values.items()
        ]
    lines = [f"DEL {key}", *(f"HSET {key} {word}" for word in words)]
    data = {"limits": "".join(f"{line}\n" for line in lines)}
    return [_change("ConfigMap", "hpq-redis-conf", data=data)]


def _claim(keys: ClaimKeys) -> Object:
    storage = {"resources": {"requests": {"storage": keys.size}}}
    return storage | ({"storageClassName": keys.storage_class} if keys.storage_class else {})


def _redis_changes(redis: RedisKeys, found: Objects) -> list[Object]:
    server = found["StatefulSet", "hpq-redis"]
    (claim,) = server["spec"]["volumeClaimTemplates"]
    spec: Object = {}
    if redis.storage:
        spec["resources"] = {"requests": {"storage": redis.storage}}
    if redis.storage_class:
        spec["storageClassName"] = redis.storage_class
    memory = {"memory": redis.memory} if redis.memory else {}
    cpu = {"cpu": redis.cpu_limit} if redis.cpu_limit else {}
    resources = {"requests": memory, "limits": memory | cpu}
    pod = {"containers": [{"name": "redis", "resources": resources}]}
    pod = objects.merge(pod, redis.pod or {})
    claims = [objects.merge(claim, {"spec": spec})]
    changes = {"template": {"spec": pod}, "volumeClaimTemplates": claims}
    made = [_change("StatefulSet", "hpq-redis", spec=changes)]
    if redis.memory:  # three quarters of the pod's memory are for the data
        text = found["ConfigMap", "hpq-redis-conf"]["data"]["redis.conf"]
        text = _MAXMEMORY.sub(f"maxmemory {size_bytes(redis.memory) * 3 // 4}", text)
        made.append(_change("ConfigMap", "hpq-redis-conf", data={"redis.conf": text}))
    return made


def _images(file: ClusterFile) -> dict[str, str]:
    """Return the image for each name of one in k8s/."""
    return {"hpq-worker": file.workers_image, "hpq-redis": file.redis.image or _REDIS_IMAGE}


def _name_by_content(found: Objects) -> dict[str, str]:
    """Add a hash of its data to the name of each ConfigMap of _RESTARTS; return the new names."""
    names = {}
    for name in _RESTARTS:
        text = json.dumps(found["ConfigMap", name]["data"], sort_keys=True)
        names[name] = f"{name}-{sha256(text.encode()).hexdigest()[:10]}"
        found["ConfigMap", name]["metadata"]["name"] = names[name]
    return names


def _filled(value: Any, images: Mapping[str, str], names: Mapping[str, str]) -> Any:
    """Return a value with the images of its containers and the names of its ConfigMaps."""
    if isinstance(value, list):
        return [_filled(one, images, names) for one in value]
    if not isinstance(value, dict):
        return value
    made: Object = {}
    for key, one in value.items():
        if key == "image" and isinstance(one, str):
            made[key] = images.get(one, one)
        elif key in ("configMap", "configMapRef", "configMapKeyRef") and isinstance(one, dict):
            name = str(one.get("name", ""))
            made[key] = {**one, "name": names[name]} if name in names else one
        else:
            made[key] = _filled(one, images, names)
    return made


def _place(one: Object, namespace: str) -> None:
    """Add the namespace and the labels of all objects."""
    metadata = one["metadata"]
    if one["kind"] == "Namespace":
        metadata["name"] = namespace
    elif one["kind"] == "PersistentVolume":  # has no namespace, so its name says of which it is
        metadata["name"] = f"{metadata['name']}-{namespace}"
    else:
        metadata["namespace"] = namespace
    if one["kind"] == "PrometheusRule":  # one Prometheus may see several installations
        for rule in one["spec"]["groups"][0]["rules"]:
            rule["expr"] = rule["expr"].replace('namespace="hpq"', f'namespace="{namespace}"')
    metadata["labels"] = {**metadata.get("labels", {}), **_SHARED}


def _rank(one: Object) -> int:
    return _FIRST.index(one["kind"]) if one["kind"] in _FIRST else len(_FIRST)


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
        own = merge(own, {"spec": {"template": {"spec": _disk_limit(own)}}})
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
    if keys.gpus:
        env["HPQ_POD_GPUS"] = f"{keys.gpu_resource}={keys.gpus}"
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


def _disk_limit(own: Object) -> Object:
    """Return the changes that tell a worker how full its /cache may be, from its final pod."""
    pod = own["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "cache"]
    size = str((volume.get("emptyDir") or {}).get("sizeLimit", ""))
    if not is_size(size):
        return {}
    env = {"HPQ_CACHE_BYTES": str(size_bytes(size))}
    return {"containers": [{"name": "worker", "env": _env(env)}]}


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
        given |= {keys.gpu_resource: str(gpus)} if gpus else {}
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
