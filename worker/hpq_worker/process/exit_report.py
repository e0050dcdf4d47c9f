"""What a worker that cannot go on tells its fleet, which says it once for all its workers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from hpq.codes import tagged
from hpq.errors import Forbidden, HpqError, NotFound, ServerTooOld, UserError

OPTION = "--last-words="  # and the number of the file descriptor
_MOST_BYTES = 4096  # PIPE_BUF: it arrives whole, and nobody waits for a reader
_FINAL = (UserError, NotFound, Forbidden, ServerTooOld)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """Why it ended; `is_final` where no waiting mends it, so that another would end likewise."""

    line: str
    is_final: bool


def leave(error: HpqError, argv: Sequence[str]) -> bool:
    """Tell the fleet that a command line names; False where there is none to hear it."""
    fds = [word.removeprefix(OPTION) for word in argv if word.startswith(OPTION)]
    text = " ".join(str(error).split())[: _MOST_BYTES // 8]  # JSON may make six bytes of one
    line = tagged(text, error.code)
    words = LastWords(line=line, is_final=isinstance(error, _FINAL))
    with suppress(OSError):
        return bool(fds) and os.write(int(fds[0]), json.dumps(asdict(words)).encode()) > 0
    return False


def hear(fd: int) -> LastWords | None:
    """What a worker that has ended left in its pipe; None where it said nothing. Closes it."""
    os.set_blocking(fd, False)  # something that it started may hold the other end
    try:
        with suppress(OSError, ValueError, TypeError):
            return LastWords(**json.loads(os.read(fd, _MOST_BYTES)))
        return None
    finally:
        os.close(fd)
