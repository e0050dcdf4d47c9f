"""Report why a worker process exits to the supervisor, which logs the reason once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from hpq.errors import Forbidden, HpqError, NotFound, ServerTooOld, UserError
from hpq.notice import tagged

OPTION = "--exit-report-fd="  # and the number of the file descriptor
_MOST_BYTES = 4096  # PIPE_BUF: a write is atomic and does not wait for the reader
_FINAL = (UserError, NotFound, Forbidden, ServerTooOld)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    """Why a worker ended; `is_final` if another worker would end for the same reason."""

    line: str
    is_final: bool


def write(error: HpqError, argv: Sequence[str]) -> bool:
    """Write a report to the pipe that the command line names; False without a reader."""
    fds = [arg.removeprefix(OPTION) for arg in argv if arg.startswith(OPTION)]
    text = " ".join(str(error).split())[: _MOST_BYTES // 8]  # JSON may make six bytes of one
    line = tagged(text, error.code)
    report = ExitReport(line=line, is_final=isinstance(error, _FINAL))
    with suppress(OSError):
        return bool(fds) and os.write(int(fds[0]), json.dumps(asdict(report)).encode()) > 0
    return False


def read(fd: int) -> ExitReport | None:
    """Read the report of a worker that has ended, None if it wrote none; closes the pipe."""
    os.set_blocking(fd, False)  # a process that it started may hold the other end
    try:
        with suppress(OSError, ValueError, TypeError):
            return ExitReport(**json.loads(os.read(fd, _MOST_BYTES)))
        return None
    finally:
        os.close(fd)
