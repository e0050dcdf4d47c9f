"""What a setting may be: each function reads one kind from text; ValueError says what to use."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from hpq.sweep import NAME_RULE

KEY_LEAST = 16


def name(text: str) -> str:
    """A name as in keys of Redis and of Kubernetes."""
    if not NAME_RULE.match(text):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
    return text


def sweep(text: str) -> str:
    """A sweep's id, or that of one trial."""
    if not re.fullmatch("[a-z0-9-]+(/[1-9][0-9]*)?", text):
        raise ValueError("use a sweep's id, as `hpq ls` shows it, or SWEEP/7 for one trial of it")
    return text


def seconds(text: str) -> float:
    """A time in seconds."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value < 86_400:
            return value
    raise ValueError("use seconds, above 0 and below a day")


def count(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            value = int(text)
            if low <= value <= high:
                return value
        raise ValueError(f"use a whole number from {low} to {high}")

    return parse


def words(text: str) -> tuple[str, ...]:
    """Words with commas or spaces between them."""
    return tuple(w for w in re.split(r"[,\s]+", text) if w)


def lines(text: str) -> tuple[str, ...]:
    """Lines, or what semicolons part."""
    return tuple(w.strip() for w in re.split(r"[;\n]", text) if w.strip())


def level(text: str) -> str:
    """How much is logged."""
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError("use debug, info, warning or error")
    return text.lower()


def key(text: str) -> str:
    """A key that signs code."""
    # Signatures lie in Redis for all to read: a short key could be found from one by trying.
    if len(text) < KEY_LEAST:
        raise ValueError(
            f"use {KEY_LEAST} characters or more, such as `openssl rand -hex 32` prints; unset,"
            " hpq makes one under HPQ_HOME"
        )
    return text


def url(text: str) -> str:
    """Where a server of Redis is."""
    if not text.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("use redis://, rediss:// or unix://")
    return text
