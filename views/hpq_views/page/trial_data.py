"""What the page of a trial shows: curves, parameters beside the winner's, log and files."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hpq.access.session import Session
from hpq.domain.status import SweepStatus
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Curve, Json, Params, Standing, TrialView, flatten
from hpq.domain.usage import UsageCurves
from hpq.errors import HpqError
from hpq.notice import plural
from hpq_views.analysis.history import Attempt, attempts_of, read_curves
from hpq_views.analysis.output_records import finite
from hpq_views.analysis.pareto_front import Front, dominators, metrics_of, place_of
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.show import shown_metrics, trial_facts
from hpq_views.page.curve_reads import SYSTEM, read_usage
from hpq_views.page.curves import thinned
from hpq_views.stored_files import has_file, holder_of, store_of, why_no_files
from hpq_views.text.charts import is_wide
from hpq_views.text.text import clean, clean_block, size, value

PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
LOG_BYTES = 1 << 16  # of the last lines
_POINTS = 400  # of a curve
_LEAST = 50
_MOST_POINTS = 20_000  # of all curves, which a poll sends again
_MOST_NAMES = 40  # of media
_MOST_PICTURES = 50  # the newest of one name
_MOST_TABLES = 3
HELD_BYTES = 200 << 10  # of the pictures that a file has of a trial
_PICTURE_BYTES, _TABLE_BYTES = 1 << 24, 1 << 20
CAPTIONS = "media/captions.json"  # of wandb's stand-in
_MOMENT = re.compile(r"_(\d+)(_[0-9a-f]{6,})?$")  # of wandb.log: NAME_STEP_HASH
Compared = tuple[str, str, str, bool]  # name, value, the winner's value, whether they differ
Media = tuple[
    str, int, list[tuple[str, str]]
]  # name, number of files, step and file of those shown


@dataclass(frozen=True, kw_only=True)
class TrialData:
    """One moment of a trial: everything that its page shows."""

    status: SweepStatus
    standing: Standing
    front: Front | None  # of several metrics, if the trial has finished
    trial: TrialView
    curves: Sequence[Curve]
    attempts: Sequence[Attempt]
    ran_on: Params
    usage: UsageCurves | None
    log: bytes
    holder: TrialView  # has the files
    no_files: str  # why none can be downloaded
    acts: bool = False  # it has a button
    held: Mapping[str, str] | None = None  # pictures of a file's page, as data: URIs, by name
    titles: Mapping[str, str] = field(default_factory=dict)  # captions of these

    @cached_property
    def row(self) -> TrialRow:
        """The trial in words."""
        return TrialRow(trial=self.trial, sweep=self.sweep, at=self.status)

    @property
    def sweep(self) -> SweepView:
        """The trial's sweep."""
        return self.status.sweep

    @property
    def facts(self) -> dict[str, str]:
        """What neither the first lines nor the attempts say."""
        return {name: text for name, text in trial_facts(self.row).items() if text}

    @property
    def winner(self) -> TrialView | None:
        """The winner if that is another trial; of several metrics, a trial that dominates it."""
        best: Sequence[TrialView] = self.status.best[:1]
        if self.sweep.objectives:
            best = dominators(self.sweep, self.front, self.trial) if self.front else ()
        elif self.standing.rank == 1:
            return None
        return best[0] if best and best[0].id != self.trial.id else None

    @property
    def winner_words(self) -> str:
        """What the other trial is called."""
        if self.front:
            return "dominates it"
        return "first of the best setting" if self.sweep.replicates > 1 else "the winner"

    @property
    def place(self) -> str:
        """`rank 3 of 120`, or how the result relates to constraints and front."""
        if self.front is None or self.row.unmet:
            place = str(self.standing)
            shared = f"its setting has {place}" if place and self.sweep.replicates > 1 else place
            return "infeasible" if self.row.unmet else shared
        is_member = self.trial.id.number in self.front.numbers
        return "on the front" if is_member else place_of(self.sweep, self.front, self.trial)

    @property
    def results(self) -> list[tuple[str, str]]:
        """Name and newest value of each metric that ranks the trial."""
        names = (metric.name for metric in metrics_of(self.sweep))
        return [(name, text) for name, text in zip(names, self.row.results, strict=False) if text]

    @property
    def beside(self) -> list[tuple[int, str]]:
        """The trials before and after it."""
        n = self.trial.id.number
        found = ((n - 1, f"‹ #{n - 1}"), (n + 1, f"#{n + 1} ›"))
        return [it for it in found if 0 < it[0] <= self.sweep.counts.total]

    @property
    def params(self) -> list[Compared]:
        """The parameters; those that differ from the winner's first."""
        mine = flatten(self.trial.params)
        best = flatten(self.winner.params) if self.winner else mine
        names = [
            n for n in dict.fromkeys([*self.sweep.varying, *mine, *best]) if n in {**mine, **best}
        ]
        rows = [(n, _value(mine, n), _value(best, n), mine.get(n) != best.get(n)) for n in names]
        return sorted(rows, key=lambda row: not row[3])

    @property
    def metrics(self) -> list[Compared]:
        """The last values of the metrics."""
        best = TrialRow(trial=self.winner or self.trial, sweep=self.sweep)
        names = shown_metrics(self.trial, self.sweep)
        return [(n, self.row.metric(n), best.metric(n), False) for n in names]

    @property
    def points(self) -> str:
        """The curves of two points and more, as JSON."""
        curves = [c for c in self.curves if len(c.steps) > 1]
        most = min(_POINTS, max(_LEAST, _MOST_POINTS // max(1, len(curves))))
        shown = [
            {
                "name": clean(c.metric),
                "by": clean(self.trial.axis_of(c.metric)),
                "last": self.row.metric(c.metric),  # as the table has it, also -inf
                "log": is_wide(c.values),
                **_columns(c, most),
            }
            for c in curves
        ]
        return json.dumps(shown, allow_nan=False)

    @property
    def system(self) -> str:
        """What the latest attempt used over time, as JSON: seconds, and lines with their unit."""
        used = self.usage
        if used is None or len(used.seconds) < 2:
            return ""
        lines = [
            {"name": title, "unit": unit, "y": used.values[name]}
            for name, (title, unit) in SYSTEM.items()
            if name in used.values
        ]
        return json.dumps({"x": used.seconds, "lines": lines}, allow_nan=False)

    @property
    def packages(self) -> Mapping[str, Json]:
        """The installed packages with their versions."""
        found = self.ran_on.get("packages")
        return found if isinstance(found, dict) else {}

    @property
    def environment(self) -> dict[str, Json]:
        """Host, device and code of the latest attempt."""
        found = flatten({k: v for k, v in self.ran_on.items() if k != "packages"})
        return {k: v for k, v in found.items() if v not in ("", [], None)}

    @property
    def run_info(self) -> dict[str, Json]:
        """What the script set beside numbers."""
        found = flatten(self.trial.run_info)
        return {name: v for name, v in found.items() if name not in self.row.run}

    @property
    def files(self) -> dict[str, int]:
        """Name and size of each file."""
        left = self.holder.artifacts
        return dict(sorted(left.files.items())) if left else {}

    @property
    def log_text(self) -> str:
        """The last lines of the log."""
        return clean_block(self.log.decode("utf-8", "replace"))

    @property
    def pictures(self) -> list[Media]:
        """The pictures, by name, the newest first; of a file's page, those that it holds."""
        found = self._media(tuple(PICTURES), _PICTURE_BYTES, _MOST_PICTURES)
        if self.held is not None:
            return [
                (title, count, [one for one in files if one[1] in self.held])
                for title, count, files in found
            ]
        inside = {title.removeprefix("table/") for title, *_ in self.tables}  # a table shows them
        return [one for one in found if one[0].removeprefix("images/") not in inside]

    @property
    def tables(self) -> list[Media]:
        """The tables of wandb, as `pictures`; a file's page has none."""
        return self._all_tables if self.held is None else []

    @property
    def left_out(self) -> str:
        """What a file's page leaves out of pictures and tables, in a sentence."""
        if self.held is None:
            return ""
        pictures = sum(count - len(files) for _, count, files in self.pictures)
        tables = sum(count for _, count, _ in self._all_tables)
        counts = ((pictures, "picture"), (tables, "table"))
        words = [f"{count:,} {plural(count, word)}" for count, word in counts if count]
        least = f"a report holds {size(HELD_BYTES)} of pictures a trial, and no tables"
        more = f"`hpq get {self.trial.id}` copies all files"
        return f"{' and '.join(words)} left out: {least}; {more}." if words else ""

    @property
    def _all_tables(self) -> list[Media]:
        return self._media((".table.json",), _TABLE_BYTES, _MOST_TABLES)

    @property
    def captions(self) -> str:
        """The file with the captions of pictures; "" if there is none to load."""
        return CAPTIONS if CAPTIONS in self.files and self.held is None else ""

    def _media(self, endings: tuple[str, ...], most_bytes: int, most: int) -> list[Media]:
        left, found = self.holder.artifacts, dict[str, list[tuple[int, str]]]()
        for name, count in self.files.items() if left and not self.no_files else ():
            is_one = name.lower().endswith(endings) and count <= most_bytes
            if is_one and left and has_file(left, name):
                stem = posixpath.splitext(name)[0].removesuffix(".table").removeprefix("media/")
                moment = _MOMENT.search(stem)
                step = int(moment[1][:15]) if moment else -1
                found.setdefault(_MOMENT.sub("", stem), []).append((step, name))
        shown = []
        for title, some in sorted(found.items())[:_MOST_NAMES]:
            newest = sorted(some, key=lambda one: (-one[0], one[1]))[:most]
            files = [(f"step {step}" if step >= 0 else name, name) for step, name in newest]
            shown.append((title, len(some), files))
        return shown


def _value(params: Params, name: str) -> str:
    return value(params[name]) if name in params else ""


def _columns(curve: Curve, most: int) -> dict[str, list[float] | list[float | None]]:
    points = thinned(list(zip(curve.steps, curve.values, strict=True)), most)
    values = [finite(v) for _, v in points]
    return {
        "x": [x for x, _ in points],
        "y": [v if v is None else float(f"{v:.6g}") for v in values],
    }


def read_trial(
    session: Session,
    trial: TrialView,
    status: SweepStatus,
    standing: Standing,
    front: Front | None,
    log: bytes,
    *,
    acts: bool = False,
) -> TrialData:
    """Read what the page of a trial shows beside its sweep, its place, and its log so far."""
    reader = session.reader
    holder = holder_of(reader, trial)
    names = shown_metrics(trial, status.sweep)
    curves = {c.metric: c for c in read_curves(reader, [trial], names)}
    return TrialData(
        status=status,
        standing=standing,
        front=front,
        trial=trial,
        curves=[curves[name] for name in names if name in curves],
        attempts=attempts_of(reader.events.of_trial(trial.id), trial),
        ran_on=reader.sweeps.provenance(trial.provenance),
        usage=next(iter(read_usage(reader, [trial]).values()), None),
        log=log,
        holder=holder,
        no_files=_why_none(session, holder),
        acts=acts,
    )


def _why_none(session: Session, trial: TrialView) -> str:
    left = trial.artifacts
    if not left or not left.files:
        return why_no_files(trial, session.connection is not None)
    name = min(left.files)
    try:
        store_of(session, trial.id, left, name, Path(Path(name).name))
    except HpqError as error:
        return str(error)
    return ""
