"""The writes that keep what a sweep came from: its code, its manifest, what attempts ran on."""

from __future__ import annotations

from typing import Any

from redis import Redis

from hpq.store.keys import Keys
from hpq.store.scripts import Scripts

UNSEALED_TTL_S = 3_600  # rows of an enqueue that died are gone after an hour


class CodeStore:
    """The part of `Store` for code and provenance. All of it is kept under digests."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._scripts = Scripts(redis, keys)

    def keep_bundle(self, digest: str, bundle: bytes) -> None:
        """Keep the code itself under its digest; it expires unless a sweep of it is sealed."""
        self._scripts.run("keep_code", digest, UNSEALED_TTL_S, bundle)

    def keep_diff(self, sid: str, diff: str) -> None:
        """Keep what was not committed of a sweep's code, before `seal`."""
        key = self._keys.sweep(sid, "origin")
        pipe = self._redis.pipeline(transaction=True)
        pipe.hset(key, "diff", diff)
        pipe.expire(key, UNSEALED_TTL_S)
        pipe.execute()

    def count_distrust(self) -> None:
        """Count a sweep that a worker leaves: not signed, or not what was signed."""
        self._redis.hincrby(self._keys.counters, "code_refused", 1)

    def code(self, digest: str) -> str | None:
        """The manifest of a code digest, or None."""
        raw: Any = self._redis.hget(self._keys.code, digest)
        return raw.decode() if raw else None

    def keep_provenance(self, digest: str, record: str) -> None:
        """Keep what a worker's attempts run on (JSON), under its digest."""
        self._scripts.run("keep_ran_on", digest, record)
