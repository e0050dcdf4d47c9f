"""Explain which sweeps of a queue are served before another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from hpq.domain.owner import Owner
from hpq.domain.status import Worker
from hpq.domain.sweep import MAX_PRIORITY, SweepState, SweepView
from hpq.notice import Notice
from hpq_views.text.text import clean
from hpq_views.why.able_workers import can_run

_COUNT = re.compile(r"\b\d+ queued\b")


def explain_queue_position(
    sweep: SweepView,
    ahead: Iterable[SweepView],
    workers: Iterable[Worker],
    owner: Owner | None,
) -> Notice | None:
    """Return a notice if all workers that can run the sweep are busy and will run others next.

    `owner` is the sweep's, if limits are set. `ahead` are the sweeps served before it
    (`SweepReader.ahead_of`). None if a trial of the sweep runs, a worker is idle, or a worker will
    claim from the sweep next.
    """
    if sweep.state is not SweepState.RUNNING or sweep.counts.running or not sweep.counts.waits:
        return None
    able = [w for w in workers if w.state in ("busy", "idle") and can_run(w, sweep)]
    open_ = [s for s in ahead if s.state is SweepState.RUNNING and s.counts.waits]
    blockers = [[s for s in open_ if _runs_next(w, s)] for w in able]
    if not blockers or any(w.state == "idle" for w in able) or not all(blockers):
        return None
    blocking = [s for s in open_ if any(s in of_worker for of_worker in blockers)]
    return Notice("behind", _describe_blocker(sweep, blocking, owner))


def without_counts(why: str) -> str:
    """Remove the counts from a reason, so that it is not reported again at each trial's start."""
    return _COUNT.sub("queued", why)


def _runs_next(worker: Worker, sweep: SweepView) -> bool:
    """Return whether a worker may claim a trial of this sweep when its current trial ends."""
    if not can_run(worker, sweep):
        return False
    of_owner = int(sweep.may_run) if sweep.may_run.isdecimal() else math.inf
    cap = min(sweep.max_parallel or math.inf, of_owner)
    return worker.trial.startswith(f"{sweep.id}/") or sweep.counts.running < cap


def _describe_blocker(sweep: SweepView, blocking: Sequence[SweepView], owner: Owner | None) -> str:
    """Name one blocking sweep: an open-ended one, else the first."""
    blocker = next((s for s in blocking if s.counts.is_open_ended), blocking[0])
    counts, is_own = blocker.counts, blocker.owner == sweep.owner
    left = "open-ended" if counts.is_open_ended else f"{counts.queued + int(counts.to_come)} queued"
    whose = "" if is_own else f"{clean(blocker.owner)}'s, "
    line = f"waits behind {blocker.id} ({whose}{left})"
    priority = max(s.priority for s in blocking) + 1
    allowed = owner.limits.get("priority", MAX_PRIORITY) if owner else MAX_PRIORITY
    most = min(MAX_PRIORITY, allowed)
    raise_it = f"`hpq set {sweep.id} priority={priority}`" if priority <= most else ""
    if counts.is_open_ended and is_own:
        return f"{line}: " + ", or ".join(filter(None, (f"`hpq stop {blocker.id}`", raise_it)))
    return f"{line}; {raise_it} runs it first" if raise_it else line
