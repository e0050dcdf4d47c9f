"""Clients of the primary that Sentinels name: `redis+sentinel://HOST:26379,HOST2:26379/NAME/0`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from hpq.errors import UserError

SCHEME = "redis+sentinel://"


def client(kind: type[Redis], url: str, **options: Any) -> Redis:
    """Create a client of a URL, or of the primary that Sentinels name."""
    if not url.startswith(SCHEME):
        return kind.from_url(url, **options)
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    name, _, number = parts.path[1:].partition("/")
    plain = parts._replace(scheme="redis", netloc=f"{user}{at}primary", path=number).geturl()
    hosts = [urlsplit(f"//{place}") for place in places.split(",")]
    sentinels = Sentinel(  # type: ignore[no-untyped-call]
        [(host.hostname, host.port or 26379) for host in hosts],
        # The next Sentinel is the retry.
        sentinel_kwargs={
            "socket_timeout": 1.0,
            "socket_connect_timeout": 1.0,
            "retry": Retry(NoBackoff(), 0),
        },
    )
    options = parse_url(plain) | options  # type: ignore[no-untyped-call]
    pool = SentinelConnectionPool(name, sentinels, **options)  # type: ignore[no-untyped-call]
    return kind.from_pool(pool)


def refuse(url: str, what: str) -> None:
    """Raise an error for what cannot follow Sentinel; `what` names it and the next step."""
    if url.startswith(SCHEME):
        text = f"HPQ_REDIS_URL names Sentinels, which {what}"
        raise UserError(text, code="sentinel-unsupported")
