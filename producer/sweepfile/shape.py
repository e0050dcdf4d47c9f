"""Whether a YAML file is a sweep file: those that lie beside the code are no part of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from hpq.errors import UserError
from hpq.trial import Json
from producer.sweepfile import yaml_reader
from producer.sweepfile.schema import PARAMETER

_MOST_BYTES = 1024 * 1024  # as of a sweep file
_METHODS = ("grid", "random", "bayes")
_ENTRY = "hyperparam_set"


def is_sweep_file(path: Path) -> bool:
    """True for what can only be meant as a sweep: in doubt it is code, whose edits count."""
    if path.suffix not in (".yaml", ".yml"):
        return False
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return False
        text = path.read_bytes()
        if b"parameters" not in text and _ENTRY.encode() not in text:
            return False
        data = yaml_reader.parse(text.decode(), str(path)).data
    except (OSError, UnicodeDecodeError, UserError, yaml.YAMLError):
        return False
    if isinstance(data, list):
        return bool(data) and all(isinstance(entry, dict) and _ENTRY in entry for entry in data)
    return isinstance(data, dict) and _is_sweep(data)


def _is_sweep(data: Mapping[str, Json]) -> bool:
    runs = data.get("method") in _METHODS or not data.keys().isdisjoint(
        ("program", "trainer", "command")
    )
    space = data.get("parameters")
    if not runs or not isinstance(space, dict):
        return False
    return any(isinstance(p, dict) and not PARAMETER.keys().isdisjoint(p) for p in space.values())
