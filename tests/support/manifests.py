"""Objects of a cluster file, rendered once in a test process."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from hpq_producer.manifests.cluster_file import load
from hpq_producer.manifests.components import KINDS
from hpq_producer.manifests.render import render

Yaml = dict[str, Any]
Objects = dict[tuple[str, str], Yaml]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
_VALUES = {"nfs": "=nas:/data", "kueue": "=team"}
# A component of its own kind of data set, and of its own file store, excludes nfs and store.
_OTHERS = {"namespace", "bucket", "dataset"}
EVERY = f"with: {[name + _VALUES.get(name, '') for name in sorted(KINDS.keys() - _OTHERS)]}"
TWO_QUEUES = "queues: {default: {}, big: {gpus: 4}}"


def parsed(text: str) -> list[Yaml]:
    return list(yaml.load_all(text, _LOADER))


@cache
def rendered(text: str) -> list[Yaml]:
    """Return the objects of a cluster file; shared by tests, which do not change them."""
    return parsed(render(load(text=text)))


def by_name(objects: list[Yaml]) -> Objects:
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}
