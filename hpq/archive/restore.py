"""Restore a sweep from an archive; the whole file is checked before the first write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from hpq.archive.format import ArchiveInvalid, Header, Row, memory_bytes, read
from hpq.errors import DecodeError, UserError
from hpq.store.archive import ArchiveRestore
from hpq.store.scripts import StoreContext
from hpq.store.sweep_reader import SweepReader
from hpq.store.wire import sweep as sweep_codec


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
        for row in _rows(path):
            if row.is_shared:
                _share(restoring, row)
            elif row.trial or row.part:
                restoring.write(row.trial, row.part, row.kind, list(_flat(row)))
        restoring.reveal(fields)
        for row in _rows(path):  # again: removing another sweep may have deleted shared entries
            if row.is_shared:
                _share(restoring, row)
    except BaseException:
        restoring.discard()
        raise
    return header


def _rows(path: Path) -> Iterator[Row]:
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
