"""Which trials the page's table shows, and the metrics that it adds; encoded for the browser."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hpq.domain.trial import TrialView
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.output_records import finite
from hpq_views.analysis.rank_results import Standings
from hpq_views.analysis.selection import matching


def encode_table(
    standings: Standings, trials: Sequence[TrialView], where: str, metrics: Collection[str]
) -> dict[str, Any]:
    """Return the numbers of the trials that match an expression, and their last values of metrics.

    The expression is that of `--where`; "" matches every trial. A metric has one value a trial.

    Raises:
        UserError: the expression is invalid, or no trial has one of its names.
    """
    if where.strip():
        only = Filter.of(where)
        trials = list(matching(standings.sweep, map(standings.placed, trials), only))
        only.check_names()
    last = {name: [_shown(trial.metrics.get(name)) for trial in trials] for name in metrics}
    return {"n": [trial.id.number for trial in trials], "last": last}


def _shown(value: float | None) -> float | None:
    """Return a value with six digits, which a screen shows."""
    found = finite(value)
    return None if found is None else float(f"{found:.6g}")
