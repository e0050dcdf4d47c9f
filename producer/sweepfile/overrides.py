"""`--set a.b=value` and the other flags that change a sweep file's data, before it is checked.

Imported by spec. What a flag set stands at that flag from then on, so that an error names it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hpq.errors import SweepFileError
from hpq.trial import Json
from producer.sweepfile import schema, sourcefile, yaml_reader
from producer.sweepfile.problems import Path, dotted, printable
from producer.sweepfile.yaml_reader import Document

Flag = tuple[str, Path, Document]  # as it was typed, where it goes, what it sets


def from_set(overrides: Mapping[str, str], data: Json) -> Iterable[Flag]:
    """The flags of `--set`; a value is read as the file would read it.

    Raises:
        SweepFileError: a value is not YAML, or a path is empty.
    """
    for key, text in overrides.items():
        label = printable(f"--set {key}={text}")
        if not all(key.split(".")):
            raise SweepFileError(f"{label}: write --set KEY=VALUE, such as parameters.lr.min=0.1")
        sourcefile.check_text(text, label)
        space = data.get("parameters") if isinstance(data, dict) else None
        if key not in schema.TOP and isinstance(space, dict) and key in space:
            meant = printable(f"parameters.{key}.value={text}")
            raise SweepFileError(
                f"{label}: {key} is a parameter; write --set {meant}", code="unknown-key"
            )
        yield label, resolve(key, data), yaml_reader.parse(text or "''", label)


def flag(label: str, path: Path, value: Json) -> Flag:
    """A flag of its own, such as `--count 8`."""
    document = yaml_reader.parse("0", label)
    return label, path, replace(document, data=value)


def resolve(key: str, data: Json) -> Path:
    """A dotted key as a path: the longest key that is there goes first, as names may hold dots."""
    path: list[str] = []
    parts = key.split(".")
    while parts:
        here = data if isinstance(data, dict) else {}
        lengths = range(len(parts), 0, -1)
        taken = next((n for n in lengths if ".".join(parts[:n]) in here), 1)
        name = ".".join(parts[:taken])
        path.append(name)
        data = here.get(name)
        parts = parts[taken:]
    return tuple(path)


def apply(document: Document, flags: Iterable[Flag]) -> Document:
    """A copy of the document with each flag's value in its place.

    Raises:
        SweepFileError: a path leads through something that is not a mapping.
    """
    data = copy.deepcopy(document.data)
    labels = dict(document.places.flags)
    words = dict(document.words)
    for label, path, value in flags:
        inside = data
        for depth, part in enumerate(path[:-1]):
            assert isinstance(inside, dict)
            inside = inside.setdefault(str(part), {})
            if not isinstance(inside, dict):
                where = dotted(path[: depth + 1])
                raise SweepFileError(f"{label}: {where} is not a mapping; set {where} itself")
        assert isinstance(inside, dict)
        inside[str(path[-1])] = value.data
        labels[path] = label
        words = {p: w for p, w in words.items() if p[: len(path)] != path}
        words.update({(*path, *p): w for p, w in value.words.items()})
    places = replace(document.places, flags=labels)
    return Document(data=data, places=places, words=words)
