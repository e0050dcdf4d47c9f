"""How a worker's processes log: to stderr, with nothing that acts on a terminal."""

from __future__ import annotations

import logging

from hpq.inert import visible


class Inert(logging.Formatter):
    """Makes what is quoted from training code and from Redis harmless."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return visible(super().format(record))


def configure(level: str) -> None:
    """Log from this level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(Inert("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
