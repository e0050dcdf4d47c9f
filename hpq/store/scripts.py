"""Run the Lua scripts of the store, with the client, the keys and the tickets that writers share.

A script is one transition: lua/NAME.lua behind its parts of lua/lib, run by its SHA. It replies a
list that begins with a word; the head of each Lua file lists its words.

A script with more than a few arguments takes them by name: ARGV[1] is one JSON object, whose fields
the head of the file lists in braces; rows follow in ARGV. JSON, not MessagePack, since Python and
Lua both have it; wire/fields.py says what a field may hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.exceptions import OutOfMemoryError

from hpq.errors import UserError, no_sweep
from hpq.store.keys import Keys
from hpq.store.wire.fields import Field, encode_fields

BATCH_ROWS = 500  # arguments of one call: Lua's unpack() is limited, and a script blocks the server
UNFINISHED_TTL_S = 3_600  # rows of an enqueue or a restore that died expire after an hour

# The parts of lua/lib before every script, in this order, and those that only some scripts need:
# `memory` is that of scripts that a full server must not refuse.
_PRELUDE = (
    "prelude",
    "budget",
    "demand",
    "owners",
    "sweeps",
    "workers",
    "points",
    "files",
    "moves",
)
_SHARED: Mapping[str, tuple[str, ...]] = {
    "attach_files": ("memory",),
    "beat": ("memory", "ends", "early_termination", "reports"),
    "claim": ("memory", "sweep_order", "sharing"),
    "commit": ("memory", "ends", "early_termination", "reports", "circuit_breaker"),
    "control": ("memory", "ends"),
    "create": ("ends", "early_termination", "reports", "sharing"),
    "finish_restore": ("sharing",),
    "keep_ran_on": ("memory",),
    "limit_owner": ("memory", "booking"),
    "presence": ("memory",),
    "reap": ("memory", "ends", "server_restarts", "histories", "booking"),
    "record_newest_write": ("memory", "server_restarts"),
    "release": ("memory", "ends"),
    "remove": ("memory", "sharing"),
    "set_run_cap": ("memory", "ends"),
    "suggest": ("memory",),
}
_ALWAYS = {"prelude", "demand", "moves", "memory"}


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


class Scripts:
    """Runs the scripts of one prefix by their SHA; loads a script that the server lacks."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._loaded: dict[str, Any] = {}
        self.has_run = False  # any script

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
        answer = list(loaded(keys=[self._keys.prefix], args=args))
        self.has_run = True
        return answer[0].decode(), answer[1:]


@dataclass(frozen=True, slots=True)
class StoreContext:
    """The client, keys and scripts of a writer; without `mints` it mints no tickets."""

    redis: Redis
    keys: Keys
    scripts: Scripts
    mints: bool = True

    @classmethod
    def open(cls, redis: Redis, keys: Keys, *, mints: bool = True) -> StoreContext:
        """Build the context of one prefix on one client."""
        return cls(redis, keys, Scripts(redis, keys), mints)

    def record_newest_write(self) -> int:
        """Record that Redis has all that was written until now; return the time of the record."""
        _, (at_ms,) = self.scripts.run("record_newest_write")
        return int(at_ms)

    def mint(self, queue: bytes, missing: int) -> None:
        """Mint the tickets that a queue lacks, as a script has counted them.

        A full server mints none. That is no error: a ticket only wakes a worker, the transition is
        done, and the reaper mints what is missing.
        """
        if self.mints and queue and missing > 0:
            from hpq.store.tickets import Tickets  # noqa: PLC0415  it imports rq

            with suppress(OutOfMemoryError):
                Tickets(self.redis, self.keys).mint(queue.decode("utf-8", "replace"), missing)


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
