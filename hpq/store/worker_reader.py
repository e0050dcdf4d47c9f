"""Read live workers, what owners use, the figures of the fleet, and how full the server is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from statistics import fmean
from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError

from hpq.domain.owner import EVERYBODY, LIMITS, Owner
from hpq.domain.status import Fleet, ServerMemory, Worker
from hpq.domain.stored_state import StoredState
from hpq.errors import DecodeError
from hpq.notice import Notice
from hpq.redis.damage import answered
from hpq.redis.round_trips import Question, ask, together
from hpq.store.keys import Keys
from hpq.store.wire.fields import Reader, Row, decoding, loads, mapping, real, whole

SILENT = 0.5  # of a lease without a heartbeat: heartbeats are a sixth of a lease apart
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")  # of a worker: host, pid, 4 hex digits
_CONNECTED = ("idle", "busy", "draining", "drained")  # states of a worker that sends heartbeats
_DIGITS = 20  # no count has more
_DEMAND = "demand:"  # of a queue, in the hash P:queues
_ENDED = "ended:"  # of attempts, in the hash `counters`


class WorkerReader:
    """Read the workers under one prefix; `lease_ms` is the lease of a trial."""

    def __init__(self, redis: Redis, keys: Keys, lease_ms: int) -> None:
        self._redis = redis
        self._keys = keys
        self._lease_ms = lease_ms

    @property
    def silent_ms(self) -> float:
        """After how many milliseconds without a heartbeat a worker counts as silent."""
        return SILENT * self._lease_ms

    def live(self, queue: str | None = None) -> list[Worker]:
        """Return the live workers, or those of one queue, by name.

        A worker whose record cannot be decoded is of no queue.
        """
        found = ask(self._redis, self.live_question())
        return [worker for worker in found if queue in (None, worker.queue)]

    def live_question(self) -> Question[list[Worker]]:
        """Ask for the live workers of all queues, as `live`."""

        def add_names(pipe: Any) -> None:
            pipe.time()
            pipe.zrange(self._keys.workers, 0, -1, withscores=True)

        at, answer = yield add_names
        known = answered(self._keys.workers, answer)
        now_ms = clock_ms(answered("", at))
        floor, silent_since = now_ms - self._lease_ms, now_ms - self.silent_ms
        names = [(name, seen) for name, seen in known if seen >= floor and _NAME.match(name)]

        def add_workers(pipe: Any) -> None:
            for name, _ in names:
                pipe.hgetall(self._keys.worker(name.decode()))

        rows = yield add_workers
        found = [
            # A clock that was put back, or another client, may have left a time to come.
            _worker(self._keys, name.decode(), int(min(seen, now_ms)), row, silent_since)
            for (name, seen), row in zip(names, rows, strict=True)
            if row
        ]
        return sorted(found, key=lambda worker: worker.name)

    def counters(self) -> dict[str, int]:
        """Return how often each thing happened that hpq counts, such as `leases_expired`."""
        found: Any = self._redis.hgetall(self._keys.counters)
        return {name: n for name, n in _counts(found).items() if not name.startswith(_ENDED)}

    def fleet(self) -> Fleet:
        """Return the figures of all queues, owners and workers.

        Takes six round trips; the commands grow with the open sweeps and the live workers.

        Raises:
            RedisError: the server does not answer.
        """
        pipe = self._redis.pipeline(transaction=False)
        pipe.hgetall(self._keys.queues)
        pipe.hgetall(self._keys.counters)
        pipe.info("memory")
        pipe.info("persistence")
        answers: list[Any] = pipe.execute()
        queues, counters, memory, persistence = answers
        live, counted = self.live(), _counts(counters)
        demand = _of_queues(queues)
        limit = memory.get("maxmemory", 0)
        aof_ok = persistence.get("aof_enabled") and persistence.get("aof_last_write_status") == "ok"
        waiting, running, held = self._trials(list(demand))
        return Fleet(
            demand=demand,
            waiting=waiting,
            running=running,
            held=held,
            gpu_ms=self._gpu_ms(),
            workers=Counter((worker.queue, worker.state) for worker in live),
            gpu_util=_gpu_util(live),
            counters=counted,
            ended=_ended(counted),
            memory_ratio=memory["used_memory"] / limit if limit else 0.0,
            is_aof_ok=bool(aof_ok),
        )

    def _gpu_ms(self) -> Mapping[str, int]:
        found: Any = self._redis.hgetall(self._keys.spent)
        return _counts(found)

    def _trials(
        self, queues: list[str]
    ) -> tuple[Mapping[tuple[str, str], int], Mapping[tuple[str, str], int], Mapping[str, int]]:
        """Return what waits and what runs in open sweeps, by queue and owner; and held sweeps."""
        pipe = self._redis.pipeline(transaction=False)
        for queue in queues:
            pipe.hgetall(self._keys.queue(queue, "owners"))
            pipe.hgetall(self._keys.queue(queue, "busy"))
        answers: list[Any] = pipe.execute()
        sweeps = [
            ((queue, owner.decode("utf-8", "replace")), sid.decode("utf-8", "replace"))
            for queue, owners in zip(queues, answers[::2], strict=True)
            for sid, owner in owners.items()
        ]
        running = {
            (queue, owner): number
            for queue, busy in zip(queues, answers[1::2], strict=True)
            for owner, number in _counts(busy).items()
        }
        pipe = self._redis.pipeline(transaction=False)
        for _, sid in sweeps:
            pipe.zcard(self._keys.sweep(sid, "waiting"))
            pipe.hget(self._keys.sweep(sid), "state")
        answers = pipe.execute(raise_on_error=False)
        waiting, held = Counter[tuple[str, str]](), Counter(dict.fromkeys(queues, 0))
        for (whose, sid), size, state in zip(sweeps, answers[::2], answers[1::2], strict=True):
            with suppress(DecodeError):  # `hpq ls` names the sweep
                waiting[whose] += answered(self._keys.sweep(sid, "waiting"), size)
            held[whose[0]] += state == StoredState.HELD.encode()
        return waiting, running, held


class OwnerReader:
    """Read the owners under one prefix."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def all(self) -> list[Owner]:
        """Return the owners with limits, used GPU time or sweeps, by name, EVERYBODY first.

        Returns [] if no limits are set.

        Raises:
            DecodeError: the server holds what hpq does not write.
        """
        limits = self._limits()
        if not limits:
            return []
        spent: Any = self._redis.hkeys(self._keys.spent)
        names = {name for name, _ in limits} | {_text(raw) for raw in spent} | set(self.known())
        return self._read(sorted(names, key=lambda name: (name != EVERYBODY, name)), limits)

    def of(self, names: Collection[str]) -> dict[str, Owner]:
        """Return these owners by name; {} if no limits are set, or they cannot be read."""
        return ask(self._redis, self.of_question(names))

    def of_question(self, names: Collection[str]) -> Question[dict[str, Owner]]:
        """Ask for these owners, as `of`."""
        if not names:
            return {}
        (answer,) = yield lambda pipe: pipe.hgetall(self._keys.limits)
        with suppress(DecodeError):  # `hpq user` reports it
            limits = self._decode_limits(answered(self._keys.limits, answer))
            return {owner.name: owner for owner in self._read(names, limits)} if limits else {}
        return {}

    def known(self) -> list[str]:
        """Return the owners that ever enqueued a sweep, by name."""
        found: Any = self._redis.hkeys(self._keys.last)
        return sorted(map(_text, found))

    def may_write(self) -> bool:
        """Return whether this Redis user could change limits. Changes nothing."""
        try:
            self._redis.hdel(self._keys.limits, "")
        except NoPermissionError:
            return False
        return True

    def _limits(self) -> dict[tuple[str, str], int]:
        found: Any = self._redis.hgetall(self._keys.limits)
        return self._decode_limits(found)

    def _decode_limits(self, found: Row) -> dict[tuple[str, str], int]:
        limits = {}
        for raw, value in found.items():
            owner, _, name = _text(raw).rpartition("/")
            if name in LIMITS:
                with decoding(f"{self._keys.limits}: field {raw[:60]!r}"):
                    limits[owner, name] = whole(value)
        return limits

    def _read(self, names: Iterable[str], limits: Mapping[tuple[str, str], int]) -> list[Owner]:
        running = self._running()
        spent: Any = self._redis.hgetall(self._keys.spent)
        owners = []
        for name in names:
            own = {limit: limits[name, limit] for limit in LIMITS if (name, limit) in limits}
            defaults = {
                limit: limits[EVERYBODY, limit]
                for limit in LIMITS
                if limit not in own and (EVERYBODY, limit) in limits
            }
            with decoding(f"{self._keys.spent}: field {name}"):
                spent_ms = whole(spent.get(name.encode(), b"0"))
            owners.append(
                Owner(
                    name=name,
                    limits=own | defaults,
                    defaults=frozenset(defaults),
                    running=running[name],
                    spent_ms=spent_ms,
                )
            )
        return owners

    def _running(self) -> Counter[str]:
        """Return how many trials of each owner run, in all queues."""
        queues: Any = self._redis.hgetall(self._keys.queues)
        pipe = self._redis.pipeline(transaction=False)
        for queue in _of_queues(queues):
            pipe.hgetall(self._keys.queue(queue, "busy"))
        running = Counter[str]()
        for busy in pipe.execute():
            running.update(_counts(busy))
        return running


def server_ms(redis: Redis) -> int:
    """Return the time by the server's clock, in milliseconds."""
    return clock_ms(redis.time())


def clock_ms(answer: Any) -> int:
    """Return the reply of TIME, (seconds, microseconds), in milliseconds."""
    seconds, micros = answer
    return int(seconds) * 1000 + int(micros) // 1000


def _counts(row: Row) -> dict[str, int]:
    """Return the fields of a hash that hold whole numbers."""
    return {
        name.decode("utf-8", "replace"): int(text)
        for name, text in row.items()
        if text.removeprefix(b"-").isdigit() and len(text) < _DIGITS
    }


def _of_queues(queues: Row) -> dict[str, int]:
    """Return the demand of each queue, from the hash P:queues."""
    return {
        name.removeprefix(_DEMAND): number
        for name, number in _counts(queues).items()
        if name.startswith(_DEMAND)
    }


def _ended(counted: Mapping[str, int]) -> dict[tuple[str, str, int], int]:
    """Return the counts of ended attempts, by outcome, kind and seconds."""
    ended = {}
    for name, number in counted.items():
        parts = name.removeprefix(_ENDED).split(":")
        is_ended = name.startswith(_ENDED) and len(parts) == 3
        if is_ended and parts[2].isdecimal() and len(parts[2]) < _DIGITS:
            ended[parts[0], parts[1], int(parts[2])] = number
    return ended


def _gpu_util(live: Iterable[Worker]) -> dict[tuple[str, str], float]:
    """Return the mean use of the GPUs of running trials, by queue and host."""
    found: dict[tuple[str, str], list[float]] = {}
    for worker in live:
        if worker.gpu_util is not None and worker.state in ("busy", "draining"):
            found.setdefault((worker.queue, worker.host), []).append(worker.gpu_util)
    return {place: fmean(values) for place, values in found.items()}


def _worker(keys: Keys, name: str, seen_ms: int, row: Any, silent_since: float) -> Worker:
    key = keys.worker(name)
    try:
        return _decoded(name, seen_ms, Reader(key, answered(key, row)), silent_since)
    except DecodeError as error:
        return Worker(name=name, state="unreadable", seen_ms=seen_ms, unreadable=str(error))


def _decoded(name: str, seen_ms: int, r: Reader, silent_since: float) -> Worker:
    """Decode a worker from its hash.

    Raises:
        DecodeError: a field is invalid (names it).
    """
    state = r.text("state")
    if state in ("idle", "busy") and r.text("drain"):
        state = "drained" if state == "idle" else "draining"
    return Worker(
        name=name,
        host=r.text("host"),
        pid=r.count("pid"),
        queue=r.text("queue"),
        state="silent" if seen_ms < silent_since and state in _CONNECTED else state,
        trial=r.text("trial"),
        seen_ms=seen_ms,
        device=r.text("device"),
        version=r.text("version"),
        takes=r.parse("takes", tuple[str, ...](), _texts),
        key=r.text("key"),
        store=r.text("store"),
        only=r.text("only"),
        pod=r.text("pod"),
        low_disk=r.text("low_disk"),
        gpu_util=r.parse("gpu_util", None, real),
        refuses=r.parse("refuses", dict[str, Notice](), _refusals),
    )


def _texts(text: str) -> tuple[str, ...]:
    return tuple(map(str, loads(text)))


def _refusals(text: str) -> dict[str, Notice]:
    return {sid: Notice(why["code"], str(why["text"])) for sid, why in mapping(text).items()}


def server_memory(redis: Redis) -> ServerMemory:
    """Read the server's memory and the state of its disk."""
    return ask(redis, memory_question())


def memory_question() -> Question[ServerMemory]:
    """Ask for the server's memory and the state of its disk."""

    memory, persistence = yield from together(info_question("memory"), info_question("persistence"))
    return memory_of({**memory, **persistence})


def memory_of(info: Mapping[str, Any]) -> ServerMemory:
    """Return what a server's INFO says of its memory and its disk."""
    return ServerMemory(
        used=int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0)),
        limit=int(info.get("maxmemory", 0)),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        is_kept=info.get("aof_last_write_status", "ok") == "ok",
    )


def info_question(section: str) -> Question[Mapping[str, Any]]:
    """Ask for a section of the server's INFO."""
    (answer,) = yield lambda pipe: pipe.info(section)
    found: Mapping[str, Any] = answered("", answer)
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
