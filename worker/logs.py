"""How a worker's processes log: to stderr, with nothing that acts on a terminal."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hpq import passwords
from hpq.inert import visible
from hpq.settings import Settings


class Inert(logging.Formatter):
    """Makes what is quoted from training code, Redis and libraries harmless, and hides secrets."""

    def __init__(self, pattern: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return visible(passwords.hide(super().format(record), self._secrets))


def configure(settings: Settings) -> None:
    """Log from HPQ_LOG on; at debug, libraries may tell of the URLs that they were given."""
    own = (passwords.of(settings.redis_url), settings.code_key)
    secrets = [*filter(None, own), *passwords.carried(settings.store)]
    handler = logging.StreamHandler()
    handler.setFormatter(Inert("%(asctime)s %(levelname).1s %(name)s: %(message)s", secrets))
    logging.basicConfig(level=settings.log.upper(), handlers=[handler])
