"""Write a sweep into an archive, page by page; a failed write leaves no file."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hpq import __version__
from hpq.archive.format import ITEMS, Header, Row, encode_end, encode_header, encode_row
from hpq.domain.sweep import SweepView
from hpq.errors import UserError, writing
from hpq.process import sync_folder
from hpq.store.archive import ArchiveReader, Item
from hpq.store.scripts import StoreContext
from hpq.store.sweep_reader import SweepReader

_BYTES = 256 * 1024  # of one line; a single larger item gets a line of its own


def write(context: StoreContext, sid: str, path: Path, *, replaces: bool = False) -> Header:
    """Write a sweep into a file that appears only when it is complete.

    Raises:
        UserError: a trial runs, the sweep changed meanwhile, the file exists or is unwritable.
    """
    sweep = SweepReader(context.redis, context.keys).get(sid)
    if sweep.counts.running:
        raise UserError(
            f"{sid} has running trials ({sweep.counts.running}); pause it (hpq pause {sid}), and"
            " archive it when they have ended",
            code="trials-running",
        )
    header = Header(sweep=sid, trials=sweep.counts.total)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # pods share process ids
    try:
        with writing(path):
            with draft.open("xb") as raw:
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                    thinned = _fill(file, header, _rows(context, sweep))
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


def _rows(context: StoreContext, sweep: SweepView) -> Iterator[Row]:
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
