"""Every error that hpq raises on purpose, and the exit code each one means.

HpqError
├── UserError            the user's file, flag or parameter is wrong           exit 2
│   ├── SweepFileError   file:line:col: path: what is wrong, what is allowed
│   ├── SettingsError    an HPQ_* variable cannot be read
│   └── DataMissing      a data set is not where HPQ_DATA says
├── OutOfReach           Redis (or the cluster) does not answer, or refuses     exit 3
│   └── ServerTooOld     the server lacks what hpq needs
├── NotFound             no such sweep, trial or worker                         exit 4
├── Forbidden            somebody else's sweep, or the ACL says no              exit 4
├── Held                 the sweep is held or no worker can take it             exit 5
├── DecodeError          a value in Redis is not what this version wrote        exit 3
└── StaleAttempt         a worker speaks for an attempt that is over

A message is one line: the place, what is wrong, what to do. The command line prints it as it is.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The one table of exit codes (`hpq --help` prints it)."""

    DONE = 0
    SOME_FAILED = 1
    USER = 2
    OUT_OF_REACH = 3
    UNKNOWN = 4
    HELD = 5
    INTERRUPTED = 130


TOLD_TO_GO = 143  # 128 + SIGTERM, as shells have it: of a worker for one trial that it gave back


class HpqError(Exception):
    """Any error that hpq raises on purpose; its text is one line for the user."""

    exit_code: ExitCode = ExitCode.SOME_FAILED


class UserError(HpqError):
    """Raised where the user's file, flag or parameter is wrong."""

    exit_code = ExitCode.USER


class SweepFileError(UserError):
    """Raised where a sweep file cannot be taken; the text begins with file:line:col."""


class SettingsError(UserError):
    """Raised where an HPQ_* variable cannot be read; the text names the variable."""


class DataMissing(UserError):
    """Raised where a data set is not found; the text names the place and the remedy."""


class OutOfReach(HpqError):
    """Raised where Redis or the cluster does not answer or does not let us in."""

    exit_code = ExitCode.OUT_OF_REACH


class ServerTooOld(OutOfReach):
    """Raised where the Redis server lacks a command that hpq needs."""


class NotFound(HpqError):
    """Raised where no sweep, trial or worker has the given id."""

    exit_code = ExitCode.UNKNOWN


class Forbidden(HpqError):
    """Raised where a sweep is another owner's, or the server's ACL refuses."""

    exit_code = ExitCode.UNKNOWN


class Held(HpqError):
    """Raised where a sweep waits for the user, or for a worker that could take it."""

    exit_code = ExitCode.HELD


class DecodeError(HpqError):
    """Raised where a stored value is not what this version writes; names key and field."""

    exit_code = ExitCode.OUT_OF_REACH


class StaleAttempt(HpqError):
    """Raised where a worker speaks for an attempt that is over."""
