"""Plain reads: what the store looks like to people. Writes nothing and runs no script.

Viewers may hold credentials that can only read, so everything here is an ordinary read command, a
bounded number of them for each question. Workers do not import this module.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from hpq.codes import Notice
from hpq.domain.snapshot import Event, ServerMemory, Snapshot, Unreadable, Worker, pace_of
from hpq.domain.sweep import Sweep
from hpq.errors import DecodeError, NotFound
from hpq.store.books import BooksView
from hpq.store.event_reader import event_of
from hpq.store.keys import Keys
from hpq.store.memory import room_of
from hpq.store.sweep_reader import TurnsView
from hpq.store.trial_reader import TrialsView
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire.fields import Reader, Row

_ZSETS = ("waiting", "running", "dropped")
SILENT = 0.5  # of a lease: a worker beats every sixth of it, so two beats are missing
_AWAKE = ("idle", "busy", "draining", "drained")  # what only a worker that is heard can be
_SOME = 200  # sweeps asked about in one round trip


class View(TrialsView, BooksView, TurnsView):
    """Answers questions about one prefix of one Redis server.

    Raises, beside what each method says: OutOfReach by way of the caller's connection guard.
    """

    def __init__(self, redis: Redis, keys: Keys, lease_ms: int) -> None:
        super().__init__(redis, keys)
        self._lease_ms = lease_ms

    def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    # --- sweeps -------------------------------------------------------------------------------

    def sweep_ids(self, newest: int | None = None) -> list[str]:
        """Ids of the sweeps, newest first."""
        stop = -1 if newest is None else newest - 1
        found: Any = self._redis.zrange(self._keys.sweeps, 0, stop, desc=True)
        return [raw.decode() for raw in found]

    def sweeps(self, ids: Sequence[str]) -> list[Sweep]:
        """The sweeps with these ids, in this order; ids that are gone are left out.

        Raises:
            DecodeError: one of them cannot be read.
        """
        found = self.sweeps_or_why(ids)
        for one in found:
            if isinstance(one, Unreadable):
                raise DecodeError(one.why)
        return [one for one in found if isinstance(one, Sweep)]

    def sweeps_or_why(self, ids: Sequence[str]) -> list[Sweep | Unreadable]:
        """As `sweeps`, but one that cannot be read does not hide the others."""
        pipe = self._redis.pipeline(transaction=False)
        for sid in ids:
            pipe.hgetall(self._keys.sweep(sid))
            for part in _ZSETS:
                pipe.zcard(self._keys.sweep(sid, part))
        answers = iter(pipe.execute(raise_on_error=False))
        found = (self._sweep(sid, list(islice(answers, 1 + len(_ZSETS)))) for sid in ids)
        return [one for one in found if one is not None]

    def _sweep(self, sid: str, answer: list[Any]) -> Sweep | Unreadable | None:
        key, row = self._keys.sweep(sid), answer[0]
        for error in answer:
            if isinstance(error, ResponseError):  # a key of another type
                return Unreadable(id=sid, why=f"{key}: {error}")
            if isinstance(error, Exception):
                raise error
        if not row or b"created_ms" not in row:
            return None
        try:
            return sweep_codec.decode_sweep(key, sid, *answer)
        except DecodeError as error:
            return Unreadable(id=sid, why=str(error))

    def sweep(self, sid: str) -> Sweep:
        """One sweep.

        Raises:
            NotFound: there is none with this id.
        """
        found = self.sweeps([sid])
        if not found:
            raise NotFound(
                f"sweep {sid!r} is not there; `hpq ls` lists what is", code="sweep-not-found"
            )
        return found[0]

    def resolve(self, ref: str | None, owner: str) -> str:
        """The id of the sweep that a reference means: an id, a prefix of one, or None = my last.

        Where my last one was removed, it is the newest of those that I still have.

        Raises:
            NotFound: nothing or more than one sweep fits (names the candidates).
        """
        if ref is None:
            last: Any = self._redis.hget(self._keys.last, owner)
            if last is not None:
                return str(last.decode())
            return self._newest_of(owner)
        if self._redis.zscore(self._keys.sweeps, ref) is not None:
            return ref
        fits = [sid for sid in self.sweep_ids() if sid.startswith(ref)]
        if len(fits) == 1:
            return fits[0]
        if not fits:
            raise NotFound(
                f"no sweep begins with {ref!r}; `hpq ls` lists what is there",
                code="sweep-not-found",
            )
        some = ", ".join(fits[:5])
        raise NotFound(
            f"{ref!r} fits {len(fits)} sweeps: {some}; write more of the id", code="sweep-ambiguous"
        )

    def _newest_of(self, owner: str) -> str:
        ids = self.sweep_ids()
        for start in range(0, len(ids), _SOME):
            pipe = self._redis.pipeline(transaction=False)
            for sid in ids[start : start + _SOME]:
                pipe.hget(self._keys.sweep(sid), "owner")
            owners = pipe.execute(raise_on_error=False)
            for sid, raw in zip(ids[start:], owners, strict=False):
                if raw == owner.encode():
                    return sid
        raise NotFound("you have no sweep yet; `hpq enqueue FILE` makes one", code="no-sweep")

    def ahead_of(self, sweeps: Sequence[Sweep]) -> dict[str, list[Sweep]]:
        """By sweep, those that go before it, as `ids_ahead`; what cannot be read is left out."""
        ids = self.ids_ahead(sweeps)
        wanted = list(dict.fromkeys(sid for those in ids.values() for sid in those))
        found = {s.id: s for s in self.sweeps_or_why(wanted) if isinstance(s, Sweep)}
        return {sid: [found[one] for one in those if one in found] for sid, those in ids.items()}

    def find_digest(self, digest: str) -> str | None:
        """The id of the sweep with this digest, if it is there."""
        raw: Any = self._redis.hget(self._keys.digests, digest)
        return raw.decode() if raw else None

    # --- events and workers -------------------------------------------------------------------

    def events(
        self, sid: str, after: str = "0", block_ms: int | None = None, count: int | None = None
    ) -> list[Event]:
        """Lifecycle events after an id; waits up to `block_ms` for the first."""
        key = self._keys.sweep(sid, "events")
        answer: Any = self._redis.xread({key: after}, block=block_ms, count=count)
        return [event_of(key, eid, fields) for eid, fields in (answer[0][1] if answer else [])]

    def workers(self, worker_class: str | None = None) -> list[Worker]:
        """Live workers, by name; of one class where one is given."""
        now_ms = self.now_ms()
        floor, late_ms = now_ms - self._lease_ms, now_ms - SILENT * self._lease_ms
        names: Any = self._redis.zrangebyscore(self._keys.workers, floor, "+inf", withscores=True)
        pipe = self._redis.pipeline(transaction=False)
        for name, _ in names:
            pipe.hgetall(self._keys.worker(name.decode()))
        found = [
            _worker(self._keys, name.decode(), int(seen), row, late_ms, now_ms)
            for (name, seen), row in zip(names, pipe.execute(), strict=True)
            if row
        ]
        return sorted(
            (w for w in found if worker_class in (None, w.worker_class)), key=lambda w: w.name
        )

    def snapshot(
        self, sid: str, rows: int, top: int = 3, recent: int = 3, skip: int = 0
    ) -> Snapshot:
        """One moment of a sweep, at most `rows` running trials after the first `skip`.

        Raises:
            NotFound: there is no such sweep.
        """
        # Read first: what happens during the other reads is told again, never missed.
        events: Any = self._redis.xrevrange(self._keys.sweep(sid, "events"), count=1)
        sweep = self.sweep(sid)
        key = self._keys.sweep(sid)
        running: Any = (
            self._redis.zrange(f"{key}:running", skip, skip + rows - 1) if rows > 0 else []
        )
        ended: Any = self._redis.zrange(f"{key}:ended", 0, recent - 1, desc=True) if recent else []
        parts = [[int(n) for n in running], [int(n) for n in ended]]
        trials = iter(self.trials(sid, [n for part in parts for n in part]))
        shown = [tuple(islice(trials, len(part))) for part in parts]
        row: Any = self._redis.hmget(key, "dur_n", "dur_sum", "dur_sq")
        workers = tuple(self.workers(sweep.worker_class))
        is_stuck = sweep.counts.waits and not sweep.counts.running
        is_behind = is_stuck and any(w.state == "busy" for w in workers)
        return Snapshot(
            sweep=sweep,
            at_ms=self.now_ms(),
            running=shown[0],
            best=tuple(self.best(sweep, top)),
            recent=shown[1],
            workers=workers,
            ahead=tuple(self.ahead_of([sweep])[sid]) if is_behind else (),
            pace=pace_of(*(float(v or 0) for v in row)),
            memory=self.room(),
            silent_ms=SILENT * self._lease_ms,
            last_event=events[0][0].decode() if events else "0",
        )

    def room(self) -> ServerMemory | None:
        """How full the server is; None where it does not say."""
        try:
            return room_of(self._redis)
        except (ResponseError, KeyError):  # these credentials may not ask
            return None


def _refusals(text: str) -> dict[str, Notice]:
    return {sid: Notice(why["code"], str(why["text"])) for sid, why in json.loads(text).items()}


def _worker(keys: Keys, name: str, seen_ms: int, row: Row, late_ms: float, now_ms: int) -> Worker:
    r = Reader(keys.worker(name), row)
    state = r.text("state")
    if state in ("idle", "busy") and _is_drained(r.text("drain"), now_ms):
        state = "drained" if state == "idle" else "draining"
    return Worker(
        name=name,
        host=r.text("host"),
        pid=r.whole("pid"),
        worker_class=r.text("class"),
        state="silent" if seen_ms < late_ms and state in _AWAKE else state,
        trial=r.text("trial"),
        seen_ms=seen_ms,
        started_ms=r.whole("started_ms"),
        device=r.text("device"),
        version=r.text("version"),
        schema=r.parse("schema", 1, int),
        takes=tuple(r.json("takes", [])),
        key=r.text("key"),
        store=r.text("store"),
        code=r.text("code"),
        only=r.text("only"),
        pod=r.text("pod"),
        refuses=r.parse("refuses", {}, _refusals),
    )


def _is_drained(until: str, now_ms: int) -> bool:
    """As the scripts read it: until a time in ms, or for good (0)."""
    return until.isdigit() and (int(until) == 0 or int(until) > now_ms)
