"""Read every key of a sweep for an archive, and write an archived sweep back.

A restore writes key by key where no reader looks; its last call makes all of them visible. What a
restore that died has written expires.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId
from hpq.errors import DecodeError, UserError
from hpq.store.control import delete_trials
from hpq.store.keys import SWEEP_PARTS, Keys, sweep_parts
from hpq.store.scripts import UNFINISHED_TTL_S, StoreContext
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import number, trial_numbers

_PAGE = 500  # members, entries or trials read in one round trip
Item = tuple[bytes, ...]
Key = tuple[int, str, str, Iterator[Item]]  # trial (0: the sweep), part, kind, items


class ArchiveReader:
    """Reads all keys of one sweep, in pages."""

    def __init__(self, redis: Redis, keys: Keys, sweep: SweepView) -> None:
        self._redis = redis
        self._keys = keys
        self._sweep = sweep

    def read(self) -> Iterator[Key]:
        """Yield the sweep's keys, the keys of its claimed trials, and what sweeps share by digest.

        Read the items of a key before the next key.

        Raises:
            UserError: the sweep changed meanwhile, so that the keys are not of one moment.
        """
        sweep = self._sweep
        keys = self._keys
        sid = self._sweep.id
        before = self._last_event()
        yield 0, "", "hash", _sorted(self._redis.hgetall(keys.sweep(sid)))
        for part, kind in sweep_parts(sweep.bands).items():
            yield 0, part, kind, self._items(keys.sweep(sid, part), kind)
        members: Any = self._redis.smembers(keys.sweep(sid, "ran_on"))
        ran_on = set[bytes](members)
        yield from self._trials(ran_on)
        yield 0, "provenance", "shared", self._shared(keys.provenance, ran_on)
        if sweep.launch.code:
            yield 0, "code", "shared", self._shared(keys.code, {sweep.launch.code.encode()})
        bundle: Any = self._redis.get(keys.bundle(sweep.bundle)) if sweep.bundle else None
        if bundle is not None:
            yield 0, "bundle", "shared", iter([(sweep.bundle.encode(), bundle)])
        if self._last_event() != before:
            text = f"{sid}: changed while it was written; `hpq pause {sid}` first"
            raise UserError(text, code="sweep-changed")

    def _trials(self, ran_on: set[bytes]) -> Iterator[Key]:
        total = self._sweep.counts.total
        for start in range(1, total + 1, _PAGE):
            numbers = range(start, min(start + _PAGE, total + 1))
            trials = [TrialId(sweep=self._sweep.id, number=n) for n in numbers]
            pipe = self._redis.pipeline(transaction=False)
            for trial in trials:
                pipe.hgetall(self._keys.trial(trial))
            for trial, row in zip(trials, pipe.execute(), strict=True):
                if row:  # the trial was claimed
                    ran_on.add(row.get(b"provenance", b""))
                    yield trial.number, "", "hash", _sorted(row)
                    yield from self._streams(trial, row)

    def _streams(self, trial: TrialId, row: Any) -> Iterator[Key]:
        """Yield the trial's log and points, in one round trip if the streams are short."""
        names = trial_codec.metric_names(row)
        parts = {"log": self._keys.trial(trial, "log")}
        parts |= {f"p:{name}": self._keys.points(trial, name) for name in names}
        pipe = self._redis.pipeline(transaction=False)
        for key in parts.values():
            pipe.xrange(key, count=_PAGE)
        pipe.hgetall(self._keys.trial(trial, "points"))
        *pages, points = pipe.execute()
        yield trial.number, "points", "hash", _sorted(points)
        for (part, key), page in zip(parts.items(), pages, strict=True):
            yield trial.number, part, "stream", self._stream(key, page)

    def _items(self, key: str, kind: str) -> Iterator[Item]:
        if kind == "stream":
            yield from self._stream(key)
        elif kind == "set":
            members: Any = self._redis.smembers(key)
            yield from ((member,) for member in sorted(members))
        elif kind == "zset":
            yield from self._zset(key)
        elif not key.endswith(":params"):
            yield from _sorted(self._redis.hgetall(key))
        else:  # the only large hash: parameters by number
            total: Any = self._redis.hlen(key)
            for start in range(1, total + 1, _PAGE):
                names = [str(n) for n in range(start, min(start + _PAGE, total + 1))]
                values: Any = self._redis.hmget(key, names)
                pairs = zip(names, values, strict=True)
                yield from ((n.encode(), value) for n, value in pairs if value is not None)

    def _shared(self, key: str, fields: set[bytes]) -> Iterator[Item]:
        for field in sorted(fields - {b""}):
            value: Any = self._redis.hget(key, field.decode("utf-8", "replace"))
            if value is not None:
                yield (field, value)

    def _zset(self, key: str) -> Iterator[Item]:
        start = 0
        while True:
            page: Any = self._redis.zrange(key, start, start + _PAGE - 1, withscores=True)
            yield from ((number(score).encode(), member) for member, score in page)
            start += _PAGE
            if len(page) < _PAGE:
                return

    def _stream(self, key: str, page: Any = None) -> Iterator[Item]:
        """Yield the entries of a stream; `page` are its first entries, if already read."""
        if page is None:
            page = self._redis.xrange(key, count=_PAGE)
        while page:
            for entry, fields in page:
                yield (entry, *(part for pair in fields.items() for part in pair))
            if len(page) < _PAGE:
                return
            page = self._redis.xrange(key, min=f"({page[-1][0].decode()}", count=_PAGE)

    def _last_event(self) -> object:
        return self._redis.xrevrange(self._keys.sweep(self._sweep.id, "events"), count=1)


def _sorted(row: Any) -> Iterator[Item]:
    yield from sorted(row.items())


def copied_from(context: StoreContext, sid: str) -> set[str]:
    """Return the ids of the sweeps whose results trials of this sweep copy (`--reuse`).

    Damaged records copy nothing.
    """
    redis, keys = context.redis, context.keys
    found: set[str] = set()
    with suppress(DecodeError, ResponseError):
        key = keys.sweep(sid, "ended")
        ended: Any = redis.zrange(key, 0, -1)
        trials = [TrialId(sweep=sid, number=number) for number in trial_numbers(key, ended)]
        for start in range(0, len(trials), _PAGE):
            pipe = redis.pipeline(transaction=False)
            for trial in trials[start : start + _PAGE]:
                pipe.hget(keys.trial(trial), "reused")
            sources = (raw.decode("utf-8", "replace") for raw in pipe.execute() if raw)
            found |= {source.partition("/")[0] for source in sources}
    return found


class ArchiveRestore:
    """One restore of one sweep."""

    def __init__(self, context: StoreContext, sid: str, trials: int) -> None:
        self._context = context
        self._sid = sid
        self._trials = trials
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts
        self._token = secrets.token_hex(8)
        self._begun: set[tuple[int, str]] = set()  # parts of the last trial and of the sweep
        self._count = 0

    def write(self, trial: int, part: str, kind: str, items: Sequence[bytes]) -> None:
        """Write rows of one key; all rows of a key must follow one another.

        Raises:
            UserError: the sweep exists, or another process restores it.
        """
        first = (trial, part) not in self._begun
        if first:
            self._begun = {place for place in self._begun if place[0] in (0, trial)}
            self._begun.add((trial, part))
            self._count += 1
        reply, _ = self._scripts.run(
            "restore",
            *items,
            sweep=self._sid,
            token=self._token,
            ttl_s=UNFINISHED_TTL_S,
            trial=trial,
            part=part,
            kind=kind,
            first=first,
        )
        self._check(reply)

    def finish(self, fields: Mapping[bytes, bytes]) -> None:
        """Make the sweep visible with all rows that were written.

        Raises:
            UserError: the sweep was created meanwhile, or some of its rows expired.
        """
        flat = [part for pair in fields.items() for part in pair]
        reply, rest = self._scripts.run(
            "finish_restore",
            *flat,
            sweep=self._sid,
            token=self._token,
            trials=self._trials,
            keys=self._count,
            parts=sorted(part for trial, part in self._begun if not trial),
            ttl_s=UNFINISHED_TTL_S,
        )
        self._check(reply)
        self._context.mint(rest[0], int(rest[1]))

    def keep_shared(self, part: str, digest: str, data: bytes) -> None:
        """Write what other sweeps may refer to as well, under its digest.

        `part` is bundle (a code snapshot), code (its manifest) or provenance.
        """
        if part == "bundle":
            self._scripts.run("keep_code", digest, UNFINISHED_TTL_S, data)
        elif part == "code":
            self._redis.hsetnx(self._keys.code, digest, data.decode())
        else:
            self._scripts.run("keep_ran_on", digest, data.decode())

    def _check(self, reply: str) -> None:
        if reply == "exists":
            text = f"sweep {self._sid} exists; `hpq rm {self._sid}` removes it"
            raise UserError(text, code="sweep-exists")
        if reply == "taken":
            raise UserError(
                f"another process restores sweep {self._sid}, or removes its files; try again in"
                " ten minutes",
                code="restore-busy",
            )
        if reply == "torn":
            raise UserError(
                f"sweep {self._sid}: the restored rows expired or differ from the archive; nothing"
                " was kept; run `hpq archive --restore FILE` again",
                code="rows-expired",
            )

    def discard(self) -> None:
        """Delete what was written, unless the sweep exists or another process restores it."""
        mark = self._keys.sweep(self._sid, "restoring")
        token: Any = self._redis.get(mark)
        if token != self._token.encode() or self._redis.exists(self._keys.sweep(self._sid)):
            return
        delete_trials(self._context, self._sid, 1, self._trials)
        parts = {*SWEEP_PARTS, *(part for trial, part in self._begun if not trial)}
        self._redis.unlink(*(self._keys.sweep(self._sid, part) for part in parts), mark)
