"""The errors that scripts catch by name, as in `wandb.errors`."""

from __future__ import annotations

from collections.abc import Collection


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
    """A word that W&B does not know; W&B's own error is a ValueError of pydantic."""


def check_word(name: str, word: object, known: Collection[object]) -> None:
    """Raise ValidationError if W&B does not know a word."""
    if word not in known:
        words = ", ".join(map(repr, known))
        raise ValidationError(f"{name}={word!r} is unknown; use one of {words}")
