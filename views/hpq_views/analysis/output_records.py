"""Convert sweeps, trials, attempts, curves and workers to data for programs. Pure.

The data is printed as JSON, YAML or CSV, or becomes pandas.
Durations are seconds, times ISO 8601. `trial_row.py` has a trial in words, for people.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from hpq.domain.budget import Budget
from hpq.domain.durations import iso
from hpq.domain.status import SweepStatus, Worker
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import (
    Curve,
    Json,
    ReplicateGroup,
    Standing,
    Start,
    TrialState,
    TrialView,
    flatten,
)
from hpq.notice import Notice
from hpq.search.replicates import replicate_of, seed_of_result, set_of
from hpq_views.analysis.eta import TimeLeft
from hpq_views.analysis.history import Attempt

HISTORY_COLUMNS = ("trial", "attempt", "step", "metric", "value", "received")
# Of `sweep_record`, of sweeps that have a budget, a reached target, or runs with tags.
OPTIONAL_FIELDS = tuple(
    "stopped run_tags budget.gpu_hours budget.used_hours budget.wasted_hours budget.until"
    " reached.trial reached.value reached.target".split()
)
WAITING = "waiting"  # a sweep that runs, but of which no worker claims a trial


def finite(value: float | None) -> float | None:
    """Return the value, or None for NaN and infinities, which JSON lacks."""
    return value if value is not None and math.isfinite(value) else None


def state_word(sweep: SweepView, why: Notice | None) -> str:
    """Return the word for a sweep's state; `why` is why no worker claims its trials."""
    is_waiting = why and sweep.state is SweepState.RUNNING and not sweep.counts.running
    return WAITING if is_waiting else sweep.state.value


def budget_record(budget: Budget | None) -> dict[str, Any]:
    """Return a budget as data under its key; nothing without one."""
    if budget is None:
        return {}
    hours = {name: getattr(budget, name) for name in ("gpu_hours", "used_hours", "wasted_hours")}
    return {
        "budget": {**hours, "gpu_hours": budget.gpu_hours or None, "until": iso(budget.until_ms)}
    }


def sweep_record(sweep: SweepView, best: float | None, why: Notice | None) -> dict[str, Any]:
    """Return a sweep as data; `why` is why no worker claims its trials."""
    counts = sweep.counts
    return {
        "id": sweep.id,
        "sweep": sweep.id,
        "name": sweep.name,
        "state": state_word(sweep, why),
        **({"stopped": True} if sweep.is_stopped else {}),
        "held": _held(sweep),
        "total": counts.total,
        "planned": None if counts.is_open_ended else int(counts.progress[1]),
        "open_ended": counts.is_open_ended,
        **{state.value: counts.of(state) for state in TrialState},
        "diverged": counts.diverged,
        "metric": sweep.metric.name if sweep.metric else None,
        "goal": sweep.metric.goal.value if sweep.metric else None,
        **_several(sweep),
        "best": finite(best),
        "target": sweep.metric.target if sweep.metric else None,
        "reached": asdict(sweep.reached) if sweep.reached else None,
        "created": iso(sweep.created_ms),
        "owner": sweep.owner,
        "project": sweep.project or None,
        "queue": sweep.queue,
        "priority": sweep.priority,
        "replicates": sweep.replicates,
        "tags": list(sweep.tags),
        **({"run_tags": list(sweep.run_tags)} if sweep.run_tags else {}),
        "note": sweep.note,
        **budget_record(sweep.budget),
        **({"files_not_stored": sweep.unstored} if sweep.unstored else {}),
        **_unkept(sweep),
        **_returned(sweep),
        "not_taken": why.record() if why else None,
    }


def _held(sweep: SweepView) -> str | None:
    """Return why a sweep is held: the key of its budget, or a line of text."""
    if sweep.hold is None:
        return None
    return sweep.hold.cause.value if sweep.hold.cause.is_budget else sweep.hold.text


def _unkept(sweep: SweepView) -> dict[str, Any]:
    why = sweep.unkept_why
    if not sweep.unkept or why is None:
        return {}
    return {"files_not_kept": {"trials": sweep.unkept, **why.record()}}


def _returned(sweep: SweepView) -> dict[str, Any]:
    if sweep.returned is None:
        return {}
    return {"returned": {"trial": sweep.returned.trial, **sweep.returned.notice.record()}}


def _several(sweep: SweepView) -> dict[str, Any]:
    """Return what only a sweep with several metrics, or with constraints, has."""
    metrics = {one.name: one.goal.value for one in sweep.objectives}
    found = {"metrics": metrics, "constraints": [*map(str, sweep.constraints)]}
    return {name: items for name, items in found.items() if items}


def best_values(trial: TrialView, sweep: SweepView) -> dict[str, float]:
    """Return {metric: best value reported} of the sweep's metric: others have no direction."""
    return {sweep.metric.name: trial.best} if sweep.metric and trial.best is not None else {}


def _group_record(group: ReplicateGroup) -> dict[str, Any]:
    return {
        "trials": list(range(group.first, group.first + group.of)),
        "objectives": list(group.objectives),
        "mean": group.mean,
        "sd": group.spread,
    }


def _standing_record(standing: Standing | None, sweep: SweepView) -> dict[str, Any]:
    if standing is None:
        return {}
    if standing.is_front is not None:
        return {"is_front": standing.is_front}
    return {"rank": standing.rank or None} if sweep.metric else {}


def trial_record(trial: TrialView, sweep: SweepView) -> dict[str, Any]:
    """Return a trial as data for `results` and `show`."""
    failure, number = trial.failure, trial.id.number
    return {
        "sweep": trial.id.sweep,
        "trial": number,
        "state": trial.state.value,
        "param": dict(trial.params),
        "seed": seed_of_result(sweep, trial),
        "replicate": replicate_of(sweep, number),
        "setting": set_of(sweep, number),
        "objective": finite(trial.objective),
        **_standing_record(trial.standing, sweep),
        **({"feasible": sweep.is_feasible(trial.metrics)} if sweep.constraints else {}),
        **({"replicates": _group_record(trial.group)} if trial.group else {}),
        "last": {name: finite(value) for name, value in trial.metrics.items()},
        "best": best_values(trial, sweep),
        "usage": dict(trial.usage),
        **({"alerts": list(trial.alerts)} if trial.alerts else {}),
        "run_info": dict(trial.run_info),
        "step": trial.step,
        "phase": trial.phase or None,
        "attempt": trial.attempt,
        "worker": trial.worker or None,
        "host": trial.host or None,
        "started": iso(trial.claimed_ms),
        "ended": iso(trial.ended_ms),
        "duration_s": trial.duration_ms / 1000,  # the latest attempt
        "total_s": trial.total_ms / 1000,  # all attempts
        "restarted": trial.restarted or None,
        "reused": trial.reused or None,
        **_start_record(trial.start),
        **({"outside": True} if number in sweep.outside else {}),
        "pruning": asdict(trial.pruning) if trial.pruning else None,
        "checkpoint": {
            "store": trial.checkpoint.store,
            "path": trial.checkpoint.path,
            "step": trial.checkpoint.step,
        }
        if trial.checkpoint
        else None,
        "artifacts": dict(trial.artifacts.files) if trial.artifacts else {},
        **({"files_not_stored": asdict(trial.unstored)} if trial.unstored else {}),
        "failure": {"kind": failure.kind.value, "message": failure.message} if failure else None,
    }


def _start_record(start: Start | None) -> dict[str, Json]:
    return {"start": {"trial": start.trial, "step": start.checkpoint.step}} if start else {}


_GROUPS = tuple(
    "sweep trial name group tags state param objective rank is_front feasible last best step seed"
    " replicate setting phase attempt worker host started ended duration_s total_s gpu rss_gb cpu"
    " restarted reused start pruning checkpoint failure".split()
)
_IN_ROW = frozenset(_GROUPS)
_NO_FAILURE = {"kind": None, "message": None}


def flat_record(trial: TrialView, sweep: SweepView) -> dict[str, Json]:
    """Return a trial as one row of CSV or pandas: the values of `trial_record` by dotted name.

    Without files, of which each would be a column.
    """
    record = trial_record(trial, sweep)
    rows = {name: value for name, value in record.items() if name in _IN_ROW and value != {}}
    rows["failure"] = record["failure"] or _NO_FAILURE
    rows |= trial.usage
    of_run = {"name": trial.run_name, "group": trial.run_group, "tags": list(trial.run_tags)}
    rows |= {name: found for name, found in of_run.items() if found}
    return flatten({n: v for n, v in rows.items() if v or n not in ("pruning", "checkpoint")})


def column_order(names: Iterable[str]) -> list[str]:
    """Return the names of columns grouped as `trial_record` groups them, without repetitions."""
    place = {group: i for i, group in enumerate(_GROUPS)}
    return sorted(dict.fromkeys(names), key=lambda n: place.get(n.partition(".")[0], len(place)))


def attempt_record(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as data for `--json`."""
    return {
        "attempt": attempt.number,
        "worker": attempt.worker or None,
        "host": attempt.host or None,
        "started": iso(attempt.started_ms),
        "duration_s": attempt.ran_ms / 1000,
        "end": attempt.end or None,
        "kind": attempt.kind or None,
        "from_step": attempt.from_step,
        "restarted": attempt.restarted or None,
    }


def status_record(
    status: SweepStatus, why: Notice | None, needs: Sequence[Notice], left: TimeLeft | None
) -> dict[str, Any]:
    """Return the data of a frame of `watch`; `left_s` is the time left, with its range.

    `why` is why no worker claims the trials, `needs` is what needs the user.
    """
    best = status.best[0].objective if status.best else None
    return {
        "at": iso(status.at_ms),
        "sweep": sweep_record(status.sweep, best, why),
        "needs_you": [notice.record() for notice in needs],
        "left_s": [left.low_ms / 1000, left.left_ms / 1000, left.high_ms / 1000] if left else None,
        "running": [trial_record(t, status.sweep) for t in status.running],
        "best": [trial_record(t, status.sweep) for t in status.best],
        "recent": [trial_record(t, status.sweep) for t in status.recent],
        "workers": [worker_record(w) for w in status.workers],
    }


def worker_record(worker: Worker) -> dict[str, Any]:
    """Return a worker as data for `workers`."""
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "queue": worker.queue,
        "state": worker.state,
        "trial": worker.trial or None,
        "only": worker.only or None,
        "device": worker.device,
        "version": worker.version,
        "seen": iso(worker.seen_ms),
        "store": {"yes": True, "no": False}.get(worker.store),
        "takes": list(worker.takes),
        "refuses": {sid: why.record() for sid, why in worker.refuses.items()},
        **({"code": worker.notice.code, "why": worker.unreadable} if worker.unreadable else {}),
    }


def history_records(curves: Iterable[Curve]) -> Iterator[dict[str, Any]]:
    """Yield the values of curves as records of HISTORY_COLUMNS."""
    for curve in curves:
        columns = (curve.attempts, curve.steps, curve.values, curve.times_ms)
        for attempt, step, value, at_ms in zip(*columns, strict=True):
            row = (curve.trial, attempt, step, curve.metric, finite(value), iso(at_ms))
            yield dict(zip(HISTORY_COLUMNS, row, strict=True))
