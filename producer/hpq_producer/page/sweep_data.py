"""Collect what the page shows of a sweep, and encode it for the browser."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpq.domain.status import SweepStatus
from hpq.domain.sweep import Goal, Sweep
from hpq.domain.trial import Json, TrialId, TrialState, TrialView
from hpq.errors import HpqError
from hpq.store.reader import StoreReader
from hpq_producer.analysis.importance import Importance
from hpq_producer.analysis.pruning import describe_early_end
from hpq_producer.analysis.records import finite
from hpq_producer.analysis.scores import flatten, newest_value
from hpq_producer.analysis.summary import SweepSummary
from hpq_producer.analysis.winner import Winner, entry_of, judge_winner
from hpq_producer.page.curves import Curve, pack_curves
from hpq_producer.query.history import read_curves
from hpq_producer.reports.export import trial_command
from hpq_producer.terminal.text import clean, value

_RUNNING = 64  # running trials that the ETA counts one by one
_LOG_RATIO = 20.0  # highest / lowest of a list: from here on, its axis is logarithmic
_STATES = [state.value for state in TrialState]


@dataclass(frozen=True, kw_only=True)
class SweepData:
    """One moment of a sweep: everything that its page shows."""

    status: SweepStatus
    trials: Sequence[TrialView]
    curves: Mapping[int, Curve]
    winner: Winner | None
    command: str = ""  # that runs the winner again
    known: Importance | None = None  # computed for a moment before; it takes seconds

    @property
    def sweep(self) -> Sweep:
        """The sweep."""
        return self.status.sweep

    @cached_property
    def summary(self) -> SweepSummary:
        """What summaries compute of all trials."""
        return SweepSummary(self.sweep).add(self.trials)

    @cached_property
    def importance(self) -> Importance | None:
        """Which parameter matters."""
        return self.known or self.summary.importance

    @cached_property
    def names(self) -> list[str]:
        """The varying parameters, the most important first."""
        shares = self.importance.shares if self.importance else ()
        return list(dict.fromkeys([s.param for s in shares] + list(self.sweep.varying)))


def read_sweep(
    reader: StoreReader,
    sid: str,
    python: str = "",
    before: SweepData | None = None,
    changed: Collection[int] = (),
    known: Importance | None = None,
) -> SweepData:
    """Read a sweep with its trials and the curves of its metric.

    With an earlier moment of it, read only the trials that changed, run, or are new.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    status = reader.status(sid, _RUNNING, top=2, recent=3)
    if before is None:
        fresh = list(reader.trials.all(sid))
    else:
        new = range(len(before.trials) + 1, status.sweep.counts.total + 1)
        wanted = {*changed, *(t.id.number for t in status.running), *new}
        fresh = reader.trials.get_many(sid, sorted(wanted))
    trials = {t.id.number: t for t in (*(before.trials if before else ()), *fresh)}
    best = status.best[0].id if status.best else None
    is_same = before is not None and before.status.best[:1] and before.status.best[0].id == best
    return SweepData(
        status=status,
        trials=[trials[n] for n in sorted(trials)],
        curves={**(before.curves if before else {}), **dict(_curves(reader, status.sweep, fresh))},
        winner=judge_winner(reader, status.sweep, status.best),
        command=before.command
        if before and is_same
        else (_command(reader, best, python) if best else ""),
        known=known,
    )


def _curves(
    reader: StoreReader, sweep: Sweep, trials: Sequence[TrialView]
) -> Iterable[tuple[int, Curve]]:
    """Yield number, steps and values of the curves of the sweep's metric."""
    names = (sweep.metric.name,) if sweep.metric else ()
    for curve in read_curves(reader, trials, names):
        yield curve.trial, list(zip(curve.steps, curve.values, strict=True))


def _command(reader: StoreReader, trial: TrialId, python: str) -> str:
    try:
        return trial_command(reader, trial, python)
    except HpqError:  # e.g. its template names a variable that this machine lacks
        return f"hpq show {trial}"


def encode_sweep(data: SweepData) -> dict[str, Any]:
    """Return the data of the sweep's charts: columns, with an entry a trial."""
    sweep = data.sweep
    return {
        "id": sweep.id,
        "at": data.status.at_ms,
        "event": data.status.last_event,
        "metric": sweep.metric.name if sweep.metric else "",
        "max": sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE,
        "states": _STATES,
        "winner": data.winner.trial if data.winner else 0,
        "axes": [_axis(data, name) for name in data.names],
        "trials": encode_trials(sweep, data.trials, data.names),
        "curves": pack_curves(data.curves),
    }


def encode_trials(
    sweep: Sweep, trials: Sequence[TrialView], names: Sequence[str]
) -> dict[str, Any]:
    """Return a list for each column; times in seconds since the sweep was created."""
    leaves = [{**flatten(t.params), **t.params} for t in trials]
    return {
        "n": [t.id.number for t in trials],
        "state": [_STATES.index(t.state.value) for t in trials],
        "y": [_rounded(newest_value(sweep, t)) for t in trials],
        "step": [t.step for t in trials],
        "start": [_since(sweep, t.claimed_ms) for t in trials],
        "took": [round(t.duration_ms / 1000, 1) for t in trials],
        "worker": [t.worker for t in trials],
        "kind": [t.failure.kind.value if t.failure else "" for t in trials],
        "why": [_why(sweep, t) for t in trials],
        "p": [[_cell(row.get(name)) for row in leaves] for name in names],
    }


def _axis(data: SweepData, name: str) -> dict[str, Any]:
    """Return how a parameter is drawn: linear, log, symlog or category."""
    found = [{**flatten(t.params), **t.params}.get(name) for t in data.trials]
    present = [v for v in found if v is not None]
    share = next((s.share for s in (data.importance.shares if data.importance else ())
                  if s.param == name), None)  # fmt: skip
    axis = {"name": clean(name), "share": share}
    if (
        not present
        or not all(isinstance(v, int | float) for v in present)
        or any(isinstance(v, bool) for v in present)
    ):
        return {**axis, "kind": "category"}
    numbers: list[float] = present  # type: ignore[assignment]
    entry = entry_of(data.sweep.spec.get("parameters"), name)
    is_listed = "values" in entry and 0 < _LOG_RATIO * min(numbers) <= max(numbers)
    is_log = is_listed or "log" in str(entry.get("distribution", ""))
    kind = ("log" if min(numbers) > 0 else "symlog") if is_log else "linear"
    return {**axis, "kind": kind}


def _cell(v: Json) -> Json:
    if v is None or isinstance(v, bool | int):
        return value(v) if isinstance(v, bool) else v
    return _rounded(v) if isinstance(v, float) else value(v)


def _rounded(v: float | None) -> float | None:
    """Return a number with six digits, which a screen shows; None for NaN and infinities."""
    v = finite(v)
    return None if v is None else float(f"{v:.6g}")


def _since(sweep: Sweep, ms: int) -> float | None:
    return round((ms - sweep.created_ms) / 1000, 1) if ms else None


def _why(sweep: Sweep, trial: TrialView) -> str:
    return clean(trial.failure.message) if trial.failure else describe_early_end(trial, sweep)
