"""Recognize a sweep file, and read the overrides of `--set KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

import yaml

from hpq.domain.trial import Json
from hpq.errors import SweepFileError, UserError
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import MAX_BYTES, Override, check_text, known_document, resolve
from hpq.yamlfile.problems import printable
from hpq.yamlfile.yaml_reader import Document
from hpq_producer.sweepfile.explicit_sets import ENTRY
from hpq_producer.sweepfile.model import Method, Parameter, SweepFile

_SWEEP_KEYS = ("method", "parameters", "program", "trainer", "command")
_NO_SWEEP = (
    "not a sweep file: it has no key method, parameters, program, trainer or command; write"
    " method and parameters, or name another file"
)


def sweep_document(text: str, file: str) -> Document:
    """Parse the text of a sweep file: a mapping, or a list of trials. Raises as known_document."""
    return known_document(
        text, file, _SWEEP_KEYS, _NO_SWEEP, code="sweep-file-empty", may_be_list=True
    )


def is_sweep_file(path: Path) -> bool:
    """Return whether a file is certainly a sweep file; if in doubt it is code, which is hashed."""
    if path.suffix not in (".yaml", ".yml"):
        return False
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return False
        text = path.read_bytes()
        if b"parameters" not in text and ENTRY.encode() not in text:
            return False
        data = yaml_reader.parse(text.decode(), str(path)).data
    except (OSError, UnicodeDecodeError, UserError, yaml.YAMLError):
        return False
    if isinstance(data, list):
        return bool(data) and all(isinstance(entry, dict) and ENTRY in entry for entry in data)
    return isinstance(data, dict) and _is_sweep(data)


def _is_sweep(data: Mapping[str, Json]) -> bool:
    names_code = data.get("method") in get_args(Method) or not data.keys().isdisjoint(
        ("program", "trainer", "command")
    )
    space = data.get("parameters")
    if not names_code or not isinstance(space, dict):
        return False
    return any(
        isinstance(p, dict) and not Parameter.model_fields.keys().isdisjoint(p)
        for p in space.values()
    )


def set_overrides(overrides: Mapping[str, str], data: Json) -> Iterable[Override]:
    """Yield the overrides of `--set`; values are parsed as YAML.

    Raises:
        SweepFileError: a value is not YAML, or a key is empty.
    """
    for key, text in overrides.items():
        label = printable(f"--set {key}={text}")
        if not all(key.split(".")):
            raise SweepFileError(
                f"{label}: empty key; write --set KEY=VALUE, e.g. parameters.lr.min=0.1"
            )
        check_text(text, label)
        space = data.get("parameters") if isinstance(data, dict) else None
        if key not in SweepFile.model_fields and isinstance(space, dict) and key in space:
            meant = printable(f"parameters.{key}.value={text}")
            line = f"{label}: {key} is a parameter; write --set {meant}"
            raise SweepFileError(line, code="unknown-key")
        yield label, resolve(key, data), yaml_reader.parse(text or "''", label)
