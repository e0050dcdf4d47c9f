"""Render the objects of a cluster file: those of k8s/ that its keys choose, with its values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from hpq import __version__
from hpq.access.connection_record import deployment_name
from hpq_ops.manifests import objects
from hpq_ops.manifests.cluster_file import ClaimKeys, ClusterFile, RedisKeys
from hpq_ops.manifests.key_types import size_bytes
from hpq_ops.manifests.objects import Object, Objects, documents, put
from hpq_ops.manifests.queues import put_queues

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
    if file.archive is not None:
        found.append(_change("CronJob", "hpq-archive", spec={"schedule": file.archive.schedule}))
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
    metadata["labels"] = {**metadata.get("labels", {}), **_SHARED}


def _rank(one: Object) -> int:
    return _FIRST.index(one["kind"]) if one["kind"] in _FIRST else len(_FIRST)
