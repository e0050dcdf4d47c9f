"""What `hpq worker --sweep SWEEP --count N` came for: one sweep until that is over, so many trials.

Without such an errand, as a Deployment's pods are, a worker serves until it is told to stop. The
runs that are left are bytes in a pipe which all workers of a fleet share: who claims takes one out.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from hpq.domain.sweep import Sweep, SweepState
from hpq.errors import HpqError, NotFound

log = logging.getLogger("hpq.worker")
OPTION = "--runs="  # and the two ends of the pipe
UNTIL_OVER = "--until-over"
MOST_RUNS = 60_000  # a pipe holds 65,536 bytes


class RunBudget:
    """How many trials the workers of a fleet may still start, together."""

    def __init__(self, read_end: int, write_end: int) -> None:
        self._read_end, self._write_end = read_end, write_end
        for fd in (read_end, write_end):
            os.set_inheritable(fd, False)  # neither a runner nor what makes sets gets them
            os.set_blocking(fd, False)

    @classmethod
    def of(cls, count: int) -> RunBudget:
        """So many of them."""
        runs = cls(*os.pipe())
        os.write(runs._write_end, b"." * count)
        return runs

    @classmethod
    def given(cls, words: Sequence[str]) -> RunBudget | None:
        """Those that a command line names; None where there is no bound."""
        found = [word.removeprefix(OPTION) for word in words if word.startswith(OPTION)]
        if not found:
            return None
        read_end, write_end = found[0].split(",")
        return cls(int(read_end), int(write_end))

    @property
    def fds(self) -> tuple[int, int]:
        """What a worker has to inherit."""
        return self._read_end, self._write_end

    @property
    def word(self) -> str:
        """What tells a worker of them."""
        return f"{OPTION}{self._read_end},{self._write_end}"

    @property
    def are_left(self) -> bool:
        """True while another trial may be started."""
        return bool(select.select([self._read_end], [], [], 0)[0])

    def take(self) -> bool:
        """Take one; False where none is left."""
        with suppress(BlockingIOError):
            return len(os.read(self._read_end, 1)) == 1
        return False

    def give_back(self) -> None:
        """What was taken came to no training."""
        os.write(self._write_end, b".")


class RunLimit:
    """One worker's part; `look` reads the sweep that it is there for."""

    def __init__(
        self, runs: RunBudget | None = None, look: Callable[[], Sweep] | None = None
    ) -> None:
        self._runs, self._look = runs, look
        self._said = ""

    @property
    def is_bounded(self) -> bool:
        """True where the worker ends by itself."""
        return self._runs is not None or self._look is not None

    def may_start(self) -> bool:
        """True where this worker may claim one more trial; it is counted."""
        return self._runs is None or self._runs.take()

    def not_started(self) -> None:
        """Nothing was trained after all."""
        if self._runs is not None:
            self._runs.give_back()

    def is_done(self) -> bool:
        """True once there is nothing left to do, asked where nothing can be claimed.

        Says once what its sweep waits for. Redis being away ends nothing.
        """
        if self._runs is not None and not self._runs.are_left:
            self._say("all runs that it was started for are done")
            return True
        if self._look is None:
            return False
        try:
            sweep = self._look()
        except NotFound:
            self._say("its sweep was removed")
            return True
        except (RedisError, HpqError):  # away, or a newer hpq's: who claims says so
            return False
        self._say(_words(sweep))
        return sweep.state.is_over

    def _say(self, words: str) -> None:
        if words and words != self._said:
            log.info("%s", words)
        self._said = words


def _words(sweep: Sweep) -> str:
    """What keeps a sweep from going on; nothing where it may."""
    state = sweep.state
    if state is SweepState.RUNNING:
        return ""
    if state is SweepState.HELD:
        return f"sweep {sweep.id} is held: {sweep.held}; this worker waits for what you do about it"
    if state is SweepState.PAUSED:
        return f"sweep {sweep.id} is paused; hpq resume {sweep.id} goes on"
    return f"sweep {sweep.id} is {state}" + (
        "" if state.is_over else "; what runs comes to its end"
    )
