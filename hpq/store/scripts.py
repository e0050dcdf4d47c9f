"""Load lua/*.lua, one transition a file, each behind its parts of lua/lib, and run them by SHA.

A script with more than a few arguments takes them by name: ARGV[1] is one JSON object, whose fields
the head of the file lists in braces; rows follow in ARGV. JSON, not MessagePack, since Python and
Lua both have it; wire/fields.py says what a field may hold. A script replies with a list that
begins with a word; the head of the file lists the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis

from hpq.errors import NotFound, UserError
from hpq.store.keys import Keys
from hpq.store.wire.fields import Field, encode_fields

PRELUDE = ("prelude", "points", "files", "moves")  # what all scripts share, in this order

# What some of the scripts share, behind that.
SHARED: Mapping[str, tuple[str, ...]] = {
    "beat": ("ends", "early"),
    "claim": ("turns", "sharing"),
    "commit": ("ends", "early", "guards"),
    "control": ("ends",),
    "reap": ("ends",),
    "release": ("ends",),
    "remove": ("sharing",),
    "reveal": ("sharing",),
    "seal": ("ends", "early", "sharing"),
}


@cache
def source(name: str) -> str:
    """Return the text of one script, behind the parts that it shares."""
    folder = files("hpq.store").joinpath("lua")
    parts = (*(f"lib/{part}" for part in (*PRELUDE, *SHARED.get(name, ()))), name)
    return "\n".join(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in parts)


class Scripts:
    """Runs the scripts of one prefix on one client, and loads a script that the server lacks."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._prefix = redis, keys.prefix
        self._loaded: dict[str, Any] = {}

    def run(
        self, script: str, /, *rows: str | bytes | int | float, **fields: Field
    ) -> tuple[str, list[Any]]:
        """Run a script; return the word that it answers and the rest of its answer.

        `fields`, if there are any, are ARGV[1], one JSON object (wire/fields.py); `rows` follow as
        they are, since JSON holds no bytes. The rest of the answer is bytes and ints.
        """
        loaded = self._loaded.get(script)
        if loaded is None:
            loaded = self._loaded[script] = self._redis.register_script(source(script))
        args = (encode_fields(fields), *rows) if fields else rows
        answer = loaded(keys=[self._prefix], args=args)
        return answer[0].decode(), answer[1:]


def judge(sid: str, word: str) -> None:
    """Nothing where a script did what a person said to a sweep.

    Raises:
        NotFound: the sweep is gone.
        UserError: it was stopped or cancelled.
    """
    if word == "unknown":
        raise NotFound(
            f"sweep {sid!r} is not there; `hpq ls` lists what is", code="sweep-not-found"
        )
    if word == "over":
        raise UserError(
            f"sweep {sid} is over; `hpq retry {sid}` queues failed trials again", code="sweep-over"
        )
