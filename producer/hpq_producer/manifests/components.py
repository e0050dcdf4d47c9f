"""The components of `--with NAME[=VALUE]` and `with`, and the patches of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Patch = dict[str, Any]
_WORKERS = {"kind": "Deployment", "labelSelector": "app.kubernetes.io/name=hpq-worker"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A component: the syntax and the pattern of its value, and whether it needs one."""

    syntax: str = ""
    value: str = ""  # a regular expression
    is_needed: bool = False  # its files contain an example value

    @property
    def pattern(self) -> str:
        """Return the pattern of what follows the component's name."""
        if not self.value:
            return ""
        return f"={self.value}" if self.is_needed else f"(?:={self.value})?"


_SCHEDULE = r"(?:@(?:hourly|daily|weekly|monthly)|[\d*/,-]+(?: [\dA-Za-z*/,-]+){4})"
KINDS: Mapping[str, Kind] = {
    "archive": Kind("'M H DAY MONTH WEEKDAY', in the cluster's time zone", _SCHEDULE),
    "bucket": Kind(),
    "dashboard": Kind("HOST, by which browsers reach it", "[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"),
    "dataset": Kind(),
    "egress": Kind(),
    "keda": Kind("MAX, the most pods per queue", "[1-9][0-9]{0,3}"),
    "kueue": Kind("LOCALQUEUE", "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", is_needed=True),
    "monitoring": Kind(),
    "namespace": Kind(),
    "nfs": Kind("SERVER:/PATH", r"[^:/\s]+:/\S*", is_needed=True),
    "spot": Kind(),
    "store": Kind(),
    "tls": Kind(),
}
RULE = re.compile("|".join(f"{name}{kind.pattern}\\Z" for name, kind in KINDS.items()))
PATTERN = "|".join(f"^{name}{kind.pattern}$" for name, kind in KINDS.items())  # of a JSON schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A chosen component and its value; "" keeps the component's files unchanged."""

    name: str
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Component:
        """Read a text that matches RULE."""
        name, _, value = text.partition("=")
        return cls(name=name, value=value)

    def patches(self, namespace: str) -> list[Patch]:
        """Return the patches of the value."""
        if self.name == "archive" and self.value:
            return [replace({"kind": "CronJob"}, {"/spec/schedule": self.value})]
        if self.name == "dashboard" and self.value:
            target = {"kind": "Deployment", "name": "hpq-dashboard"}
            path = "/spec/template/spec/containers/0/args/-"
            return [add(target, {path: f"--allow-host={self.value}"})]
        if self.name == "kueue":
            path = "/metadata/labels/kueue.x-k8s.io~1queue-name"
            return [replace(_WORKERS, {path: self.value})]
        if self.name != "nfs":
            return []
        server, _, path = self.value.partition(":")
        target = {"kind": "PersistentVolume", "name": "hpq-nfs"}
        claim = {"name": "hpq-nfs", "namespace": namespace}
        spec = {"claimRef": claim, "nfs": {"server": server, "path": path}}
        name = replace(target, {"/metadata/name": f"hpq-nfs-{namespace}"})
        return [merge(target, spec), {**name, "options": {"allowNameChange": True}}]


def replace(target: Mapping[str, str], changes: Mapping[str, Any]) -> Patch:
    """Make a patch that sets the value at each path, which has one."""
    return _operations(target, "replace", changes)


def add(target: Mapping[str, str], changes: Mapping[str, Any]) -> Patch:
    """Make a patch that adds a value at each path."""
    return _operations(target, "add", changes)


def merge(target: Mapping[str, str], spec: Mapping[str, Any]) -> Patch:
    """Make a patch that merges a spec into an object's; null removes a key."""
    head = {"apiVersion": "any", "kind": target["kind"], "metadata": {"name": "any"}}
    return {"target": dict(target), "patch": json.dumps({**head, "spec": spec})}


def delete(kind: str, name: str) -> Patch:
    """Make a patch that removes an object."""
    head = {"apiVersion": "any", "kind": kind, "metadata": {"name": name}}
    return {
        "target": {"kind": kind, "name": name},
        "patch": json.dumps({"$patch": "delete", **head}),
    }


def _operations(target: Mapping[str, str], op: str, changes: Mapping[str, Any]) -> Patch:
    found = [{"op": op, "path": path, "value": value} for path, value in changes.items()]
    return {"target": dict(target), "patch": json.dumps(found)}
