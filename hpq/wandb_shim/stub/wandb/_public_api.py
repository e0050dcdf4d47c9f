"""`wandb.Api`: sweeps and their trials, as `hpq show` and `hpq results` read them from Redis."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ._artifacts import find
from ._files import Artifact
from ._transport import hpq_json, log_once, missing
from .errors import UsageError

_STATES = {"queued": "pending", "pruned": "killed", "cancelled": "killed"}
_SWEEP_STATES = {
    "held": "PAUSED",
    "stopping": "RUNNING",
    "waiting": "RUNNING",
    "cancelled": "CANCELED",
}
_PATTERN = 200  # characters of a regular expression
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda a, b: _equal(a, b),
    "$ne": lambda a, b: not _equal(a, b),
    "$gt": lambda a, b: a is not None and a > b,
    "$gte": lambda a, b: a is not None and a >= b,
    "$lt": lambda a, b: a is not None and a < b,
    "$lte": lambda a, b: a is not None and a <= b,
    "$in": lambda a, b: any(_equal(a, one) for one in b),
    "$regex": lambda a, b: isinstance(a, str) and len(b) <= _PATTERN and bool(re.search(b, a)),
}
_OWN = ", or select the runs in Python: [run for run in api.runs(PATH) if …]"
_FIELDS = {
    "state": "state",
    "name": "id",
    "displayName": "name",
    "display_name": "name",
    "createdAt": "created_at",
    "created_at": "created_at",
    "group": "group",
    "jobType": "job_type",
    "sweep": "sweep_id",
    "tags": "tags",
}


class _Missing:
    """Raise an error that names hpq for each attribute that the stand-in lacks."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"{type(self).__name__}.{name}"))


class Api(_Missing):
    """Read access to hpq's Redis under W&B's names. The entity in a path is ignored."""

    def __init__(self, overrides: Any = None, timeout: Any = None, api_key: Any = None) -> None:
        self.default_entity = "hpq"
        self._sweeps: dict[str, ApiSweep] = {}

    def sweep(self, path: str = "", sid: str | None = None) -> ApiSweep:
        """Return a sweep by `ID`, `PROJECT/ID` or `ENTITY/PROJECT/ID`.

        Raises:
            UsageError: hpq has no such sweep.
        """
        ref = sid or path.rpartition("/")[2]
        if ref not in self._sweeps:
            self._sweeps[ref] = ApiSweep(hpq_json("show", ref))
        return self._sweeps[ref]

    def run(self, path: str = "") -> ApiRun:
        """Return a trial by the id of its run, `SWEEP-7`; a path may precede it."""
        ref, _, number = path.rpartition("/")[2].rpartition("-")
        if number.isdigit():
            for run in self.sweep(ref).runs:
                if run.id == f"{ref}-{number}":
                    return run
        raise UsageError(f"{path!r} is no run; write SWEEP-7, the id of a trial's run")

    def runs(
        self,
        path: str | None = None,
        filters: Mapping[str, Any] | None = None,
        order: str = "+created_at",
        per_page: int = 50,
        include_sweeps: bool = True,
        lazy: bool = True,
    ) -> list[ApiRun]:
        """Return the trials of a project's sweeps that match filters, in an order.

        Raises:
            ValueError: hpq knows no such filter.
        """
        project = path.rpartition("/")[2] if path else None
        only = (filters or {}).get("sweep")
        ids = [only] if isinstance(only, str) else self._of_project(project)
        found = [run for sid in ids for run in self.sweep(sid).runs if _matches(run, filters or {})]
        return _sorted(found, order)

    def _of_project(self, project: str | None) -> list[str]:
        sweeps = hpq_json("ls", "--all")
        return [s["id"] for s in reversed(sweeps) if project in (None, s.get("project"))]

    def artifact(self, name: str, type: str | None = None) -> Artifact:
        """Return an artifact of a sweep by `SWEEP/NAME:latest`, as `use_artifact` does."""
        return find(name)

    def flush(self) -> None:
        """Forget what was read: the next call reads again."""
        self._sweeps.clear()


class ApiSweep(_Missing):
    """A sweep of hpq."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id: str = data["id"]
        self.name: str = data["name"]
        self.entity: str = data["owner"]
        self.config: dict[str, Any] = data["spec"]
        self.project: str = data.get("project") or "hpq"
        self.path = [self.entity, self.project, self.id]
        self.url = f"hpq://{self.id}"
        self.expected_run_count = None if data["open_ended"] else data["planned"]
        self.state = _SWEEP_STATES.get(data["state"], data["state"].upper())
        self._data = data

    @property
    def order(self) -> str | None:
        """The order of the sweep's metric, the best first; None without a metric."""
        sign = "-" if self._data["goal"] == "maximize" else "+"
        return f"{sign}summary_metrics.{self._data['metric']}" if self._data["metric"] else None

    @cached_property
    def runs(self) -> list[ApiRun]:
        """The trials, the oldest first."""
        return [ApiRun(record, self) for record in hpq_json("results", self.id)]

    @cached_property
    def _points(self) -> dict[int, list[dict[str, Any]]]:
        """The points of all trials, by the trial's number."""
        found: dict[int, list[dict[str, Any]]] = {}
        for point in hpq_json("results", self.id, "--history"):
            found.setdefault(point["trial"], []).append(point)
        return found

    def best_run(self, order: str | None = None) -> ApiRun | None:
        """Return the best trial; an order without a sign puts the largest value first.

        Without an order the sweep's metric decides, and failed trials do not count.
        """
        if order is None:
            ranked = [(run.objective, run) for run in self.runs if run.objective is not None]
            best = max if self._data["goal"] == "maximize" else min
            return best(ranked, key=lambda pair: pair[0], default=(None, None))[1]
        if order[0] not in "+-":
            order = f"-{order}"
        if "." not in order and order[1:] not in _FIELDS:
            order = f"{order[0]}summary_metrics.{order[1:]}"
        return next(iter(_sorted(self.runs, order)), None)


class ApiRun(_Missing):
    """A trial of hpq."""

    def __init__(self, record: Mapping[str, Any], sweep: ApiSweep) -> None:
        about: Mapping[str, Any] = record["run_info"]  # what the script set
        self.id = f"{record['sweep']}-{record['trial']}"
        self.name = about.get("name") or self.id
        self.group, self.job_type = about.get("group", ""), about.get("job_type", "")
        self.notes = about.get("notes", "")
        self.sweep, self.sweep_id = sweep, sweep.id
        self.entity = sweep.entity
        self.project = sweep.project
        self.user = sweep.entity
        self.path = [self.entity, self.project, self.id]
        self.hpq_state: str = record["state"]
        kind = (record["failure"] or {}).get("kind")
        crashed = "crashed" if kind in ("lost", "killed") else self.hpq_state
        self.state = _STATES.get(self.hpq_state, crashed)
        self.config: dict[str, Any] = {**about.get("config", {}), **record["param"]}
        self.objective: float | None = record["objective"]
        self.created_at: str | None = record["started"]
        self.duration, self.host = record["duration_s"], record["host"]
        self.tags: list[str] = [*sweep._data["tags"], *about.get("tags", ())]
        self.url = f"hpq://{record['sweep']}/{record['trial']}"
        self.lastHistoryStep = -1 if record["step"] is None else record["step"]
        values = {
            **about.get("summary", {}),
            **record["last"],
            "_step": record["step"],
            "_runtime": record["duration_s"],
        }
        self.summary = ApiSummary(values)
        self.summary_metrics = self.summary._json_dict
        self._number: int = record["trial"]

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """The points that hpq keeps, as one row a step."""
        rows: dict[int, dict[str, Any]] = {}
        for point in self.sweep._points.get(self._number, ()):
            step = point["step"]
            rows.setdefault(step, {"_step": step})[point["metric"]] = point["value"]
        return [rows[step] for step in sorted(rows)]

    def scan_history(
        self, keys: Any = None, page_size: int = 1000, min_step: int = 0, max_step: Any = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows from `min_step` to below `max_step` that have all `keys`."""
        for row in self._rows:
            in_range = min_step <= row["_step"] < (math.inf if max_step is None else max_step)
            if in_range and all(key in row for key in keys or ()):
                yield {key: row[key] for key in keys} if keys else dict(row)

    def history(
        self,
        samples: int = 500,
        keys: Any = None,
        x_axis: str = "_step",
        pandas: bool = True,
        stream: str = "default",
    ) -> Any:
        """Return at most `samples` rows, evenly thinned, as a DataFrame if pandas is installed."""
        wanted = [x_axis, *(k for k in keys if k != x_axis)] if keys else None
        rows = list(self.scan_history(wanted))
        if keys and not rows and self._rows:
            log_once(f"history: no row has all of {', '.join(keys)}; ask for one key a call")
        if len(rows) > samples:
            rows = [rows[i * (len(rows) - 1) // max(1, samples - 1)] for i in range(samples)]
        if pandas:
            try:
                return importlib.import_module("pandas").DataFrame(rows)
            except ImportError:
                log_once("history: pandas is not installed; returning a list")
        return rows


class ApiSummary(Mapping[str, Any]):
    """The last value of each metric."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._json_dict = values

    def __getitem__(self, key: str) -> Any:
        return self._json_dict[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json_dict)

    def __len__(self) -> int:
        return len(self._json_dict)

    def __repr__(self) -> str:
        return repr(self._json_dict)


# W&B's names of these classes, in wandb.apis.public.
Run = ApiRun
Sweep = ApiSweep


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.apis.public.{name}"))


def _equal(value: Any, wanted: Any) -> bool:
    return wanted in value if isinstance(value, list) else bool(value == wanted)


def _value(run: ApiRun, field: str) -> Any:
    """Return what a field of a filter or of an order names.

    Raises:
        ValueError: hpq knows no such field.
    """
    group, _, name = field.partition(".")
    if group == "config":
        return run.config.get(name, run.config.get(name.rpartition(".value")[0]))
    if group in ("summary_metrics", "summary"):
        return run.summary.get(name)
    if field not in _FIELDS:
        known = ", ".join([*_FIELDS, "config.NAME", "summary_metrics.NAME"])
        raise ValueError(f"hpq knows no field {field!r}; use one of {known}{_OWN}")
    return getattr(run, _FIELDS[field])


def _matches(run: ApiRun, filters: Mapping[str, Any]) -> bool:
    """Return whether a run matches W&B's filters.

    Raises:
        ValueError: a field or an operator is unknown.
    """
    for field, wanted in filters.items():
        if field in ("$and", "$or"):
            found = [_matches(run, one) for one in wanted]
            is_so = all(found) if field == "$and" else any(found)
        else:
            tests = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
            if unknown := tests.keys() - _OPERATORS.keys():
                known = ", ".join(["$and", "$or", *_OPERATORS])
                raise ValueError(f"hpq knows no operator {min(unknown)}; use one of {known}{_OWN}")
            value = _value(run, field)
            is_so = all(_OPERATORS[name](value, other) for name, other in tests.items())
        if not is_so:
            return False
    return True


def _sorted(runs: list[ApiRun], order: str) -> list[ApiRun]:
    """Return runs in an order: `+` rising, `-` falling; runs without the value come last."""
    field = order.lstrip("+-")
    values = [(_value(run, field), run) for run in runs]
    has_value = [(v, run) for v, run in values if v is not None and v == v]
    has_value.sort(key=lambda pair: pair[0], reverse=order.startswith("-"))
    nan = [run for v, run in values if v is not None and v != v]
    return [*(run for _, run in has_value), *nan, *(run for v, run in values if v is None)]
