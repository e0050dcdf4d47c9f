"""The archive's file: gzipped JSON lines. A header, rows of the sweep's keys, and their number.

    {"hpq-archive": 1, "schema": 1, "sweep": "digits-3u4d4", "trials": 16, …}
    {"trial": 7, "part": "log", "kind": "stream", "items": [["1763700000000-0", "d", "epoch 1"], …]}
    {"end": 812}

Trial 0 is the sweep itself; "part" is what follows in the key's name. Text that is not UTF-8 is
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

from hpq.codes import Code
from hpq.domain.sweep import SCHEMA
from hpq.errors import UserError
from hpq.store.keys import SWEEP_PARTS

FORMAT = 1
_LINE = 64 * 1024 * 1024  # bytes; what is longer was not written by hpq
_SID = re.compile(r"[a-z0-9][a-z0-9-]{0,80}\Z")
_SHARED = ("provenance", "code", "bundle")  # of all sweeps; an archive has what its sweep refers to
_WIDTH = {"hash": 2, "zset": 2, "set": 1}
_BAND = re.compile(r"band:[1-9][0-9]{0,15}\Z")
_STREAM_ID = re.compile(rb"[0-9]{1,15}-[0-9]{1,15}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What an archive is of."""

    sweep: str
    trials: int
    schema: int
    thinned: int = 0  # trials whose logs and points had been dropped; known to who writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Some items of one key, each a tuple as its kind has them; `part` "" is the hash itself."""

    trial: int
    part: str
    kind: str
    items: tuple[tuple[bytes, ...], ...]

    @property
    def is_shared(self) -> bool:
        """True for a row of a hash that belongs to all sweeps."""
        return self.kind == "shared"


class ArchiveInvalid(UserError):
    """Raised where a line is not what hpq writes; the text says what is wrong."""

    code: Code = "archive-invalid"


def encode_header(header: Header, version: str) -> str:
    """The first line."""
    return json.dumps(
        {
            "hpq-archive": FORMAT,
            "hpq": version,
            "schema": header.schema,
            "sweep": header.sweep,
            "trials": header.trials,
        }
    )


def encode_row(row: Row) -> str:
    """A line of items."""
    items = [[_text(part) for part in item] for item in row.items]
    return json.dumps({"trial": row.trial, "part": row.part, "kind": row.kind, "items": items})


def encode_end(lines: int) -> str:
    """The last line."""
    return json.dumps({"end": lines})


def _text(raw: bytes) -> str | dict[str, str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


def read(path: Path) -> Iterator[Header | Row]:
    """The header, then the rows; everything is checked, the end as well.

    Raises:
        UserError: the file is not there, foreign, torn or of a newer hpq.
    """
    try:
        with gzip.open(path, "rb") as file:
            yield from _lines(file)
    except ArchiveInvalid as error:
        raise ArchiveInvalid(f"{path}: {error}", code=error.code) from None
    except EOFError:
        text = f"{path}: torn: the file ends before the archive does"
        raise ArchiveInvalid(text, code="archive-torn") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        text = f"{path}: not an archive of hpq's, or a damaged one: {error}"
        raise ArchiveInvalid(text) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", code="file-unreadable") from None


def _lines(file: gzip.GzipFile) -> Iterator[Header | Row]:
    header = _header(_parse(file.readline(_LINE), 1))
    yield header
    count = 0
    while line := file.readline(_LINE):
        data = _parse(line, count + 2)
        if "end" in data:
            if data["end"] != count or file.read(1):
                text = f"torn: {count} lines of items, and its end says {data['end']!r:.20}"
                raise ArchiveInvalid(text, code="archive-torn")
            return
        count += 1
        try:
            yield _row(data, header)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise ArchiveInvalid(f"line {count + 1}: not a row of hpq's: {error}") from None
    raise ArchiveInvalid("torn: its last line is missing", code="archive-torn")


def _parse(line: bytes, number: int) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise ArchiveInvalid(f"line {number}: not an archive of hpq's, or a torn one") from None
    if not isinstance(data, dict):
        raise ArchiveInvalid(f"line {number}: not an archive of hpq's")
    return data


def _header(data: dict[str, Any]) -> Header:
    form, schema, trials = data.get("hpq-archive"), data.get("schema"), data.get("trials")
    if not isinstance(form, int) or not isinstance(schema, int) or not isinstance(trials, int):
        raise ArchiveInvalid("not an archive of hpq's: its first line does not say so")
    if form > FORMAT or schema > SCHEMA:
        raise ArchiveInvalid(
            f"written by a newer hpq (format {form}, schema {schema}); this one reads up to"
            f" format {FORMAT}, schema {SCHEMA}: upgrade hpq",
            code="hpq-too-old",
        )
    sid = data.get("sweep")
    if not isinstance(sid, str) or not _SID.match(sid):
        raise ArchiveInvalid("not an archive of hpq's: it names no sweep")
    return Header(sweep=sid, trials=trials, schema=schema)


def _row(data: dict[str, Any], header: Header) -> Row:
    trial, part, kind = data["trial"], data["part"], data["kind"]
    if (
        type(trial) is not int
        or not 0 <= trial <= header.trials
        or kind != _kind(trial, part, kind)
    ):
        raise ValueError(f"{part!r:.40} of trial {trial!r:.20} as {kind!r:.20}")
    items = tuple(tuple(_bytes(value) for value in item) for item in data["items"])
    if not items or not all(_fits(item, kind) for item in items):
        raise ValueError(f"items that are none of a {kind}")
    return Row(trial=trial, part=part, kind=kind, items=items)


def _kind(trial: int, part: str, kind_name: str) -> str:
    """What a key with this name has to be; empty for a name that is none."""
    if kind_name == "shared":
        return kind_name if part in _SHARED and not trial else ""
    if not part:
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


# What a row takes on Redis and Valkey beside its bytes, as measured; small keys take less.
_ITEM_BYTES = {"hash": 60, "zset": 110, "set": 60, "stream": 0, "shared": 60}
_KEY_BYTES = 150
_STREAM_BYTES = 4_096  # a stream takes that from its first entry on


def memory_bytes(row: Row) -> int:
    """Estimate how many bytes of the server's memory a row takes: rather too many."""
    held = sum(_ITEM_BYTES[row.kind] + sum(map(len, item)) for item in row.items)
    return _KEY_BYTES + (max(_STREAM_BYTES, held) if row.kind == "stream" else held)
