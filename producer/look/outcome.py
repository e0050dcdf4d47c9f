"""What the end of a sweep means to a shell."""

from __future__ import annotations

from hpq.errors import ExitCode
from hpq.sweep import Sweep, SweepState


def exit_code(sweep: Sweep) -> ExitCode:
    """0 where all is well, 1 where trials failed or the sweep was cancelled, 5 where it is held.

    Trials that diverged are bad points of the space, not failures.
    """
    if sweep.state is SweepState.HELD:
        return ExitCode.HELD
    failed = sweep.counts.failed - sweep.counts.diverged
    if failed > 0 or sweep.flag == "cancelled":
        return ExitCode.SOME_FAILED
    return ExitCode.DONE
