"""Read sweeps: by id or by reference, their order in the queue, and the code that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress, islice
from typing import Any

from redis import Redis

from hpq.domain.identity import SWEEP_ID, ParameterSet
from hpq.domain.status import UnreadableSweep, event_ms
from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import Params, TrialId
from hpq.errors import DecodeError, NotFound, no_sweep
from hpq.redis.damage import answered
from hpq.redis.round_trips import Question, ask
from hpq.store.keys import Keys
from hpq.store.scripts import BATCH_ROWS
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire.fields import decoding, mapping, moment, sweep_id, trial_numbers
from hpq.store.worker_reader import server_ms

_COUNTED_SETS = ("waiting", "running", "dropped")
_OWNERS_PER_ROUND_TRIP = 200
_PAGE = 500  # sweeps read in one round trip
_OPEN_SWEEPS_READ = 200  # of one queue, in the order in which workers serve them
_AHEAD_MAX = 20  # sweeps listed before one sweep


class SweepReader:
    """Read the sweeps under one prefix."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._last: SweepView | None = None  # that was read

    def ids(self, newest: int | None = None) -> list[str]:
        """Return the ids of all sweeps, or of the N newest, newest first."""
        stop = -1 if newest is None else newest - 1
        found: Any = self._redis.zrange(self._keys.sweeps, 0, stop, desc=True)
        return [sid for raw in found if SWEEP_ID.match(sid := raw.decode("utf-8", "replace"))]

    def open_ids(self, queue: str) -> list[str]:
        """Return the ids of a queue's sweeps with waiting trials, in the order of service."""
        found: Any = self._redis.zrange(self._keys.queue(queue, "open"), 0, -1)
        return [sid for raw in found if SWEEP_ID.match(sid := raw.decode("utf-8", "replace"))]

    def exists(self, sid: str) -> bool:
        """Return whether the store holds a sweep with this id."""
        return ask(self._redis, self.exists_question(sid))

    def exists_question(self, sid: str) -> Question[bool]:
        """Ask whether the store holds a sweep with this id."""
        (answer,) = yield lambda pipe: pipe.exists(self._keys.sweep(sid))
        return bool(answered(self._keys.sweep(sid), answer))

    def get(self, sid: str) -> SweepView:
        """Return one sweep.

        Raises:
            NotFound: no sweep has this id.
            DecodeError: the sweep cannot be decoded.
        """
        return ask(self._redis, self.get_question(sid))

    def get_question(self, sid: str) -> Question[SweepView]:
        """Ask for one sweep, as `get`."""
        for sweep in (yield from self._each_question([sid])):
            return _readable(sweep)
        raise no_sweep(sid)

    def record(self, sid: str) -> SweepView:
        """Return a sweep, as `get`, for the fields that never change: read it if another was last.

        Of those are its code, its search and its signature.
        """
        last = self._last
        return last if last is not None and last.id == sid else self.get(sid)

    def get_many(self, ids: Sequence[str]) -> list[SweepView]:
        """Return the sweeps with these ids, in this order, without those that were removed.

        Raises:
            DecodeError: a sweep cannot be decoded.
        """
        return [_readable(sweep) for sweep in self.get_each(ids)]

    def get_each(self, ids: Sequence[str]) -> list[SweepView | UnreadableSweep]:
        """Like `get_many`, with an `UnreadableSweep` for each sweep that cannot be decoded."""
        return ask(self._redis, self._each_question(ids))

    def _each_question(self, ids: Sequence[str]) -> Question[list[SweepView | UnreadableSweep]]:
        def add(pipe: Any) -> None:
            for sid in ids:
                pipe.hgetall(self._keys.sweep(sid))
                for part in _COUNTED_SETS:
                    pipe.zcard(self._keys.sweep(sid, part))

        answers = iter((yield add))
        found = (self._decode(sid, list(islice(answers, 1 + len(_COUNTED_SETS)))) for sid in ids)
        sweeps = [sweep for sweep in found if sweep is not None]
        for sweep in sweeps[-1:]:
            self._last = sweep if isinstance(sweep, SweepView) else None
        return sweeps

    def _decode(self, sid: str, answer: Sequence[Any]) -> SweepView | UnreadableSweep | None:
        try:
            names = [self._keys.sweep(sid, part) for part in ("", *_COUNTED_SETS)]
            row, *sizes = map(answered, names, answer)
            if not row or b"created_ms" not in row:
                return None
            return sweep_codec.decode_sweep(self._keys.sweep(sid), sid, row, *sizes)
        except DecodeError as error:
            return UnreadableSweep(id=sid, why=str(error), code=error.code)

    def ended(self, age_ms: float) -> Iterator[tuple[SweepView, str]]:
        """Yield the sweeps that ended at least `age_ms` ago, each with the id of its last event.

        The age of a sweep that came back from an archive counts from then on. A sweep whose age
        cannot be read is left out.
        """
        until = server_ms(self._redis) - age_ms
        old: Any = self._redis.zrangebyscore(self._keys.sweeps, "-inf", until)
        for start in range(0, len(old), _PAGE):
            ids = [sid.decode("utf-8", "replace") for sid in old[start : start + _PAGE]]
            over = [
                one
                for one in self.get_each(ids)
                if isinstance(one, SweepView) and one.state.is_over
            ]
            pipe = self._redis.pipeline(transaction=False)
            for sweep in over:
                pipe.xrevrange(self._keys.sweep(sweep.id, "events"), count=1)
                pipe.hget(self._keys.sweep(sweep.id), "restored_ms")
            answers = pipe.execute(raise_on_error=False)
            for sweep, last, restored in zip(over, answers[::2], answers[1::2], strict=True):
                key = self._keys.sweep(sweep.id, "events")
                with suppress(DecodeError):
                    event = answered(key, last)[0][0].decode() if last else "0-0"
                    with decoding(key):
                        since = max(event_ms(event), moment(restored or b"0"))
                    if since <= until:
                        yield sweep, event

    def best_objective(self, sweep: SweepView) -> float | None:
        """Return the best objective of a sweep, or None.

        Raises:
            DecodeError: the ranking cannot be read.
        """
        (best,) = self._best_objectives([sweep])
        found: float | None = answered(self._keys.ranking(sweep.id, sweep.replicates), best)
        return found

    def best_of_each(
        self, found: Sequence[SweepView | UnreadableSweep]
    ) -> tuple[list[SweepView | UnreadableSweep], dict[str, float | None]]:
        """Return these sweeps, and by id the best objective of each, or None; one round trip.

        A sweep whose ranking cannot be read becomes an UnreadableSweep.
        """
        sweeps = [one for one in found if isinstance(one, SweepView)]
        answers = zip(sweeps, self._best_objectives(sweeps), strict=True)
        best, unreadable = dict[str, float | None](), dict[str, UnreadableSweep]()
        for sweep, answer in answers:
            try:
                best[sweep.id] = answered(self._keys.ranking(sweep.id, sweep.replicates), answer)
            except DecodeError as error:
                unreadable[sweep.id] = UnreadableSweep(id=sweep.id, why=str(error))
        return [unreadable.get(one.id, one) for one in found], best

    def _best_objectives(self, sweeps: Sequence[SweepView]) -> list[float | Exception | None]:
        pipe = self._redis.pipeline(transaction=False)
        for sweep in sweeps:
            desc = sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE
            pipe.zrange(
                self._keys.ranking(sweep.id, sweep.replicates), 0, 0, desc=desc, withscores=True
            )
        found = list[float | Exception | None]()
        for answer in pipe.execute(raise_on_error=False):
            if isinstance(answer, Exception):
                found.append(answer)
            else:
                found.append(float(answer[0][1]) if answer else None)
        return found

    def resolve(self, ref: str | None, owner: str) -> str:
        """Return the id of the sweep that a reference names.

        `ref` is an id, a name, or the beginning of an id; a whole name wins over longer ones. None
        names the last sweep that `owner` enqueued, or, if that sweep was removed, the newest of
        the owner's other sweeps.

        Raises:
            NotFound: no sweep, or more than one, matches (the message lists the candidates).
        """
        if ref is None:
            last: Any = self._redis.hget(self._keys.last, owner)
            if last is not None:
                return sweep_id(last)
            return self._newest_of(owner)
        if self._redis.zscore(self._keys.sweeps, ref) is not None:
            return ref
        matches = _matches(ref, self.ids())
        if len(matches) == 1:
            return matches[0]
        if not matches:
            trial = f" (trial {ref} is SWEEP/{ref})" if ref.isdecimal() else ""
            text = f"no sweep begins with {ref!r}{trial}; `hpq ls --all` lists all sweeps"
            raise NotFound(text, code="sweep-not-found")
        first = ", ".join(matches[:5])
        text = f"{ref!r} matches {len(matches)} sweeps: {first}; type more of its characters"
        raise NotFound(text, code="sweep-ambiguous")

    def _newest_of(self, owner: str) -> str:
        ids = self.ids()
        for start in range(0, len(ids), _OWNERS_PER_ROUND_TRIP):
            pipe = self._redis.pipeline(transaction=False)
            for sid in ids[start : start + _OWNERS_PER_ROUND_TRIP]:
                pipe.hget(self._keys.sweep(sid), "owner")
            owners = pipe.execute(raise_on_error=False)
            for sid, raw in zip(ids[start:], owners, strict=False):
                if raw == owner.encode():
                    return sid
        text = "you have no sweep yet; `hpq run FILE` runs one here, `hpq enqueue FILE` queues one"
        raise NotFound(text, code="no-sweep")

    def find_by_digest(self, digest: str) -> str | None:
        """Return the id of the sweep with this digest, or None."""
        return ask(self._redis, self.digest_question(digest))

    def digest_question(self, digest: str) -> Question[str | None]:
        """Ask for the sweep with this digest, as `find_by_digest`."""
        (answer,) = yield lambda pipe: pipe.hget(self._keys.digests, digest)
        raw = answered(self._keys.digests, answer)
        return sweep_id(raw) if raw else None

    def ahead_of(self, sweeps: Sequence[SweepView]) -> dict[str, list[SweepView]]:
        """Return, by sweep, at most 20 open sweeps of its queue that are served before it.

        A sweep of a higher priority is served first, and so is an older sweep of the same owner
        and priority. Sweeps of different owners take turns, so they are not listed, nor are those
        that cannot be decoded. Takes three round trips, however many sweeps are given.
        `lua/lib/sweep_order` decides the order.
        """
        queues = list(dict.fromkeys(sweep.queue for sweep in sweeps))
        pipe = self._redis.pipeline(transaction=False)
        for name in queues:
            key = self._keys.queue(name, "open")
            pipe.zrange(key, 0, _OPEN_SWEEPS_READ - 1, withscores=True)
        for sweep in sweeps:
            pipe.zscore(self._keys.queue(sweep.queue, "open"), sweep.id)
        answers: list[Any] = pipe.execute()
        open_sweeps = dict(zip(queues, answers, strict=False))
        owners = self._owners({name: [raw for raw, _ in open_sweeps[name]] for name in queues})
        ids = {
            sweep.id: _ids_before(sweep, order, open_sweeps[sweep.queue], owners)
            for sweep, order in zip(sweeps, answers[len(queues) :], strict=True)
        }
        wanted = list(dict.fromkeys(sid for ahead in ids.values() for sid in ahead))
        found = {s.id: s for s in self.get_each(wanted) if isinstance(s, SweepView)}
        return {sid: [found[one] for one in ahead if one in found] for sid, ahead in ids.items()}

    def _owners(self, ids_by_queue: dict[str, list[bytes]]) -> dict[bytes, bytes]:
        pipe = self._redis.pipeline(transaction=False)
        asked = {name: ids for name, ids in ids_by_queue.items() if ids}
        for name, ids in asked.items():
            pipe.hmget(self._keys.queue(name, "owners"), ids)
        found: dict[bytes, bytes] = {}
        for ids, owners in zip(asked.values(), pipe.execute(), strict=True):
            found |= {sid: owner or b"" for sid, owner in zip(ids, owners, strict=True)}
        return found

    def bundle(self, digest: str) -> bytes | None:
        """Return the code of a digest as a gzipped tar, or None if the store does not hold it."""
        raw: Any = self._redis.get(self._keys.bundle(digest)) if digest else None
        return raw if isinstance(raw, bytes) else None

    def manifest(self, digest: str) -> Mapping[str, str]:
        """Return {path: sha256} of a code digest; empty if the store does not hold it.

        Raises:
            DecodeError: the manifest cannot be decoded.
        """
        raw: Any = self._redis.hget(self._keys.code, digest) if digest else None
        where = f"{self._keys.code} field {digest}"
        found = _mapping(where, raw) if raw else {}
        return {path: str(sha256) for path, sha256 in found.items()}

    def origin(self, sid: str, field: str) -> str:
        """Return a long field of a sweep's origin (`diff`); empty if the sweep has none."""
        raw: Any = self._redis.hget(self._keys.sweep(sid, "origin"), field)
        return raw.decode("utf-8", "replace") if raw else ""

    def file_stores(self, sid: str) -> list[str]:
        """Return the ids of the file stores that ever held a file of the sweep, sorted."""
        found: Any = self._redis.smembers(self._keys.sweep(sid, "stores"))
        return sorted(raw.decode("utf-8", "replace") for raw in found)

    def known_sets(self, sid: str, sets: Iterable[ParameterSet]) -> set[bytes]:
        """Return the identities of these sets that the sweep has, in any state."""
        return known_sets(self._redis, self._keys, sid, sets)

    def file_pointers(self, sid: str, chunk: int = 500) -> Iterator[tuple[bytes, bytes]]:
        """Yield the JSON pointers to artifacts and checkpoint of the trials that may have files.

        A missing pointer is empty. Reads `chunk` trials a round trip.
        """
        ended: Any = self._redis.smembers(self._keys.sweep(sid, "files"))
        # Requeued trials wait with an order below 0; the others that wait were never claimed.
        requeued: Any = self._redis.zrangebyscore(self._keys.sweep(sid, "waiting"), "-inf", 0)
        running: Any = self._redis.zrange(self._keys.sweep(sid, "running"), 0, -1)
        where = self._keys.sweep(sid, "{files,waiting,running}")
        numbers = sorted(set(trial_numbers(where, (*ended, *requeued, *running))))
        for start in range(0, len(numbers), chunk):
            pipe = self._redis.pipeline(transaction=False)
            for n in numbers[start : start + chunk]:
                key = self._keys.trial(TrialId(sweep=sid, number=n))
                pipe.hmget(key, "artifacts", "checkpoint")
            for artifacts, checkpoint in pipe.execute():
                yield artifacts or b"", checkpoint or b""

    def provenance(self, digest: str) -> Params:
        """Return the provenance record of an attempt by its digest; empty if it was dropped."""
        return ask(self._redis, self.provenance_question(digest))

    def provenance_question(self, digest: str) -> Question[Params]:
        """Ask for the provenance record of an attempt, as `provenance`."""
        if not digest:
            return {}
        (answer,) = yield lambda pipe: pipe.hget(self._keys.provenance, digest)
        raw = answered(self._keys.provenance, answer)
        where = f"{self._keys.provenance} field {digest}"
        return _mapping(where, raw) if raw else {}


def _readable(sweep: SweepView | UnreadableSweep) -> SweepView:
    if isinstance(sweep, UnreadableSweep):
        raise DecodeError(sweep.why, code=sweep.code)
    return sweep


def known_sets(redis: Redis, keys: Keys, sid: str, sets: Iterable[ParameterSet]) -> set[bytes]:
    """Return the identities of these sets that a sweep has, in any state."""
    identities = [one.identity for one in sets]
    known: set[bytes] = set()
    for start in range(0, len(identities), BATCH_ROWS):
        batch = identities[start : start + BATCH_ROWS]
        found: Any = redis.smismember(keys.sweep(sid, "ids"), batch)
        known.update(compress(batch, found))
    return known


def _mapping(where: str, raw: bytes) -> dict[str, Any]:
    with decoding(f"{where}: {raw[:60]!r}"):
        return mapping(raw.decode())


def _matches(ref: str, ids: Iterable[str]) -> list[str]:
    """Return the ids with this beginning; those of this name if there are any.

    An empty beginning has none: in `hpq rm --yes "$SWEEP"`, a shell may not know the variable.
    """
    found = [sid for sid in ids if ref and sid.startswith(ref)]
    return [sid for sid in found if sid.rpartition("-")[0] == ref] or found


def _ids_before(
    sweep: SweepView,
    order: float | None,
    open_sweeps: Iterable[tuple[bytes, float]],
    owners: Mapping[bytes, bytes],
) -> list[str]:
    if order is None:  # no trial of the sweep waits
        return []
    priority_start = order - sweep.created_ms  # the order is an age on top of a priority
    owner = sweep.owner.encode()
    ahead = (
        sid.decode("utf-8", "replace")
        for sid, other in open_sweeps
        if other < order and (other < priority_start or owners.get(sid) == owner)
    )
    return list(ahead)[:_AHEAD_MAX]
