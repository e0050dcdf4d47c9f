"""Programs of several processes: whose line a printed one is, and whose fault an end is. Pure.

torchrun puts `[default1]:` before what rank 1 prints (see environment), torch itself `[rank1]:`
before its stacks. When a rank dies torchrun ends the others, whose errors follow from the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PREFIX = re.compile(r"\[[A-Za-z_]*?(?P<rank>\d+)\]:\s?(?=(?P<rest>.*))")
_CAUSE = re.compile(
    r"^Root Cause \(first observed failure\):$.*?"
    r"^\s+rank\s+: (?P<rank>\d+) .*?^\s+exitcode\s+: (?P<status>-?\d+) ",
    re.MULTILINE | re.DOTALL,
)
_LAUNCHERS = re.compile(r"^torch\.distributed\.elastic\.\S*ChildFailedError", re.MULTILINE)
_STACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The rank that failed first, its exit status as subprocess tells it, and what it wrote."""

    rank: int
    status: int
    said: str


def split(line: str) -> tuple[int, str]:
    """The rank that printed a line (0 where nothing says so), and the line as it printed it."""
    rank = 0
    while found := _PREFIX.match(line):
        rank, line = int(found["rank"]), found["rest"]
    return rank, line


def first_to_fail(tail: str) -> Cause | None:
    """What torchrun says of a failed group at the end of a log; None where it says nothing."""
    found = list(_CAUSE.finditer(tail))
    if not found:
        return None
    rank, status = int(found[-1]["rank"]), int(found[-1]["status"])
    own = "\n".join(text for who, text in _told(tail) if who == rank)
    return Cause(rank=rank, status=status, said=own or _before_launcher(tail))


def _told(tail: str) -> list[tuple[int, str]]:
    """The lines that say which rank printed them."""
    return [split(line) for line in tail.splitlines() if _PREFIX.match(line)]


def _before_launcher(tail: str) -> str:
    """What stands before torchrun's own stack."""
    found = _LAUNCHERS.search(tail)
    text = tail[: found.start()] if found else tail
    return text.rpartition(_STACK)[0] if found else text
