"""Report why a worker process exits to the supervisor, which logs the reason once."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from hpq.errors import Forbidden, HpqError, NotFound, ServerTooOld, UserError
from hpq.notice import tagged

_MOST_BYTES = 4096  # PIPE_BUF: a write is atomic and does not wait for the reader
_FINAL = (UserError, NotFound, Forbidden, ServerTooOld)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReason:
    """Why a worker ended; `is_final` if another worker would end for the same reason."""

    line: str
    is_final: bool


def write(error: HpqError, fd: int | None) -> bool:
    """Write the reason to the pipe of the supervisor; False without a reader."""
    text = " ".join(str(error).split())[: _MOST_BYTES // 8]  # JSON may make six bytes of one
    line = tagged(text, error.code)
    reason = ExitReason(line=line, is_final=isinstance(error, _FINAL))
    with suppress(OSError):
        return fd is not None and os.write(fd, json.dumps(asdict(reason)).encode()) > 0
    return False


def read(fd: int) -> ExitReason | None:
    """Read the reason of a worker that has ended, None if it wrote none; closes the pipe."""
    os.set_blocking(fd, False)  # a process that it started may hold the other end
    try:
        with suppress(OSError, ValueError, TypeError):
            return ExitReason(**json.loads(os.read(fd, _MOST_BYTES)))
        return None
    finally:
        os.close(fd)
