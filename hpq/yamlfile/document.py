"""Read a file's text as a document, and apply overrides such as `--set a.b=value` to it.

Each error is one line that names its position. The position of an overridden value is its flag.
"""

from __future__ import annotations

import copy
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from hpq.domain.trial import Json
from hpq.error_codes import Code
from hpq.errors import SweepFileError
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.problems import KeyPath, dotted
from hpq.yamlfile.yaml_reader import Document

MAX_BYTES = 2**20
_SUFFIXES = (".yaml", ".yml")
_LIKENESS = 0.8  # `paramters` is meant as `parameters`
_MOST_COMPARED = 100  # keys

# YAML forbids NUL, ESC, other control characters, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Override = tuple[str, KeyPath, Document]  # the flag as typed, the path that it sets, the value


def read(path: Path) -> str:
    """Read a file's text.

    Raises:
        SweepFileError: the file does not exist, cannot be read, or is not text (`decode`).
    """
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a pipe would wait for its writer
            text = f"{path}: not a regular file; give the path of a YAML file"
            raise SweepFileError(text, code="file-not-found")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = "give the path of a YAML file"
        with suppress(OSError):
            names = {one.stem: one for one in path.parent.iterdir() if one.suffix in _SUFFIXES}
            if close := get_close_matches(path.stem, names, n=1):
                hint = f"did you mean {names[close[0]]}?"
        raise SweepFileError(f"{path}: no such file; {hint}", code="file-not-found") from None
    except IsADirectoryError:
        text = f"{path}: a directory; give the path of a YAML file"
        raise SweepFileError(text, code="file-not-found") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SweepFileError(f"{path}: cannot be read: {reason}", code="file-unreadable") from None
    return decode(raw, str(path))


def known_document(
    text: str,
    file: str,
    keys: Collection[str],
    otherwise: str,
    *,
    code: Code,
    may_be_list: bool = False,
) -> Document:
    """Parse a file's text as YAML; errors may then quote its values.

    A file that was named by mistake may hold a secret. Nothing of it is quoted, neither here nor by
    the parser, until a key at its top is one of `keys`, or like one. Options do not count.

    Raises:
        SweepFileError: the text is not YAML, or not of this kind: `otherwise`, with the id `code`.
    """
    document = yaml_reader.parse(text, file)
    data = document.data
    is_known = may_be_list and isinstance(data, list)
    if isinstance(data, dict):
        few = islice(data, _MOST_COMPARED)
        is_known = not data or not data.keys().isdisjoint(keys)
        is_known = is_known or any(get_close_matches(key, keys, 1, _LIKENESS) for key in few)
    if not is_known:
        raise SweepFileError(f"{file}:1:1: {otherwise}", code=code)
    return document


def decode(raw: bytes, file: str) -> str:
    """Decode a file: UTF-8, with or without a byte order mark, at most 1 MiB.

    Raises:
        SweepFileError: the bytes are too large, UTF-16, binary, or not UTF-8 (names the position).
    """
    if len(raw) > MAX_BYTES:
        message = f"{file}:1:1: larger than 1 MiB; write a few kilobytes"
        raise SweepFileError(message, code="file-too-large")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        message = f"{file}:1:1: the file is UTF-16; save it as UTF-8"
        raise SweepFileError(message, code="file-encoding")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, col = _locate(error.object[: error.start].decode("utf-8-sig"))
        message = f"{file}:{line}:{col}: not UTF-8; save the file as UTF-8"
        raise SweepFileError(message, code="file-encoding") from None
    check_text(text, file)
    return text


def check_text(text: str, file: str) -> None:
    """Check that YAML allows every character.

    Raises:
        SweepFileError: a control character, or half of a surrogate pair (names the position).
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line, col = _locate(text[: bad.start()])
        what = "a binary file? this character cannot stand in YAML"
        message = f"{file}:{line}:{col}: {what}; give a text file in UTF-8"
        raise SweepFileError(message, code="file-encoding")


def _locate(before: str) -> tuple[int, int]:
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


def flag_override(label: str, path: KeyPath, value: Json) -> Override:
    """Make the override of a flag such as `--count 8`."""
    document = yaml_reader.parse("0", label)
    return label, path, replace(document, data=value)


def resolve(key: str, data: Json) -> KeyPath:
    """Split a dotted key into a path; names may contain dots, so the longest existing key wins."""
    path: list[str] = []
    parts = key.split(".")
    while parts:
        mapping = data if isinstance(data, dict) else {}
        lengths = range(len(parts), 0, -1)
        length = next((n for n in lengths if ".".join(parts[:n]) in mapping), 1)
        name = ".".join(parts[:length])
        path.append(name)
        data = mapping.get(name)
        parts = parts[length:]
    return tuple(path)


def apply(document: Document, overrides: Iterable[Override]) -> Document:
    """Return a copy of the document with each override applied.

    Raises:
        SweepFileError: a parent of an overridden path is not a mapping.
    """
    data = copy.deepcopy(document.data)
    labels = dict(document.source_map.flags)
    words = dict(document.words)
    for label, path, value in overrides:
        parent = data
        for depth, part in enumerate(path[:-1]):
            assert isinstance(parent, dict)
            parent = parent.setdefault(str(part), {})
            if not isinstance(parent, dict):
                where = dotted(path[: depth + 1])
                raise SweepFileError(f"{label}: {where} is not a mapping; set {where} itself")
        assert isinstance(parent, dict)
        parent[str(path[-1])] = value.data
        labels[path] = label
        words = {p: w for p, w in words.items() if p[: len(path)] != path}
        words.update({(*path, *p): w for p, w in value.words.items()})
    source_map = replace(document.source_map, flags=labels)
    return Document(data=data, source_map=source_map, words=words)
