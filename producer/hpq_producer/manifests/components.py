"""Parse `--with NAME[=VALUE]`, and build the patches of each component's value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from hpq.domain.sweep import NAME_RULE
from hpq.errors import UserError
from hpq.settings import LAST_WORDS_S

QUEUE = "queue"
_WORKERS = {"kind": "Deployment", "labelSelector": "app.kubernetes.io/name=hpq-worker"}
# kustomize applies components in order: tls also changes how keda reaches Redis.
_FIRST, _LAST = ("cpu", "keda"), ("tls",)
_COMMIT = re.compile("[0-9a-f]{40}")
# Per GPU of a pod, as in k8s/worker/deployment.yaml: CPUs; GiB of requested memory, of the memory
# limit, and of /dev/shm, which counts against that limit.
_CPUS, _ASKED_GI, _MOST_GI, _SHM_GI = 2, 8, 16, 2
_QUEUE_NAME = 52  # a label's 63 characters less "hpq-worker-"
Patch = dict[str, Any]


def component_order(component: str) -> tuple[int, str]:
    """Return the sort key of a component."""
    return (component not in _FIRST) + (component in _LAST), component


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQueue:
    """An additional queue: its name, and the GPUs of each of its pods."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A chosen component and its value; "" keeps the component's files unchanged."""

    name: str
    value: str = ""

    def worker_queue(self) -> WorkerQueue:
        """Return the queue of `queue=NAME:GPUS`."""
        name, _, gpus = self.value.partition(":")
        return WorkerQueue(name=name, gpus=int(gpus))

    def patches(self) -> list[Patch]:
        """Return the patches of the value."""
        make = _PATCHES.get(self.name)
        return [make(self.value)] if make and self.value else []


def parse(text: str) -> Component:
    """Parse `NAME` or `NAME=VALUE`.

    Raises:
        UserError: the value is invalid for the component.
    """
    name, is_given, value = text.partition("=")
    rule, wanted = _VALUES.get(name, (None, ""))
    if not is_given:
        if name in _NEEDS_VALUE:  # its files contain an example value
            raise UserError(f"--with {name}: a value is required: --with {name}={wanted}")
        return Component(name=name)
    if rule is None:
        raise UserError(f"--with {text}: {name} takes no value; write --with {name}")
    if not rule(value):
        raise UserError(f"--with {text}: invalid value; write --with {name}={wanted}")
    return Component(name=name, value=value)


def queue_patch(
    deployment: str,
    queue: str,
    gpus: int | None,
    *,
    is_split: bool = False,
    cpu: str = "",
    memory: str = "",
) -> Patch:
    """Set a queue's name and its GPUs per pod (None: unchanged).

    A trial gets all GPUs of its pod, unless `is_split`: then HPQ_GPUS_PER_TRIAL decides. CPUs,
    memory and /dev/shm grow with the GPUs; `cpu` and `memory` override them.
    """
    env = [{"name": "HPQ_QUEUE", "value": queue}]
    if gpus and not is_split:
        env.append({"name": "HPQ_GPUS_PER_TRIAL", "value": str(gpus)})
    requests, limits = _resources(gpus)
    if cpu:
        requests["cpu"] = cpu
    if memory:
        requests["memory"] = limits["memory"] = memory
    container: dict[str, Any] = {"name": "worker", "env": env}
    if requests:
        container["resources"] = {"requests": requests, "limits": limits}
    pod: dict[str, Any] = {"containers": [container]}
    if gpus:
        shm = {"medium": "Memory", "sizeLimit": f"{_SHM_GI * gpus}Gi"}
        pod["volumes"] = [{"name": "shm", "emptyDir": shm}]
    return _merge(deployment, pod)


def _resources(gpus: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the changed requests and limits of a pod."""
    requests: dict[str, Any]
    if gpus is None:
        return {}, {}
    if gpus == 0:
        requests = {"cpu": "250m", "memory": "512Mi", "nvidia.com/gpu": None}
        return requests, {"memory": "2Gi", "nvidia.com/gpu": None}
    many = {"nvidia.com/gpu": gpus}
    requests = {"cpu": str(_CPUS * gpus), "memory": f"{_ASKED_GI * gpus}Gi", **many}
    return requests, {"memory": f"{_MOST_GI * gpus}Gi", **many}


def grace_patch(grace_s: float) -> Patch:
    """Set the grace period of the pods of all queues, so that trials have `grace_s` to end."""
    return _replace(_WORKERS, spec_template_spec_terminationGracePeriodSeconds=pod_grace(grace_s))


def pod_grace(grace_s: float) -> int:
    """Return terminationGracePeriodSeconds of a pod whose trials have `grace_s` s to end."""
    return math.ceil(grace_s + LAST_WORDS_S)


def _merge(deployment: str, pod: Mapping[str, Any]) -> Patch:
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment},
        "spec": {"template": {"spec": pod}},
    }
    return {"patch": yaml.safe_dump(patch, sort_keys=False)}


def _replace(target: Mapping[str, str], **changes: Any) -> Patch:
    ops = [
        {"op": "replace", "path": f"/{path.replace('_', '/')}", "value": value}
        for path, value in changes.items()
    ]
    return {"target": dict(target), "patch": json.dumps(ops)}


def _is_queue(text: str) -> bool:
    name, _, gpus = text.partition(":")
    is_name = NAME_RULE.match(name) and len(name) <= _QUEUE_NAME
    return bool(is_name) and gpus.isdecimal() and int(gpus) <= 64


def _kueue_patch(name: str) -> Patch:
    op = {"op": "replace", "path": "/metadata/labels/kueue.x-k8s.io~1queue-name", "value": name}
    return {"target": dict(_WORKERS), "patch": json.dumps([op])}


def _nfs_patch(place: str) -> Patch:
    server, _, path = place.partition(":")
    target = {"kind": "PersistentVolume", "name": "hpq-nfs-hpq"}
    return _replace(target, spec_nfs_server=server, spec_nfs_path=path)


def _git_code_patch(place: str) -> Patch:
    url, _, commit = place.rpartition("@")
    env = [{"name": "URL", "value": url}, {"name": "COMMIT", "value": commit}]
    init = {"initContainers": [{"name": "fetch-code", "env": env}]}
    return {"target": dict(_WORKERS), **_merge("any", init)}


_PATCHES: Mapping[str, Callable[[str], Patch]] = {
    "keda": lambda most: _replace({"kind": "ScaledObject"}, spec_maxReplicaCount=int(most)),
    "kueue": _kueue_patch,
    "nfs": _nfs_patch,
    "git-code": _git_code_patch,
}
_NEEDS_VALUE = (QUEUE, "kueue", "nfs", "git-code")
# component → the check of its value, and the value's syntax
_VALUES: Mapping[str, tuple[Callable[[str], object], str]] = {
    QUEUE: (_is_queue, f"QUEUE:GPUS, e.g. a100x4:4; QUEUE: at most {_QUEUE_NAME} characters"),
    "keda": (lambda t: t.isdecimal() and 0 < int(t) < 10_000, "MAX, the most pods per queue"),
    "kueue": (NAME_RULE.match, "QUEUE, the LocalQueue's name"),
    "nfs": (re.compile(r"[^:/\s]+:/\S*").fullmatch, "SERVER:/PATH"),
    "git-code": (
        lambda t: t.startswith("https://") and _COMMIT.fullmatch(t.rpartition("@")[2]),
        "https://HOST/REPOSITORY@COMMIT, with a full commit id of 40 digits",
    ),
}
