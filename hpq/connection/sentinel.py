"""Clients of the primary that Sentinels name: `redis+sentinel://HOST:26379,HOST2:26379/NAME/0`."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from hpq.connection.credentials import parse
from hpq.errors import UserError
from hpq.notice import plural

SCHEME = "redis+sentinel://"
IS_SENTINEL = "this is a Sentinel; use redis+sentinel://HOST:PORT/NAME/0"
IS_SERVER = "a server is where a Sentinel should be; use the Sentinel's port, or redis://"
_AWAY = (
    "during a failover, try again; otherwise start servers and Sentinels, or correct HPQ_REDIS_URL"
)
_ERROR = re.compile(r"> - \S*?(\w+Error)")  # behind a page that describes the Sentinel


def client(kind: type[Redis], url: str, **options: Any) -> Redis:
    """Create a client of a URL, or of the primary that Sentinels name."""
    if not url.startswith(SCHEME):
        return kind.from_url(url, **options)
    parts = parse(url)
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


def reason(text: str) -> str:
    """Return an error's text; if Sentinels have no primary, why, without describing them."""
    text, _, sentinels = text.partition(" : <")
    if not text.startswith("No master found"):
        return text
    errors = _ERROR.findall(sentinels)
    if "AuthenticationError" in errors:
        return f"{text}: a Sentinel, or a server in its place, asks for a password"
    if errors:
        do = plural(len(errors), "does", "do")
        return f"{text}: {len(errors)} of the Sentinels {do} not answer, and no other has it"
    return f"{text}: the Sentinels have no primary of this NAME that is up"


def remedies(url: str) -> dict[str, str]:
    """Return what to do, by error, if a URL names Sentinels."""
    return {"away": _AWAY} if url.startswith(SCHEME) else {}
