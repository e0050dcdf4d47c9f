"""The errors that scripts catch by name."""

from __future__ import annotations


class Error(Exception):
    """Base of W&B's errors."""

    def __init__(self, message: str = "", context: object = None) -> None:
        super().__init__(message)
        self.message, self.context = message, context


class CommError(Error):
    """W&B's server cannot be reached; the stand-in never raises it."""

    exc: Exception | None = None


class AuthenticationError(CommError):
    """The stand-in never raises it."""


class UsageError(Error):
    """A call that makes no sense."""


class UnsupportedError(UsageError):
    """What cannot be done here."""


class ConfigError(Error):
    """A config value would change."""
