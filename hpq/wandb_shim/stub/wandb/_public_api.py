"""`wandb.Api`: sweeps and their trials, as `hpq show` and `hpq results` read them from Redis."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ._artifacts import find
from ._files import Artifact
from ._public_run import ApiFile, ApiRun, Missing
from ._transport import hpq_json, missing
from .errors import UsageError

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


class Api(Missing):
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


class ApiSweep(Missing):
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

        Without an order it is the one that `hpq best` names: replicates count by their mean, and
        trials that failed, or do not meet the constraints, do not count. Of several metrics, the
        first one decides.
        """
        if order is None:
            known = [(run.objective, run) for run in self.runs if run.objective is not None]
            if "metrics" not in self._data:
                ranked = [(run.rank, run) for _, run in known if run.rank]
                return min(ranked, key=lambda pair: pair[0], default=(0, None))[1]
            best = max if self._data["goal"] == "maximize" else min
            return best(known, key=lambda pair: pair[0], default=(0.0, None))[1]
        if order[0] not in "+-":
            order = f"-{order}"
        if "." not in order and order[1:] not in _FIELDS:
            order = f"{order[0]}summary_metrics.{order[1:]}"
        return next(iter(_sorted(self.runs, order)), None)


# W&B's names of these classes, in wandb.apis.public.
File = ApiFile
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
        return run._values.get(name)
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
