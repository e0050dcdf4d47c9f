"""A sweep file as text, and the flags that change its data, such as `--set a.b=value`.

Every way in which a path can fail to be a sweep file is one line that says where. A value that a
flag set stands at that flag, so that an error names the flag.
"""

from __future__ import annotations

import copy
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from hpq.domain.trial import Json
from hpq.errors import SweepFileError, UserError
from hpq_producer.sweepfile import schema, yaml_reader
from hpq_producer.sweepfile.errors import KeyPath, dotted, printable
from hpq_producer.sweepfile.schema import PARAMETER
from hpq_producer.sweepfile.yaml_reader import Document

MAX_BYTES = 2**20

# What YAML takes, which leaves out NUL, ESC and the other controls, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read(path: Path) -> str:
    """The text of a file.

    Raises:
        SweepFileError: there is no such file, it cannot be read, or it is not text (`decode`).
    """
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a pipe would wait for its writer
            text = f"{path}: not a regular file; give the path of a sweep file"
            raise SweepFileError(text, code="file-not-found")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        text = f"{path}: no such file; give the path of a sweep file"
        raise SweepFileError(text, code="file-not-found") from None
    except IsADirectoryError:
        text = f"{path}: a directory; give the path of a sweep file"
        raise SweepFileError(text, code="file-not-found") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SweepFileError(f"{path}: cannot be read: {reason}", code="file-unreadable") from None
    return decode(raw, str(path))


def decode(raw: bytes, file: str) -> str:
    """The text of a file's bytes: UTF-8, with or without a byte order mark, at most 1 MiB.

    Raises:
        SweepFileError: too large, UTF-16, binary, or not UTF-8 (says where).
    """
    if len(raw) > MAX_BYTES:
        message = f"{file}:1:1: larger than 1 MiB; a sweep file is a few kilobytes"
        raise SweepFileError(message, code="file-too-large")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        message = f"{file}:1:1: the file is UTF-16; save it as UTF-8"
        raise SweepFileError(message, code="file-encoding")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, col = _locate(error.object[: error.start].decode("utf-8-sig"))
        byte = f"0x{error.object[error.start]:02x}"
        message = f"{file}:{line}:{col}: byte {byte} is not UTF-8; save the file as UTF-8"
        raise SweepFileError(message, code="file-encoding") from None
    check_text(text, file)
    return text


def check_text(text: str, file: str) -> None:
    """Nothing where every character may stand in YAML.

    Raises:
        SweepFileError: a control character, or half of a surrogate pair (says where).
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line, col = _locate(text[: bad.start()])
        what = f"a binary file? character U+{ord(bad.group()):04X} cannot stand in YAML"
        message = f"{file}:{line}:{col}: {what}; give a text file in UTF-8"
        raise SweepFileError(message, code="file-encoding")


def _locate(before: str) -> tuple[int, int]:
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


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


Flag = tuple[str, KeyPath, Document]  # as it was typed, where it goes, what it sets


def from_set(overrides: Mapping[str, str], data: Json) -> Iterable[Flag]:
    """The flags of `--set`; a value is read as the file would read it.

    Raises:
        SweepFileError: a value is not YAML, or a path is empty.
    """
    for key, text in overrides.items():
        label = printable(f"--set {key}={text}")
        if not all(key.split(".")):
            raise SweepFileError(f"{label}: write --set KEY=VALUE, such as parameters.lr.min=0.1")
        check_text(text, label)
        space = data.get("parameters") if isinstance(data, dict) else None
        if key not in schema.TOP and isinstance(space, dict) and key in space:
            meant = printable(f"parameters.{key}.value={text}")
            line = f"{label}: {key} is a parameter; write --set {meant}"
            raise SweepFileError(line, code="unknown-key")
        yield label, resolve(key, data), yaml_reader.parse(text or "''", label)


def flag(label: str, path: KeyPath, value: Json) -> Flag:
    """A flag of its own, such as `--count 8`."""
    document = yaml_reader.parse("0", label)
    return label, path, replace(document, data=value)


def resolve(key: str, data: Json) -> KeyPath:
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
