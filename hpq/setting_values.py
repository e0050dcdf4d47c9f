"""Parse the values of settings, one function a kind of value; a ValueError says what to use."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hpq.domain.sweep import NAME_RULE

KEY_LEAST = 16
_WEBHOOK = re.compile(r"https?://[^\s/@]+(/\S*)?\Z")
_SERVICE = re.compile(r"(?!https?:|ftps?:|file:)[a-z][a-z0-9+.-]*://\S+\Z")  # of Apprise


def parse_name(text: str) -> str:
    """Parse a name for keys of Redis and of Kubernetes."""
    if not NAME_RULE.match(text):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
    return text


def parse_sweep(text: str) -> str:
    """Parse a sweep's id."""
    if not re.fullmatch("[a-z0-9-]+", text):
        raise ValueError("use a sweep's id, as `hpq ls` shows it")
    return text


def parse_seconds(text: str) -> float:
    """Parse a time in seconds."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value < 86_400:
            return value
    raise ValueError("use seconds, above 0 and below a day")


def parse_time(text: str) -> float:
    """Parse a time in seconds since 1970."""
    with suppress(ValueError):
        if 1e9 < (value := float(text)) < 1e11:
            return value
    raise ValueError("use seconds since 1970, as `date +%s` prints")


def parse_count(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of integers from `low` to `high`."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            value = int(text)
            if low <= value <= high:
                return value
        raise ValueError(f"use a whole number from {low} to {high}")

    return parse


def parse_words(text: str) -> tuple[str, ...]:
    """Parse words separated by commas or spaces."""
    return tuple(w for w in re.split(r"[,\s]+", text) if w)


def parse_word(*words: str) -> Callable[[str], str]:
    """Return a parser of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() in words:
            return text.lower()
        raise ValueError(f"use {', '.join(words[:-1])} or {words[-1]}")

    return parse


def parse_key(text: str) -> str:
    """Parse a key that signs code."""
    # All users can read the signatures in Redis, and could guess a short key from one.
    if len(text) < KEY_LEAST:
        raise ValueError(
            f"use {KEY_LEAST} characters or more, such as `openssl rand -hex 32` prints; or unset"
            " it, and hpq creates a key under HPQ_HOME"
        )
    return text


def parse_folder(text: str) -> Path:
    """Parse the path of a directory, which may be created later."""
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # ~ of a user without a home, or ~nobody
        raise ValueError("the home directory of ~ is unknown; use a full path") from None
    for one in (path, *path.parents):
        try:
            is_folder = stat.S_ISDIR(one.stat().st_mode)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise ValueError("a name in it is too long; use a shorter path") from None
            continue  # it may be created, or its user may not look
        if not is_folder:
            raise ValueError(f"{one} is a file; use the path of a directory")
        break
    return path


def parse_store(text: str) -> str:
    """Parse the directory or the URL of a file store."""
    if "://" not in text:
        parse_folder(text)
    return text


def parse_webhook(text: str) -> str:
    """Parse the URL of a webhook, or of a service of Apprise."""
    if not (_WEBHOOK.match(text) or _SERVICE.match(text)):
        raise ValueError(
            "use https:// or http://, a host and a path, without user and password; or a URL of"
            " Apprise, such as ntfy://TOPIC"
        )
    return text
