"""Render the manifests of k8s/ with a cluster's own names as one YAML stream.

kubectl's kustomize renders an overlay in a temporary directory, so that the output equals what
`kubectl apply -k` of the same overlay sends.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from hpq.errors import UserError
from hpq_producer.manifests import queues
from hpq_producer.manifests.cluster_file import ClaimKeys, ClusterFile, RedisKeys, size_bytes
from hpq_producer.manifests.components import Patch, add, merge, replace
from hpq_producer.shipped import shipped

IMAGE = "hpq-worker:dev"  # the default
_BASE, _OPTIONAL = "base", "components"
_SETTINGS = "settings"  # the component with the ConfigMaps' values
_API = "kustomize.config.k8s.io"
_REDIS = {"kind": "StatefulSet", "name": "hpq-redis"}
_MAXMEMORY = re.compile("(?m)^maxmemory .*$")
Yaml = dict[str, Any]


def manifests_folder() -> Path:
    """Return the directory of the manifests in the installed package or in a checkout."""
    return shipped("k8s")


def render(file: ClusterFile) -> str:
    """Return all objects as YAML.

    Raises:
        UserError: kubectl is missing, or kustomize fails.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        text = "kubectl is not on PATH; install it (https://kubernetes.io/docs/tasks/tools/)"
        raise UserError(text, code="program-missing")
    is_scaled = "keda" in file.names
    made = {".": _overlay(file), _SETTINGS: _settings(file)}
    for one in queues.added_queues(file):
        made[f"queue-{one}"] = queues.kustomization(one, "../k8s", is_scaled=is_scaled)
    with tempfile.TemporaryDirectory() as name:
        # kustomize reads only relative paths below its directory.
        shutil.copytree(manifests_folder(), Path(name, "k8s"))
        for place, content in made.items():
            Path(name, place).mkdir(exist_ok=True)
            Path(name, place, "kustomization.yaml").write_text(yaml.safe_dump(content), "utf-8")
        if file.redis.memory:
            Path(name, _SETTINGS, "redis.conf").write_text(_redis_conf(file.redis.memory), "utf-8")
        done = subprocess.run(
            [kubectl, "kustomize", name], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        lines = map(str.strip, done.stderr.splitlines())
        # Between the first line and the last of a message of several stands what is wrong.
        why = " ".join(line for line in lines if line != ">" and not line.endswith("err=<"))
        text = f"kubectl kustomize: {why}; check what the cluster file has under pod"
        raise UserError(text, code="kustomize-failed")
    return done.stdout


def _overlay(file: ClusterFile) -> Yaml:
    """Build the kustomization of a cluster; its component `settings` overrides other components."""
    text = (manifests_folder() / _BASE / "kustomization.yaml").read_text("utf-8")
    images = [_image("hpq-worker", file.image or IMAGE)]
    if file.redis.image:
        images.append(_image("docker.io/library/redis", file.redis.image))
    return {
        "apiVersion": f"{_API}/v1beta1",
        "kind": "Kustomization",
        "namespace": file.namespace,
        "labels": yaml.safe_load(text)["labels"],  # for the objects that the overlay adds
        "resources": [f"k8s/{_BASE}", *(f"queue-{one}" for one in queues.added_queues(file))],
        "components": [
            *(f"k8s/{_OPTIONAL}/{one.name}" for one in file.parts if one.name != "spot"),
            _SETTINGS,
        ],
        "images": images,
        "patches": [
            *(patch for part in file.parts for patch in part.patches(file.namespace)),
            *queues.queue_patches(file),
            *_redis_patches(file.redis),
            *(_claim_patches("hpq-store", file.store) if file.store else ()),
            *(_claim_patches("hpq-dataset", file.dataset) if file.dataset else ()),
        ],
    }


def _settings(file: ClusterFile) -> Yaml:
    literals = [f"{name}={value}" for name, value in file.settings.items()]
    maps = [{"name": "hpq-settings", "behavior": "merge", "literals": literals}]
    if file.redis.memory:
        maps.append({"name": "hpq-redis-conf", "behavior": "merge", "files": ["redis.conf"]})
    return {"apiVersion": f"{_API}/v1alpha1", "kind": "Component", "configMapGenerator": maps}


def _redis_conf(memory: str) -> str:
    """Return redis.conf with three quarters of the pod's memory for the data."""
    text = (manifests_folder() / _BASE / "redis.conf").read_text("utf-8")
    return _MAXMEMORY.sub(f"maxmemory {size_bytes(memory) * 3 // 4}", text)


def _image(name: str, image: str) -> dict[str, str]:
    """Return the entry of `images` that replaces an image's name, tag and digest."""
    head, at, digest = image.partition("@")
    if at:
        return {"name": name, "newName": head, "digest": digest}
    folder, _, last = head.rpartition("/")
    last, _, tag = last.partition(":")
    return {"name": name, "newName": f"{folder}/{last}".lstrip("/"), "newTag": tag or "latest"}


def _redis_patches(redis: RedisKeys) -> list[Patch]:
    found: list[Patch] = []
    claim = "/spec/volumeClaimTemplates/0/spec"
    if redis.storage:
        found.append(replace(_REDIS, {f"{claim}/resources/requests/storage": redis.storage}))
    if redis.storage_class:
        found.append(add(_REDIS, {f"{claim}/storageClassName": redis.storage_class}))
    memory = {"memory": redis.memory} if redis.memory else {}
    limits = memory | ({"cpu": redis.cpu_limit} if redis.cpu_limit else {})
    if limits:
        resources = {"requests": memory, "limits": limits}
        pod = {"containers": [{"name": "redis", "resources": resources}]}
        found.append(merge(_REDIS, {"template": {"spec": pod}}))
    return found


def _claim_patches(name: str, keys: ClaimKeys) -> list[Patch]:
    target = {"kind": "PersistentVolumeClaim", "name": name}
    found = [replace(target, {"/spec/resources/requests/storage": keys.size})]
    if keys.storage_class:
        found.append(add(target, {"/spec/storageClassName": keys.storage_class}))
    return found
