"""Objects of a cluster file, rendered once in a test process."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from hpq_ops.manifests.cluster_file import load
from hpq_ops.manifests.render import render

Yaml = dict[str, Any]
Objects = dict[tuple[str, str], Yaml]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
# Every component but namespace, and but dataset and bucket, which nfs and store exclude.
EVERY = """
spot: true
kueue: team
keda: {}
tls: true
egress: true
store: {}
backup: {}
nfs: nas:/data
monitoring: true
"""
TWO_QUEUES = "queues: {default: {}, big: {gpus: 4}}"


def parsed(text: str) -> list[Yaml]:
    return list(yaml.load_all(text, _LOADER))


@cache
def rendered(text: str) -> list[Yaml]:
    """Return the objects of a cluster file; shared by tests, which do not change them."""
    return parsed(render(load(text=text)))


def by_name(objects: list[Yaml]) -> Objects:
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}
