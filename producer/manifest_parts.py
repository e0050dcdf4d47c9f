"""What `--with NAME[=VALUE]` may say, and what a value changes in its component's manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from hpq.errors import UserError
from hpq.sweep import NAME_RULE

CLASS = "class"
_WORKERS = {"kind": "Deployment", "labelSelector": "app.kubernetes.io/name=hpq-worker"}
# What others build on comes first: tls also changes how keda reaches Redis.
_FIRST, _LAST = ("cpu", "keda"), ("tls",)
_COMMIT = re.compile("[0-9a-f]{40}")
Patch = dict[str, Any]


def turn(component: str) -> tuple[int, str]:
    """Where a component comes among others."""
    return (component not in _FIRST) + (component in _LAST), component


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClass:
    """A further class of workers: its queue's name and the GPUs of each of its pods."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A component that is wanted, and its value; "" leaves it as its files have it."""

    name: str
    value: str = ""

    def worker_class(self) -> WorkerClass:
        """The class that `class=NAME:GPUS` names."""
        name, _, gpus = self.value.partition(":")
        return WorkerClass(name=name, gpus=int(gpus))

    def patches(self) -> list[Patch]:
        """What the value changes."""
        make = _PATCHES.get(self.name)
        return [make(self.value)] if make and self.value else []


def parse(text: str) -> Part:
    """`NAME` or `NAME=VALUE`.

    Raises:
        UserError: the value is not what its component takes.
    """
    name, is_given, value = text.partition("=")
    rule, wanted = _VALUES.get(name, (None, ""))
    if not is_given:
        if name in _NEEDS_VALUE:  # what its files have is an example, and nobody's
            raise UserError(f"--with {name}: write {name}={wanted}")
        return Part(name=name)
    if rule is None:
        raise UserError(f"--with {text}: {name} takes no value")
    if not rule(value):
        raise UserError(f"--with {text}: write {name}={wanted}")
    return Part(name=name, value=value)


def class_patch(deployment: str, queue: str, gpus: int | None, *, is_split: bool = False) -> Patch:
    """A class's queue and its GPUs (None: as they are), all of a pod's for one trial.

    Unless they are split: then the settings say how many a trial has.
    """
    env = [{"name": "HPQ_QUEUE", "value": queue}]
    container: dict[str, Any] = {"name": "worker", "env": env}
    if gpus:
        if not is_split:
            env.append({"name": "HPQ_GPUS_PER_TRIAL", "value": str(gpus)})
        many = {"nvidia.com/gpu": gpus}
        container["resources"] = {"requests": many, "limits": many}
    elif gpus == 0:
        container["resources"] = {
            "requests": {"cpu": "250m", "memory": "512Mi", "nvidia.com/gpu": None},
            "limits": {"memory": "2Gi", "nvidia.com/gpu": None},
        }
    return _merge(deployment, {"containers": [container]})


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


def _is_class(text: str) -> bool:
    name, _, gpus = text.partition(":")
    return bool(NAME_RULE.match(name)) and gpus.isdecimal() and int(gpus) <= 64


def _at_most(most: str) -> Patch:
    return _replace({"kind": "ScaledObject"}, spec_maxReplicaCount=int(most))


def _local_queue(name: str) -> Patch:
    op = {"op": "replace", "path": "/metadata/labels/kueue.x-k8s.io~1queue-name", "value": name}
    return {"target": dict(_WORKERS), "patch": json.dumps([op])}


def _export(place: str) -> Patch:
    server, _, path = place.partition(":")
    target = {"kind": "PersistentVolume", "name": "hpq-nfs-hpq"}
    return _replace(target, spec_nfs_server=server, spec_nfs_path=path)


def _tree(place: str) -> Patch:
    url, _, commit = place.rpartition("@")
    env = [{"name": "URL", "value": url}, {"name": "COMMIT", "value": commit}]
    init = {"initContainers": [{"name": "fetch-code", "env": env}]}
    return {"target": dict(_WORKERS), **_merge("any", init)}


_PATCHES: Mapping[str, Callable[[str], Patch]] = {
    "keda": _at_most,
    "kueue": _local_queue,
    "nfs": _export,
    "git-code": _tree,
}
_NEEDS_VALUE = (CLASS, "kueue", "nfs", "git-code")
# component → what its value must be, and how that is written
_VALUES: Mapping[str, tuple[Callable[[str], object], str]] = {
    CLASS: (_is_class, "QUEUE:GPUS, such as a100x4:4"),
    "keda": (lambda t: t.isdecimal() and 0 < int(t) < 10_000, "MAX, the most pods of a class"),
    "kueue": (NAME_RULE.match, "QUEUE, the LocalQueue's name"),
    "nfs": (re.compile(r"[^:/\s]+:/\S*").fullmatch, "SERVER:/PATH"),
    "git-code": (
        lambda t: t.startswith("https://") and _COMMIT.fullmatch(t.rpartition("@")[2]),
        "https://HOST/REPOSITORY@COMMIT, with all 40 digits of the commit",
    ),
}
