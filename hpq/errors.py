"""Every error that hpq raises on purpose, with its exit code.

HpqError
├── UserError            the user's file, flag or parameter is wrong           exit 2
│   ├── SweepFileError   file:line:col: path: what is wrong, what is allowed
│   ├── SettingsError    an HPQ_* variable cannot be read
│   ├── DataMissing      a data set is not where HPQ_DATA says
│   └── BadParams        a trainer rejects its parameters
├── OutOfReach           Redis (or the cluster) does not answer, or refuses     exit 3
│   └── ServerTooOld     the server lacks what hpq needs
├── NotFound             no such sweep, trial or worker                         exit 4
├── Forbidden            another user's sweep, or the server's ACL refuses      exit 4
├── Held                 the sweep is held or no worker can run it              exit 5
│   └── OverBudget       no waiting trial fits the sweep's budget               exit 6
├── TimedOut             the sweep has not ended in the time given              exit 5
├── DecodeError          a value in Redis is not what this version wrote        exit 3
├── Diverged             the loss of an epoch is not finite                     exit 1
└── DeviceUnusable       torch cannot use the GPU of a trainer                  exit 1

A message is one line: the place, what is wrong, what to do. The command line prints it with the
error's code, an id from `hpq.error_codes` that stays when the words change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpq.error_codes import Code, ExitCode
from hpq.notice import Notice
from hpq.sanitize import visible


class HpqError(Exception):
    """Any error that hpq raises on purpose; its text is one line for the user."""

    exit_code: ExitCode = ExitCode.SOME_FAILED
    code: Code = "failed"

    def __init__(self, text: str = "", *, code: Code | None = None) -> None:
        super().__init__(visible(text))  # Redis or a file may have supplied a part of it
        if code is not None:
            self.code = code

    @property
    def notice(self) -> Notice:
        """Return the error as a notice, for callers that continue."""
        return Notice(self.code, str(self))

    @property
    def notices(self) -> Sequence[Notice]:
        """The lines to print."""
        return [Notice(self.code, line) for line in str(self).splitlines()]

    def record(self) -> dict[str, object]:
        """Return the error as `--json` shows it."""
        return {"code": self.code, "message": str(self)}


class UserError(HpqError):
    """Raised if the user's file, flag or parameter is wrong."""

    exit_code = ExitCode.USER
    code: Code = "usage"


class SweepFileError(UserError):
    """Raised if a sweep file is invalid; the text begins with file:line:col."""

    code: Code = "sweep-file-invalid"

    def __init__(
        self, text: str = "", *, code: Code | None = None, problems: Sequence[Notice] = ()
    ) -> None:
        """Create an error from a text, or from `problems`: one line each, with its own id."""
        super().__init__(text or "\n".join(one.text for one in problems), code=code)
        self.problems = problems

    @property
    def notices(self) -> Sequence[Notice]:
        return self.problems or super().notices

    def record(self) -> dict[str, object]:
        return super().record() | {"problems": [one.record() for one in self.problems]}


class SettingsError(UserError):
    """Raised if an HPQ_* variable is invalid; the text names the variable."""

    code: Code = "setting-invalid"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UserError for an OSError of the block, which writes a file."""
    try:
        yield
    except FileExistsError:
        raise UserError(f"{path} exists; choose another path", code="file-exists") from None
    except OSError as error:
        text = f"{path}: {error.strerror}; name a file in a directory that you can write"
        raise UserError(text, code="file-unwritable") from None


class DataMissing(UserError):
    """Raised if a data set is not found; the text names the place and the remedy."""

    code: Code = "data-missing"


class BadParams(UserError, ValueError):
    """Raised if a trainer rejects its parameters, or they are too long; the text names which."""


class Diverged(HpqError):
    """Raised at the end of an epoch whose loss is not finite."""


class DeviceUnusable(HpqError):
    """Raised if torch cannot use the GPU of a trainer: the worker's fault."""


class OutOfReach(HpqError):
    """Raised if Redis or the cluster does not answer, or refuses the connection."""

    exit_code = ExitCode.OUT_OF_REACH
    code: Code = "out-of-reach"


class ServerTooOld(OutOfReach):
    """Raised if the Redis server lacks a command that hpq needs."""

    code: Code = "redis-too-old"


class NotFound(HpqError):
    """Raised if no sweep, trial or worker has an id."""

    exit_code = ExitCode.UNKNOWN
    code: Code = "not-found"


def no_sweep(sid: str) -> NotFound:
    """Return the error for a sweep that the store does not hold."""
    text = f"sweep {sid!r} does not exist; `hpq ls --all` lists all sweeps"
    return NotFound(text, code="sweep-not-found")


class Forbidden(HpqError):
    """Raised if a sweep is another owner's, or the server's ACL refuses."""

    exit_code = ExitCode.UNKNOWN
    code: Code = "forbidden"


class Held(HpqError):
    """Raised if a sweep waits for the user, or for a worker that can run it."""

    exit_code = ExitCode.HELD
    code: Code = "held"


class OverBudget(Held):
    """Raised if a sweep is held because none of its waiting trials fits its budget."""

    exit_code = ExitCode.OVER_BUDGET
    code: Code = "budget-spent"


class TimedOut(HpqError, TimeoutError):
    """Raised if a sweep has not ended in the time that the caller gave it."""

    exit_code = ExitCode.HELD
    code: Code = "timed-out"


class DecodeError(HpqError):
    """Raised if a stored value is not what this version writes; names key and field."""

    exit_code = ExitCode.OUT_OF_REACH
    code: Code = "value-unreadable"
