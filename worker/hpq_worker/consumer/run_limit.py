"""When `hpq worker --sweep SWEEP --count N --until-idle 10m` ends by itself.

Its sweep is over, N trials were run, no trial could be claimed for so long, or none fits into the
time that is left of its allocation (HPQ_END).
A worker without a limit, as in a Deployment, serves until a signal stops it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from redis.exceptions import RedisError

from hpq.domain.sweep import SweepState, SweepView
from hpq.error_codes import ExitCode
from hpq.errors import HpqError, NotFound
from hpq.notice import tagged
from hpq.settings import EARLY_S
from hpq_worker.consumer.run_budget import RunBudget
from hpq_worker.runner.agent_caller import Caller

log = logging.getLogger("hpq.worker")


class RunLimit:
    """The limit of one worker; `read_sweep` reads the sweep with which the worker ends."""

    def __init__(
        self,
        budget: RunBudget | None = None,
        read_sweep: Callable[[], SweepView] | None = None,
        *,
        caller: Caller | None = None,
        until_idle_s: float = math.inf,
        end: float = math.inf,
    ) -> None:
        self._budget, self._read_sweep = budget, read_sweep
        self._until_idle_s, self._idle_since = until_idle_s, time.monotonic()
        self._end = end
        self._has_run = False
        self._was_cut = False
        self.short = ""  # a sweep whose trials need more time than is left, as the last claim found
        self._caller = caller  # the worker ends with it, and when its sweep is held
        self._logged = ""

    @property
    def is_bounded(self) -> bool:
        """True if the worker ends by itself."""
        has_limit = self._budget is not None or self._read_sweep is not None
        return has_limit or min(self._until_idle_s, self._end) < math.inf

    @property
    def is_used_up(self) -> bool:
        """True once all runs of the budget are spent."""
        return self._budget is not None and not self._budget.are_left

    def may_start(self) -> bool:
        """Spend one run; False if this worker may claim no further trial."""
        has_left = self._caller is not None and self._caller.has_left
        return not has_left and (self._budget is None or self._budget.spend())

    @property
    def left_ms(self) -> int | None:
        """Time until this worker is stopped; None if no such time is known."""
        return None if self._end == math.inf else max(0, int(1000 * (self._end - time.time())))

    @property
    def is_time_up(self) -> bool:
        """True if a signal now is that of the end of the allocation."""
        return time.time() >= self._end - EARLY_S

    @property
    def exit_code(self) -> ExitCode:
        """TIME_UP if trials are left that another allocation of the same length may run."""
        is_up = self._was_cut or (self.short and self._has_run)
        return ExitCode.TIME_UP if is_up else ExitCode.DONE

    @property
    def is_idle_too_long(self) -> bool:
        """True once no trial could be claimed for `until_idle_s`."""
        return time.monotonic() - self._idle_since >= self._until_idle_s

    def trial_ended(self, *, is_stopping: bool) -> None:
        """Note that an attempt is over; `is_stopping`: a signal stops this worker."""
        self._idle_since, self._has_run = time.monotonic(), True
        self._was_cut = is_stopping and self.is_time_up

    def not_started(self) -> None:
        """Put the run back: the claim trained nothing."""
        if self._budget is not None:
            self._budget.put_back()

    def is_done(self) -> bool:
        """True once the limit is reached; called when no trial can be claimed.

        Logs once why the sweep waits. An outage of Redis does not end the worker.
        """
        if self._caller is not None and self._caller.has_left:
            return True
        if self.is_used_up:
            self._log("no more work, exiting")
            return True
        if self.short:
            left = f"{(self.left_ms or 0) / 60_000:.0f} min are left"
            text = f"{left}, and the waiting trials of {self.short} need more, exiting"
            self._log(tagged(text, "time-left-short"))
            return True
        if self.is_idle_too_long:
            self._log(f"no trial to claim for {self._until_idle_s:.0f} s, exiting")
            return True
        if self._read_sweep is None:
            return False
        try:
            sweep = self._read_sweep()
        except NotFound:
            self._log("the sweep was removed, exiting")
            return True
        except (RedisError, HpqError):  # away, or unreadable: the claim loop logs it
            return False
        self._log(_why_waiting(sweep))
        is_held = sweep.state is SweepState.HELD and self._caller is not None
        return sweep.state.is_over or is_held

    def _log(self, line: str) -> None:
        if line and line != self._logged:
            log.info("%s", line)
        self._logged = line


def _why_waiting(sweep: SweepView) -> str:
    """Return why no trial of a sweep can start; "" if one can."""
    state = sweep.state
    if state is SweepState.RUNNING:
        return ""
    if state is SweepState.HELD:
        line = f"sweep {sweep.id} is held: {sweep.why_held}; `{sweep.resumed_by}` continues it"
        return tagged(line, "budget-spent" if sweep.is_over_budget else "sweep-held")
    if state is SweepState.PAUSED:
        line = f"sweep {sweep.id} is paused; `hpq resume {sweep.id}` continues it"
        return tagged(line, "sweep-paused")
    if state.is_over:
        return tagged(f"sweep {sweep.id} is {state}; no more work, exiting", "sweep-over")
    return f"sweep {sweep.id} is {state}; its running trials end first"
