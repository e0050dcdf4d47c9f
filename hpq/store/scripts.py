"""Run the Lua scripts of the store, with the client, the keys and the tickets that writers share.

A script is one transition: lua/NAME.lua behind its parts of lua/lib, run by its SHA. It replies a
list that begins with a word; the head of each Lua file lists its words.

A script with more than a few arguments takes them by name: ARGV[1] is one JSON object, whose fields
the head of the file lists in braces; rows follow in ARGV. JSON, not MessagePack, since Python and
Lua both have it; wire/fields.py says what a field may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from hpq.domain.status import event_ms
from hpq.errors import UserError, no_sweep
from hpq.notice import Notice, plural
from hpq.store.keys import Keys
from hpq.store.wire.fields import Field, encode_fields

BATCH_ROWS = 500  # arguments of one call: Lua's unpack() is limited, and a script blocks the server
UNSEALED_TTL_S = 3_600  # rows of an enqueue or a restore that died expire after an hour

# The parts of lua/lib before every script, in this order, and those that only some scripts need.
_PRELUDE = ("prelude", "sweeps", "workers", "points", "memory", "files", "moves")
_SHARED: Mapping[str, tuple[str, ...]] = {
    "beat": ("ends", "early", "reports", "owners"),
    "cap": ("ends",),
    "claim": ("turns", "sharing", "owners"),
    "commit": ("ends", "early", "reports", "guards", "owners"),
    "control": ("ends",),
    "limit": ("owners",),
    "reap": ("ends", "owners"),
    "release": ("ends", "owners"),
    "remove": ("sharing",),
    "reveal": ("sharing",),
    "seal": ("ends", "early", "sharing", "owners"),
}
_ALWAYS = {"prelude", "moves"}
# Callers rely on what these wrote; the replies of the first end with the newest event, or "".
_MARKED = {"cap", "commit", "control", "grow", "retry", "reveal", "seal"}
_AWAITED = {*_MARKED, "drain", "remove"}
WAIT_MS = 1_000  # for the replicas


@cache
def source(name: str) -> str:
    """Return the text of a script, preceded by its parts of lua/lib.

    A part runs when a script first calls it by its name, as in `points().forget(t)`: half of the
    time of an ordinary claim would go into functions that it never calls.
    """
    folder = files("hpq.store").joinpath("lua")
    text = []
    for part in (*_PRELUDE, *_SHARED.get(name, ())):
        body = folder.joinpath("lib", f"{part}.lua").read_text("utf-8")
        if part not in _ALWAYS:
            body = f"""local function {part}()
  MADE.{part} = MADE.{part} or (function()
{body}  end)()
  return MADE.{part}
end
"""
        text.append(body)
    return "\n".join((*text, folder.joinpath(f"{name}.lua").read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class Mark:
    """An acknowledged event, and the trial that was changed (0: the sweep)."""

    sweep: str
    event: str
    trial: int = 0
    us: str = ""  # of the server's clock: another primary may give the same id

    @property
    def at_ms(self) -> int:
        """When the server wrote the event."""
        return event_ms(self.event)


@dataclass(frozen=True, slots=True)
class Durability:
    """How many replicas must have a change, and what follows an acknowledged change."""

    replicas: int = 0
    keep: Callable[[Mark], object] = lambda _: None
    missed: Callable[[Notice], object] = lambda _: None

    def behind(self, copies: int) -> Notice:
        """Return the notice of a change that only `copies` replicas have."""
        replicas = f"{self.replicas} {plural(self.replicas, 'replica')} (HPQ_WAIT_REPLICAS)"
        text = f"{copies} of {replicas} had a change within"
        then = "a failover may lose it; see INFO replication of the primary"
        return Notice("replicas-behind", f"{text} {WAIT_MS // 1000} s: {then}")


NO_REPLICAS = Durability()


class Scripts:
    """Runs the scripts of one prefix by their SHA; loads a script that the server lacks."""

    def __init__(self, redis: Redis, keys: Keys, durability: Durability = NO_REPLICAS) -> None:
        self._redis, self._keys, self._durability = redis, keys, durability
        self._loaded: dict[str, Any] = {}

    def run(
        self, script: str, /, *rows: str | bytes | int | float, **fields: Field
    ) -> tuple[str, list[Any]]:
        """Run a script; return the first word and the rest of its reply.

        `fields`, if there are any, are ARGV[1], one JSON object (wire/fields.py); `rows` follow as
        they are, since JSON holds no bytes. The rest of the answer is bytes and ints.
        """
        loaded = self._loaded.get(script)
        if loaded is None:
            loaded = self._loaded[script] = self._redis.register_script(source(script))
        args = (encode_fields(fields), *rows) if fields else rows
        is_awaited = script in _AWAITED and self._durability.replicas
        call = self._awaited if is_awaited else self._call
        answer = call(loaded, args)
        if script in _MARKED and (event := answer.pop()):
            sid, n = str(fields.get("sweep") or rows[0]), int(str(fields.get("number", 0)))
            eid, _, us = event.decode().partition(" ")
            self._durability.keep(Mark(sid, eid, n, us))
        return answer[0].decode(), answer[1:]

    @contextmanager
    def one_wait(self) -> Iterator[None]:
        """Wait for the replicas once, behind all calls of the block."""
        durability = self._durability
        self._durability = replace(durability, replicas=0)
        try:
            yield
        finally:
            self._durability = durability
        if durability.replicas:
            pipe = self._redis.pipeline(transaction=False)
            # WAIT heeds the writes of its own connection, which may be newer than the calls'.
            pipe.hincrby(self._keys.counters, "replica_misses", 0)
            pipe.wait(durability.replicas, WAIT_MS)
            _, copies = pipe.execute(raise_on_error=False)  # a full server refuses the first
            self._count(copies)

    def _call(self, script: Any, args: Any) -> list[Any]:
        return list(script(keys=[self._keys.prefix], args=args))

    def _awaited(self, script: Any, args: Any) -> list[Any]:
        """Run a script; wait on its connection until the replicas have its changes."""
        pipe = self._redis.pipeline(transaction=False)
        while True:
            pipe.evalsha(script.sha, 1, self._keys.prefix, *args)
            pipe.wait(self._durability.replicas, WAIT_MS)
            try:
                answer, copies = pipe.execute()
            except NoScriptError:
                self._redis.script_load(script.script)
                continue
            except ResponseError as error:
                if "WAIT cannot be used with replica" not in str(error):
                    raise
                # A script that finds nothing to change is answered by a replica, too.
                self._redis.connection_pool.disconnect(inuse_connections=False)
                raise ReadOnlyError("this server is no longer the primary") from None
            self._count(copies)
            return list(answer)

    def _count(self, copies: Any) -> None:
        if isinstance(copies, Exception):
            raise copies
        if copies < self._durability.replicas:
            with suppress(OutOfMemoryError):  # the change itself is made
                self._redis.hincrby(self._keys.counters, "replica_misses", 1)
            self._durability.missed(self._durability.behind(copies))


@dataclass(frozen=True, slots=True)
class StoreContext:
    """The client, keys and scripts of a writer; without `mints` it mints no tickets."""

    redis: Redis
    keys: Keys
    scripts: Scripts
    mints: bool = True

    @classmethod
    def open(
        cls, redis: Redis, keys: Keys, *, mints: bool = True, durability: Durability = NO_REPLICAS
    ) -> StoreContext:
        """Build the context of one prefix on one client."""
        return cls(redis, keys, Scripts(redis, keys, durability), mints)

    def mint(self, queue: bytes, missing: int) -> None:
        """Mint the tickets that a queue lacks, as a script has counted them.

        A full server mints none. That is no error: a ticket only wakes a worker, the transition is
        done, and the reaper mints what is missing.
        """
        if self.mints and queue and missing > 0:
            from hpq.store.tickets import Tickets  # noqa: PLC0415  it imports rq

            with suppress(OutOfMemoryError):
                Tickets(self.redis, self.keys).mint(queue.decode(), missing)


def check_reply(sid: str, reply: str) -> None:
    """Raise the error for a reply that refuses to change a sweep.

    Raises:
        NotFound: the sweep does not exist.
        UserError: it was stopped or cancelled.
    """
    if reply == "unknown":
        raise no_sweep(sid)
    if reply == "over":
        text = f"sweep {sid} is over; `hpq retry {sid}` queues failed trials again"
        raise UserError(text, code="sweep-over")
