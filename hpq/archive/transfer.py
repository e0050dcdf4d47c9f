"""Write a sweep into an archive, page by page, and restore it from one.

A failed write leaves no file. A restore checks the whole file before its first write.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from hpq import __version__
from hpq.archive.format import (
    ITEMS,
    ArchiveInvalid,
    Header,
    Row,
    encode_end,
    encode_header,
    encode_row,
    memory_bytes,
    read,
)
from hpq.domain.sweep import SweepView
from hpq.errors import DecodeError, UserError, writing
from hpq.private_files import sync_folder
from hpq.store.scripts import StoreContext
from hpq.store.sweep_copy import ArchiveReader, ArchiveRestore, Item
from hpq.store.sweep_reader import SweepReader
from hpq.store.wire import sweep as sweep_codec

_BYTES = 256 * 1024  # of one line; a single larger item gets a line of its own


def write(context: StoreContext, sid: str, path: Path, *, replaces: bool = False) -> Header:
    """Write a sweep into a file that appears only when it is complete.

    Raises:
        UserError: a trial runs, the sweep changed meanwhile, the file exists or is unwritable.
    """
    sweep = SweepReader(context.redis, context.keys).get(sid)
    if sweep.counts.running:
        raise UserError(
            f"{sid} has running trials ({sweep.counts.running}), and archives are for ended sweeps;"
            f" pause it (hpq pause {sid}), and archive it when they have ended. `redis-cli --rdb`"
            " copies all of Redis at any time",
            code="trials-running",
        )
    header = Header(sweep=sid, trials=sweep.counts.total)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # pods share process ids
    try:
        with writing(path):
            with draft.open("xb") as raw:
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                    thinned = _fill(file, header, _rows_of(context, sweep))
                raw.flush()
                os.fsync(raw.fileno())
            if replaces:
                draft.replace(path)
            else:
                os.link(draft, path)
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return replace(header, thinned=thinned)


def _fill(file: gzip.GzipFile, header: Header, rows: Iterable[Row]) -> int:
    """Write all lines; return how many trials lost their log and points to a full server."""
    file.write(encode_header(header, __version__).encode() + b"\n")
    count = thinned = 0
    for count, row in enumerate(rows, start=1):  # noqa: B007
        file.write(encode_row(row).encode() + b"\n")
        if row.trial and not row.part:
            thinned += any(item[0] == b"thinned" for item in row.items)
    file.write(encode_end(count).encode() + b"\n")
    return thinned


def _rows_of(context: StoreContext, sweep: SweepView) -> Iterator[Row]:
    for key in ArchiveReader(context.redis, context.keys, sweep).read():
        yield from _cut(*key)


def _cut(trial: int, part: str, kind: str, items: Iterator[Item]) -> Iterator[Row]:
    some: list[Item] = []
    size = 0
    for item in items:
        more = sum(map(len, item))
        if some and (len(some) >= ITEMS or size + more > _BYTES):
            yield Row(trial=trial, part=part, kind=kind, items=tuple(some))
            some, size = [], 0
        some.append(item)
        size += more
    if some:
        yield Row(trial=trial, part=part, kind=kind, items=tuple(some))


def restore(
    context: StoreContext, path: Path, check_room: Callable[[int, int], object] = lambda *_: None
) -> Header:
    """Restore a sweep; it becomes visible when it is complete.

    `check_room` gets the number of trials and their estimated size in bytes before the first write.

    Raises:
        UserError: the file is no archive, truncated or newer, or the sweep exists.
    """
    header, fields, weight = read_whole(path)
    if SweepReader(context.redis, context.keys).exists(header.sweep):
        text = f"sweep {header.sweep} already exists; remove it first: hpq rm {header.sweep}"
        raise UserError(text, code="sweep-exists")
    check_room(header.trials, weight)
    restoring = ArchiveRestore(context, header.sweep, header.trials)
    try:
        for row in _rows_in(path):
            if row.is_shared:
                _share(restoring, row)
            elif row.trial or row.part:
                restoring.write(row.trial, row.part, row.kind, list(_flat(row)))
        restoring.finish(fields)
        for row in _rows_in(path):  # again: removing another sweep may have deleted shared entries
            if row.is_shared:
                _share(restoring, row)
    except BaseException:
        restoring.discard()
        raise
    return header


def _rows_in(path: Path) -> Iterator[Row]:
    return (row for row in read(path) if isinstance(row, Row))


def read_whole(path: Path) -> tuple[Header, dict[bytes, bytes], int]:
    """Check every row of an archive.

    Returns:
        The header, the sweep's own hash, and the estimated memory of all rows in bytes.

    Raises:
        UserError: the file is no archive, truncated or newer.
    """
    lines = read(path)
    header = next(lines)
    assert isinstance(header, Header)
    fields: dict[bytes, bytes] = {}
    numbers = weight = 0
    for row in lines:
        assert isinstance(row, Row)
        weight += memory_bytes(row)
        if (row.trial, row.part) == (0, ""):
            fields.update({item[0]: item[1] for item in row.items})
        elif (row.trial, row.part) == (0, "params"):
            numbers += len(row.items)
    try:
        sweep = sweep_codec.decode_sweep("its sweep", header.sweep, fields, 0, 0, 0)
    except DecodeError as error:
        raise ArchiveInvalid(f"{path}: not an hpq archive: {error}") from None
    if not sweep.created_ms or not sweep.queue or numbers != header.trials:
        raise ArchiveInvalid(f"{path}: not an hpq archive: rows of its sweep are missing")
    return header, fields, weight


def _flat(row: Row) -> Iterator[bytes]:
    if row.kind != "stream":
        return chain.from_iterable(row.items)
    return chain.from_iterable(
        (item[0], str(len(item) - 1).encode(), *item[1:]) for item in row.items
    )


def _share(restoring: ArchiveRestore, row: Row) -> None:
    for digest, data in row.items:
        restoring.keep_shared(row.part, digest.decode(), data)
