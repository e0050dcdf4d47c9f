"""The file format of an archive: gzipped JSON lines. A header, rows of Redis keys, a row count.

    {"hpq-archive": 1, "hpq": "0.1.0", "sweep": "digits-3u4d4", "trials": 16, …}
    {"trial": 7, "part": "log", "kind": "stream", "items": [["1763700000000-0", "d", "epoch 1"], …]}
    {"end": 812}

Trial 0 is the sweep itself; "part" is the rest of the key's name. Text that is not UTF-8 is
{"b64": …}. The file holds no secret: neither the code key nor the server's address is in Redis.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpq.domain.identity import SWEEP_ID
from hpq.domain.sweep import SCHEMA, refusal_of_schema
from hpq.error_codes import Code
from hpq.errors import UserError
from hpq.notice import plural
from hpq.store.keys import SWEEP_PARTS

ITEMS = 500  # of one line, at most
_LINE = 32 * 1024 * 1024  # bytes; hpq writes no longer line
_SHORT = 1024 * 1024  # bytes of a line whose values cannot take much memory
_TEXTS = 20_000  # of a longer line
_AROUND_TEXTS = 64 * 1024  # bytes around the texts of a longer line
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
# Bytes; code, logs and curves fit.
_OF_SWEEP = 64 * 1024 * 1024
_OF_TRIAL = 128 * 1024 * 1024
_SHARED = ("provenance", "code", "bundle")  # hashes that all sweeps share
_WIDTH = {"hash": 2, "zset": 2, "set": 1}
_BAND = re.compile(r"band:[1-9][0-9]{0,15}\Z")
_STREAM_ID = re.compile(rb"[0-9]{1,15}-[0-9]{1,15}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of an archive: its sweep and number of trials."""

    sweep: str
    trials: int
    thinned: int = 0  # trials without logs and points, dropped earlier; 0 when read from a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Items of one Redis key; the length of each tuple depends on `kind`. `part` "": the hash."""

    trial: int
    part: str
    kind: str
    items: tuple[tuple[bytes, ...], ...]

    @property
    def is_shared(self) -> bool:
        """True for a row of a hash that belongs to all sweeps."""
        return self.kind == "shared"


class ArchiveInvalid(UserError):
    """Raised if a line of an archive is not in hpq's format; the text names the error."""

    code: Code = "archive-invalid"


def encode_header(header: Header, version: str) -> str:
    """Return the first line."""
    return json.dumps(
        {
            "hpq-archive": SCHEMA,
            "hpq": version,
            "sweep": header.sweep,
            "trials": header.trials,
        }
    )


def encode_row(row: Row) -> str:
    """Return the line of one row."""
    items = [[_text(part) for part in item] for item in row.items]
    return json.dumps({"trial": row.trial, "part": row.part, "kind": row.kind, "items": items})


def encode_end(lines: int) -> str:
    """Return the last line, with the number of rows."""
    return json.dumps({"end": lines})


def _text(raw: bytes) -> str | dict[str, str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


def read(path: Path) -> Iterator[Header | Row]:
    """Yield the header, then the rows; check every line and the end.

    Raises:
        UserError: the file is missing, no archive, truncated, or written by a newer hpq.
    """
    try:
        with gzip.open(path, "rb") as file:
            yield from _lines(file)
    except ArchiveInvalid as error:
        raise ArchiveInvalid(f"{path}: {error}", code=error.code) from None
    except EOFError:
        text = f"{path}: truncated: the file ends before the archive does; copy it again"
        raise ArchiveInvalid(text, code="archive-torn") from None
    except (gzip.BadGzipFile, zlib.error):  # whose text may quote the file
        text = f"{path}: not an hpq archive, or damaged; `hpq archive SWEEP FILE` writes one"
        raise ArchiveInvalid(text) from None
    except OSError as error:
        text = f"{path}: {error.strerror or error}; name a file of `hpq archive SWEEP FILE`"
        raise UserError(text, code="file-unreadable") from None


def _lines(file: gzip.GzipFile) -> Iterator[Header | Row]:
    header = _header(_parse(file.readline(_LINE), 1))
    yield header
    count = 0
    most = _OF_SWEEP + header.trials * _OF_TRIAL
    while line := file.readline(_LINE):
        if file.tell() > most:
            raise _too_large(f"line {count + 2}")
        data = _parse(line, count + 2)
        if "end" in data:
            if data["end"] != count or file.read(1):
                text = f"truncated: {count} {plural(count, 'row')}, but its last line counts"
                text += f" {data['end']!r:.20}"
                raise ArchiveInvalid(text, code="archive-torn")
            return
        count += 1
        try:
            yield _row(data, header)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise ArchiveInvalid(f"line {count + 1}: not an archive row: {error}") from None
    raise ArchiveInvalid("truncated: its last line is missing; copy it again", code="archive-torn")


def _too_large(where: str) -> ArchiveInvalid:
    remedy = "archive the sweep again: hpq archive SWEEP FILE"
    return ArchiveInvalid(f"{where}: larger than what hpq writes; {remedy}")


def _parse(line: bytes, number: int) -> dict[str, Any]:
    around = len(line)
    for count, text in enumerate(_TEXT.finditer(line) if around > _SHORT else ()):
        around -= text.end() - text.start()
        if count > _TEXTS:
            break
    if len(line) > _SHORT and around > _AROUND_TEXTS:
        raise _too_large(f"line {number}")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise ArchiveInvalid(f"line {number}: not an hpq archive, or truncated") from None
    if not isinstance(data, dict):
        raise ArchiveInvalid(f"line {number}: not an hpq archive")
    return data


def _header(data: dict[str, Any]) -> Header:
    schema = data.get("hpq-archive")
    trials = data.get("trials")
    if not isinstance(schema, int) or not isinstance(trials, int):
        raise ArchiveInvalid("not an hpq archive: its first line is no archive header")
    if refusal := refusal_of_schema(schema):
        raise ArchiveInvalid(refusal, code="hpq-too-old")
    sid = data.get("sweep")
    if not isinstance(sid, str) or not SWEEP_ID.match(sid):
        raise ArchiveInvalid("not an hpq archive: its header names no sweep")
    return Header(sweep=sid, trials=trials)


def _row(data: dict[str, Any], header: Header) -> Row:
    trial = data["trial"]
    part = data["part"]
    kind = data["kind"]
    if (
        type(trial) is not int
        or not 0 <= trial <= header.trials
        or kind != _kind(trial, part, kind)
    ):
        raise ValueError(f"{part!r:.40} of trial {trial!r:.20} as {kind!r:.20}")
    if len(data["items"]) > ITEMS:
        raise ValueError(f"more than {ITEMS} items")
    items = tuple(tuple(_bytes(value) for value in item) for item in data["items"])
    if not items or not all(_fits(item, kind) for item in items):
        raise ValueError(f"items that do not fit a {kind}")
    return Row(trial=trial, part=part, kind=kind, items=items)


def _kind(trial: int, part: str, kind_name: str) -> str:
    """Return the Redis type that a key of this name must have; "" if hpq has no such key."""
    if kind_name == "shared":
        return kind_name if part in _SHARED and not trial else ""
    if not part or (trial and part == "points"):
        return "hash"
    if trial:
        return "stream" if part == "log" or part.startswith("p:") else ""
    if _BAND.match(part):
        return "zset"
    return SWEEP_PARTS.get(part, "") if part != "running" else ""


def _fits(item: tuple[bytes, ...], kind: str) -> bool:
    if kind == "stream":
        return len(item) >= 3 and len(item) % 2 == 1 and bool(_STREAM_ID.match(item[0]))
    if kind == "zset":
        float(item[0])
    return len(item) == _WIDTH.get(kind, 2)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["b64"], validate=True)


# Memory overhead per item on Redis and Valkey, in bytes, measured; small keys take less.
_ITEM_BYTES = {"hash": 60, "zset": 110, "set": 60, "stream": 0, "shared": 60}
_KEY_BYTES = 150
_STREAM_BYTES = 4_096  # the smallest allocation of a stream


def memory_bytes(row: Row) -> int:
    """Return an upper estimate of the server's memory that a row takes, in bytes."""
    items = sum(_ITEM_BYTES[row.kind] + sum(map(len, item)) for item in row.items)
    return _KEY_BYTES + (max(_STREAM_BYTES, items) if row.kind == "stream" else items)
