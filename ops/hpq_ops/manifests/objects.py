"""Objects of Kubernetes as data: read those of k8s/, merge changes into them, print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hpq_ops.installed_files import installed_folder

Object = dict[str, Any]
Objects = dict[tuple[str, str], Object]  # by kind and name
# Lists of a pod whose entries Kubernetes merges, and by which of their keys.
MERGED: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
_ADDED = ("envFrom", "rules", "tolerations")  # lists to which changes add; they replace all others


def folder() -> Path:
    """Return the directory of the manifests in the installed package or in a checkout."""
    return installed_folder("k8s")


def documents(place: str) -> list[Object]:
    """Read the objects and the changes of a directory of k8s/."""
    found: list[Object] = []
    for path in sorted((folder() / place).glob("*.yaml")):
        found.extend(yaml.safe_load_all(path.read_text("utf-8")))
    return found


def put(objects: Objects, added: Iterable[Object]) -> None:
    """Add objects; one of the kind and name of another is merged into it."""
    for one in added:
        key = (one["kind"], one["metadata"]["name"])
        objects[key] = merge(objects.get(key, {}), one)


def merge(old: Any, changes: Any, key: str = "") -> Any:
    """Return a value with changes; null removes a key of a mapping.

    `key` is the value's own, which says how Kubernetes merges a list.
    """
    if isinstance(changes, dict):
        found = dict(old) if isinstance(old, dict) else {}
        for name, value in changes.items():
            if value is None:
                found.pop(name, None)
            else:
                found[name] = merge(found.get(name), value, name)
        return found
    if not isinstance(changes, list) or not isinstance(old, list):
        return changes
    if key in _ADDED:
        return [*old, *changes]
    by = MERGED.get(key)
    if by is None or not all(by in one for one in (*old, *changes)):
        return changes
    entries = {one[by]: one for one in old}
    for one in changes:
        entries[one[by]] = merge(entries.get(one[by], {}), one)
    return list(entries.values())


class _Dumper(yaml.SafeDumper):
    """Writes texts so that each reader of YAML takes them for texts."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif text[:1].isdigit() or text[:1] in ("+", "-", ".") or text in ("y", "Y", "n", "N"):
        style = '"'  # kubectl reads 1e3 and 0o17 as numbers and y as true, and PyYAML does not
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(objects: Iterable[Object]) -> str:
    """Return objects as one stream of YAML."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000
    )
    return text
