"""The errors that scripts catch by name, as in `wandb.errors`."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any


class Error(Exception):
    """Base of W&B's errors."""

    def __init__(self, message: str = "", context: object = None) -> None:
        super().__init__(message)
        self.message, self.context = message, context


class CommError(Error):
    """W&B's server cannot be reached. The shim never raises it."""

    exc: Exception | None = None


class AuthenticationError(CommError):
    """W&B rejects the API key. The shim never raises it."""


class UsageError(Error):
    """A call that is not possible in this state."""


class UnsupportedError(UsageError):
    """A call that is not supported."""


class ConfigError(Error):
    """A config file is missing, or a call would change a config value."""


class ValidationError(UsageError, ValueError):
    """A value that W&B refuses; W&B's own error is a ValueError of pydantic."""


def check_word(name: str, word: object, known: Collection[object]) -> None:
    """Raise ValidationError if W&B does not know a word."""
    if word not in known:
        words = ", ".join(map(repr, known))
        raise ValidationError(f"{name}={word!r} is unknown; use one of {words}")


def check_text(name: str, value: Any) -> str | None:
    """Return a setting that is a text, bytes or, for `root_dir`, a path."""
    if isinstance(value, bytes):
        return value.decode()
    if name == "root_dir" and isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if value is None or isinstance(value, str):
        return value
    raise ValidationError(f"{name}={value!r} is no text; pass str({value!r})")


def check_tags(tags: Any) -> tuple[str, ...] | None:
    """Return tags as a tuple of texts of 1 to 64 characters."""
    if tags is None:
        return None
    found = (tags,) if isinstance(tags, str) else tuple(tags)
    for tag in found:
        check_text("tag", tag)
        if tag is None or not 1 <= len(tag) <= 64:
            raise ValidationError(f"tag={tag!r} is no text of 1 to 64 characters")
    return found


def check_project(project: str | None) -> None:
    """Raise UsageError if W&B allows no such project."""
    name = project or ""
    if len(name) > 128 or any(mark in name for mark in "/\\#?%:"):
        raise UsageError(f"project={name!r}: use at most 128 characters, none of / \\ # ? % :")


def check_run_id(run_id: str | None) -> None:
    """Raise UsageError if W&B allows no such run id."""
    if run_id is None:
        return
    if not run_id or run_id != run_id.strip() or any(mark in run_id for mark in ":;,#?/'"):
        raise UsageError(f"id={run_id!r}: use a text without spaces at its ends and : ; , # ? / '")
