"""What a shell completes after TAB: ids of sweeps. Quick, and silent where there is no answer."""

from __future__ import annotations

from typing import Annotated

import typer
from redis import Redis
from redis.exceptions import RedisError

from hpq.connection import connect
from hpq.errors import HpqError
from hpq.keys import Keys
from hpq.view import View
from producer.here import settings_here
from producer.server.embedded import status

_PATIENCE_S = 0.5
_MOST = 500  # the newest sweeps


def sweep_ids(incomplete: str) -> list[str]:
    """The ids that begin so, newest first; none where Redis is away. Starts no server."""
    try:
        settings = settings_here()
        url = settings.redis_url
        if not url:
            private = status(settings.home)
            if not (private.running and private.record):
                return []
            url = f"unix://{private.record.socket}"
        redis: Redis = connect(url, retries=0, timeout_s=_PATIENCE_S)
        ids = View(redis, Keys(settings.prefix), settings.lease_ms).sweep_ids(_MOST)
    except (HpqError, RedisError, OSError, ValueError):
        return []
    return [sid for sid in ids if sid.startswith(incomplete)]


SweepRef = Annotated[
    str | None,
    typer.Argument(
        help="A sweep's id or its beginning; without: my last one.", autocompletion=sweep_ids
    ),
]
