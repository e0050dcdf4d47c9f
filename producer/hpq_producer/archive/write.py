"""A sweep out of the store into a file, in pages, whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redis import Redis

from hpq import __version__
from hpq.domain.sweep import SCHEMA, Sweep
from hpq.domain.trial import TrialId
from hpq.errors import UserError
from hpq.store.keys import Keys, sweep_parts
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import number
from hpq_producer.archive.format import Header, Row, encode_end, encode_header, encode_row
from hpq_producer.session import Session

_ITEMS, _BYTES = 500, 256 * 1024  # of a line, at most, unless a single item is larger
Item = tuple[bytes, ...]


def write(session: Session, sid: str, path: Path, *, force: bool) -> Header:
    """Write a sweep into a file that nobody sees before it is whole.

    Raises:
        UserError: trials of it run, it changed meanwhile, the file is there or cannot be written.
    """
    sweep = session.reader.sweeps.get(sid)
    if sweep.schema > SCHEMA:
        raise UserError(
            f"{sid}: made by a newer hpq (schema {sweep.schema}): upgrade this one",
            code="hpq-too-old",
        )
    if sweep.counts.running:
        raise UserError(
            f"{sid}: {sweep.counts.running} trials run; `hpq pause {sid}`, and archive it when they"
            " have ended",
            code="trials-running",
        )
    if path.exists() and not force:
        raise UserError(f"{path}: is there; --force writes over it", code="file-exists")
    header = Header(sweep=sid, trials=sweep.counts.total, schema=sweep.schema)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("xb") as raw:
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                thinned = Thinned()
                _fill(file, header, _rows(session.redis, session.keys, sweep, thinned))
            raw.flush()
            os.fsync(raw.fileno())
        if force:
            draft.replace(path)
        else:
            os.link(draft, path)
    except FileExistsError:
        raise UserError(f"{path}: is there; --force writes over it", code="file-exists") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", code="file-unwritable") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return replace(header, thinned=thinned.trials)


def _fill(file: gzip.GzipFile, header: Header, rows: Iterable[Row]) -> None:
    file.write(encode_header(header, __version__).encode() + b"\n")
    count = 0
    for count, row in enumerate(rows, start=1):  # noqa: B007
        file.write(encode_row(row).encode() + b"\n")
    file.write(encode_end(count).encode() + b"\n")


@dataclass(slots=True)
class Thinned:
    """How many trials have lost their log and points to a full server."""

    trials: int = 0


def _rows(redis: Redis, keys: Keys, sweep: Sweep, thinned: Thinned) -> Iterator[Row]:
    """Every key of the sweep; an event during it means that the rows are not of one moment."""
    sid, before = sweep.id, _last_event(redis, keys, sweep.id)
    yield from _cut(0, "", "hash", _hash(redis.hgetall(keys.sweep(sid))))
    for part, kind in sweep_parts(sweep.bands).items():
        yield from _cut(0, part, kind, _items(redis, keys.sweep(sid, part), kind))
    ran_on: set[bytes] = set(redis.smembers(keys.sweep(sid, "ran_on")))  # type: ignore[arg-type]
    for row in _trials(redis, keys, sid, sweep.counts.total, ran_on):
        thinned.trials += not row.part and any(name == b"thinned" for name, _ in row.items)
        yield row
    yield from _cut(0, "provenance", "shared", _shared(redis, keys.provenance, ran_on))
    code = {sweep.launch.code.encode()} if sweep.launch.code else set()
    yield from _cut(0, "code", "shared", _shared(redis, keys.code, code))
    bundle: Any = redis.get(keys.bundle(sweep.bundle)) if sweep.bundle else None
    if bundle is not None:
        yield from _cut(0, "bundle", "shared", iter([(sweep.bundle.encode(), bundle)]))
    if _last_event(redis, keys, sid) != before:
        raise UserError(
            f"{sid}: changed while it was written; `hpq pause {sid}` first", code="sweep-changed"
        )


def _trials(redis: Redis, keys: Keys, sid: str, total: int, ran_on: set[bytes]) -> Iterator[Row]:
    for start in range(1, total + 1, _ITEMS):
        numbers = range(start, min(start + _ITEMS, total + 1))
        trials = [TrialId(sweep=sid, number=n) for n in numbers]
        pipe = redis.pipeline(transaction=False)
        for trial in trials:
            pipe.hgetall(keys.trial(trial))
        for trial, row in zip(trials, pipe.execute(), strict=True):
            if row:  # somebody has claimed it
                ran_on.add(row.get(b"provenance", b""))
                yield from _cut(trial.number, "", "hash", _hash(row))
                yield from _streams(redis, keys, trial, row)


def _streams(redis: Redis, keys: Keys, trial: TrialId, row: Any) -> Iterator[Row]:
    """The trial's log and points, in one round trip where they are short."""
    start = len(trial_codec.METRIC_FIELD)
    names = [f[start:].decode() for f in row if f.startswith(trial_codec.METRIC_FIELD)]
    parts = {"log": keys.trial(trial, "log")} | {f"p:{n}": keys.points(trial, n) for n in names}
    pipe = redis.pipeline(transaction=False)
    for key in parts.values():
        pipe.xrange(key, count=_ITEMS)
    for (part, key), page in zip(parts.items(), pipe.execute(), strict=True):
        yield from _cut(trial.number, part, "stream", _stream(redis, key, page))


def _cut(trial: int, part: str, kind: str, items: Iterator[Item]) -> Iterator[Row]:
    some: list[Item] = []
    size = 0
    for item in items:
        more = sum(map(len, item))
        if some and (len(some) >= _ITEMS or size + more > _BYTES):
            yield Row(trial=trial, part=part, kind=kind, items=tuple(some))
            some, size = [], 0
        some.append(item)
        size += more
    if some:
        yield Row(trial=trial, part=part, kind=kind, items=tuple(some))


def _items(redis: Redis, key: str, kind: str) -> Iterator[Item]:
    if kind == "stream":
        yield from _stream(redis, key)
    elif kind == "set":
        members: Any = redis.smembers(key)
        yield from ((member,) for member in sorted(members))
    elif kind == "zset":
        yield from _zset(redis, key)
    elif not key.endswith(":params"):
        yield from _hash(redis.hgetall(key))
    else:  # the only large hash: parameters by number
        total: Any = redis.hlen(key)
        for start in range(1, total + 1, _ITEMS):
            names = [str(n) for n in range(start, min(start + _ITEMS, total + 1))]
            values: Any = redis.hmget(key, names)
            pairs = zip(names, values, strict=True)
            yield from ((n.encode(), value) for n, value in pairs if value is not None)


def _hash(row: Any) -> Iterator[Item]:
    yield from sorted(row.items())


def _shared(redis: Redis, key: str, fields: set[bytes]) -> Iterator[Item]:
    for field in sorted(fields - {b""}):
        value: Any = redis.hget(key, field.decode("utf-8", "replace"))
        if value is not None:
            yield (field, value)


def _zset(redis: Redis, key: str) -> Iterator[Item]:
    start = 0
    while True:
        page: Any = redis.zrange(key, start, start + _ITEMS - 1, withscores=True)
        yield from ((number(score).encode(), member) for member, score in page)
        start += _ITEMS
        if len(page) < _ITEMS:
            return


def _stream(redis: Redis, key: str, page: Any = None) -> Iterator[Item]:
    """The entries of a stream; `page` are the first ones, where they were read already."""
    if page is None:
        page = redis.xrange(key, count=_ITEMS)
    while page:
        for entry, fields in page:
            yield (entry, *(part for pair in fields.items() for part in pair))
        if len(page) < _ITEMS:
            return
        page = redis.xrange(key, min=f"({page[-1][0].decode()}", count=_ITEMS)


def _last_event(redis: Redis, keys: Keys, sid: str) -> object:
    return redis.xrevrange(keys.sweep(sid, "events"), count=1)
