"""A trial in the Python API: what was read of it, and methods that read its log, files and curves.

`Listing` is a list of them that notebooks show as a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from hpq.access.session import api_session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Failure, Params, TrialState, TrialView
from hpq_producer.python_api.frames import Metrics, history_frame
from hpq_views.analysis.history import Attempt, attempts_of
from hpq_views.analysis.output_records import best_values, flat_record
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.logs import log_text
from hpq_views.command_output.results_table import result_columns, result_row
from hpq_views.text.style import Span, plain
from hpq_views.text.tables import Column, lay
from hpq_views.text.text import clean

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")
SHOWN = 50  # rows of a table
_ENDLESS = 10_000  # columns of text


@dataclass(frozen=True, slots=True, repr=False)
class SweepTrial:
    """One trial of a sweep, as it was when it was read; `log`, `attempts` and `history` read now.

    `last` has the last value of each metric, `best` the best value of the sweep's metric.
    """

    _view: TrialView
    _sweep: SweepView

    @property
    def id(self) -> str:
        """The id, e.g. `digits-3f2a1/7`."""
        return str(self._view.id)

    @property
    def number(self) -> int:
        """The number in the sweep, from 1."""
        return self._view.id.number

    @property
    def state(self) -> TrialState:
        """`queued`, `running`, `finished`, `failed`, `pruned` or `cancelled`; equals that text."""
        return self._view.state

    @property
    def params(self) -> Params:
        """The parameters; nested ones are mappings."""
        return dict(self._view.params)

    @property
    def objective(self) -> float | None:
        """The value that the sweep ranks by, the mean for replicates; None before there is one."""
        return self._view.objective

    @property
    def rank(self) -> int | None:
        """The rank of its parameters in the sweep, from 1; None without one, or when not read."""
        return (self._view.standing.rank or None) if self._view.standing else None

    @property
    def last(self) -> Mapping[str, float]:
        """The last value of each metric."""
        return dict(self._view.metrics)

    @property
    def best(self) -> Mapping[str, float]:
        """The best value of the sweep's metric: empty, or one item."""
        return best_values(self._view, self._sweep)

    @property
    def step(self) -> int:
        """The last step that the trial reported."""
        return self._view.step

    @property
    def failure(self) -> Failure | None:
        """Why the trial failed: `kind` and `message`; None if it did not."""
        return self._view.failure

    @property
    def duration_s(self) -> float:
        """Seconds that the latest attempt ran."""
        return self._view.duration_ms / 1000

    @property
    def started(self) -> datetime | None:
        """When the latest attempt began, by the server's clock; None before the first."""
        return _time(self._view.claimed_ms)

    @property
    def ended(self) -> datetime | None:
        """When the trial ended, by the server's clock; None before."""
        return _time(self._view.ended_ms)

    @property
    def files(self) -> Mapping[str, int]:
        """Name and size in bytes of each file that it stored; `hpq get ID FILE` downloads one."""
        return dict(self._view.artifacts.files) if self._view.artifacts else {}

    def attempts(self) -> list[Attempt]:
        """Read the attempts: worker, host, duration, end."""
        with api_session(self._view.id.sweep) as session:
            return attempts_of(session.reader.events.of_trial(self._view.id), self._view)

    def log(self, tail: int | None = None) -> str:
        """Read what the trial printed, or its last lines, without escape sequences."""
        with api_session(self._view.id.sweep) as session:
            return log_text(session.reader, self._view.id, tail)

    def history(self, metric: Metrics = None) -> DataFrame:
        """Read the curves of this trial, as `Sweep.history`."""
        with api_session(self._view.id.sweep) as session:
            view = session.reader.trials.get(self._view.id)
            return history_frame(session.reader, self._sweep, [view], metric)

    def to_dict(self) -> dict[str, Any]:
        """Return the row of `Sweep.to_pandas`."""
        raw = {f"last.{name}": value for name, value in self._view.metrics.items()}
        return flat_record(self._view, self._sweep) | raw

    def __repr__(self) -> str:
        name = self._sweep.metric.name if self._sweep.metric else "objective"
        row = TrialRow(trial=self._view, sweep=self._sweep)
        result = f", {clean(name)} {row.objective}" if row.objective else ""
        params = row.pairs(self._sweep.varying or self._view.params)
        return f"<trial {self.id}: {row.state.text}{result}{params and f', {params}'}>"

    def _repr_html_(self) -> str:
        return trial_listing([self._view], self._sweep)._repr_html_()


def _time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


class Listing(list[T]):
    """A list that notebooks show as a table of its first 50 items, and `print` as text."""

    def __init__(
        self, items: Iterable[T], columns: Sequence[Column], rows: Iterable[Sequence[Span]]
    ) -> None:
        super().__init__(items)
        self._columns, self._rows = columns, [list(row) for row in rows]

    def __repr__(self) -> str:
        layout = lay(self._columns, self._rows, _ENDLESS)
        lines = [layout.header(), *(layout.row(row) for row in self._rows)]
        return "\n".join([*(plain(line).rstrip() for line in lines), *self._more()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(column.title)}</th>" for column in self._columns)
        rows = ("".join(f"<td>{escape(cell.text)}</td>" for cell in row) for row in self._rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = "".join(f"<p>{line}</p>" for line in self._more())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _more(self) -> list[str]:
        rest = len(self) - len(self._rows)
        return [f"… and {rest:,} more"] if rest > 0 else []


def trial_listing(trials: Sequence[TrialView], sweep: SweepView) -> Listing[SweepTrial]:
    """Return trials as a list with the columns of `hpq results`."""
    shown = [result_row(trial, sweep) for trial in trials[:SHOWN]]
    return Listing([SweepTrial(trial, sweep) for trial in trials], result_columns(sweep), shown)
