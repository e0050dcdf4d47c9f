"""How many trials the workers of `hpq worker --count N` may still start, together.

The runs that are left are bytes in a pipe that all workers of a supervisor share: a worker reads
one byte a claim. The supervisor imports this file, and so nothing of Redis.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress

MOST_RUNS = 60_000  # a pipe holds 65,536 bytes


class RunBudget:
    """The number of trials that the workers of a supervisor may still start, together."""

    def __init__(self, read_end: int, write_end: int) -> None:
        self._read_end, self._write_end = read_end, write_end
        for fd in (read_end, write_end):
            os.set_inheritable(fd, False)  # neither a runner nor a suggester inherits them
            os.set_blocking(fd, False)

    @classmethod
    def of(cls, count: int) -> RunBudget:
        """Create a budget of N runs."""
        budget = cls(*os.pipe())
        os.write(budget._write_end, b"." * count)
        return budget

    @property
    def fds(self) -> tuple[int, int]:
        """The file descriptors that a worker inherits."""
        return self._read_end, self._write_end

    @property
    def are_left(self) -> bool:
        """True while a worker may start another trial."""
        return bool(select.select([self._read_end], [], [], 0)[0])

    def spend(self) -> bool:
        """Spend one run; False if none is left."""
        with suppress(BlockingIOError):
            return len(os.read(self._read_end, 1)) == 1
        return False

    def put_back(self) -> None:
        """Put a run back that trained nothing."""
        os.write(self._write_end, b".")
