"""A run of `wandb.Api`: a trial as `hpq results` reads it from Redis, and its files."""

from __future__ import annotations

import importlib
import math
import mimetypes
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from ._artifacts import ARTIFACTS, described, stored
from ._files import Artifact
from ._transport import hpq, log_once, missing

if TYPE_CHECKING:
    from ._public_api import ApiSweep

_KINDS = ("min", "max", "mean", "first")  # that `define_metric` keeps: in W&B's summary alone
_STATES = {"queued": "pending", "pruned": "killed", "cancelled": "killed"}


class Missing:
    """Raise an error that names hpq for each attribute that the stand-in lacks."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"{type(self).__name__}.{name}"))


class ApiRun(Missing):
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
        self.rank: int | None = record.get("rank")  # None also with several metrics
        self.created_at: str | None = record["started"]
        self.duration, self.host = record["duration_s"], record["host"]
        self.tags: list[str] = [*sweep._data["tags"], *about.get("tags", ())]
        self.url = f"hpq://{record['sweep']}/{record['trial']}"
        self.lastHistoryStep = -1 if record["step"] is None else record["step"]
        self._values: dict[str, Any] = {
            **about.get("summary", {}),
            **{name: _number(value) for name, value in record["last"].items()},
            "_runtime": record["duration_s"],
        }
        if record["last"]:  # W&B has no step of a run that logged nothing
            self._values["_step"] = record["step"]
        self._groups = frozenset[str](about.get("groups", ()))
        self.summary_metrics = _nested(self._values, self._groups)
        self.summary = ApiSummary(self.summary_metrics)
        self._number: int = record["trial"]
        self._trial = f"{record['sweep']}/{record['trial']}"
        self._kept: Mapping[str, int] = record["artifacts"]
        self._ended: str | None = record["ended"]

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """The points that hpq keeps, as one row a step."""
        rows: dict[int, dict[str, Any]] = {}
        for point in self.sweep._points.get(self._number, ()):
            name, step = point["metric"], point["step"]
            of, _, kind = name.rpartition(".")
            if not (of in self._groups and of in self._values and kind in _KINDS):
                rows.setdefault(step, {"_step": step})[name] = _number(point["value"])
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

    # --- files --------------------------------------------------------------------------------

    def files(
        self, names: Sequence[str] | None = None, pattern: str | None = None, per_page: int = 50
    ) -> list[ApiFile]:
        """Return the trial's files, without those of artifacts; `pattern` is SQL's of LIKE."""
        found = [name for name in self._kept if not name.startswith(ARTIFACTS)]
        if names:
            found = [name for name in found if name in names]
        elif pattern is not None:
            parts = ({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in pattern)
            rule = re.compile("".join(parts), re.DOTALL)
            found = [name for name in found if rule.fullmatch(name)]
        return [ApiFile(self._trial, name, self._kept[name]) for name in found]

    def file(self, name: str) -> ApiFile:
        """Return a file by its name; of one that the trial has not, the size is 0."""
        return ApiFile(self._trial, name, self._kept.get(name, 0))

    def logged_artifacts(self, per_page: int = 100) -> list[Artifact]:
        """Return the artifacts that the trial logged, with their versions in the sweep."""
        mine = self._ended or ""
        before = [run for run in self.sweep.runs if "" < (run._ended or "") < mine]
        found = []
        for artifact in stored(self._trial, self._kept):
            number = sum(described(artifact.name) in run._kept for run in before)
            artifact.version = f"v{number}"
            found.append(artifact)
        return found


class ApiFile(Missing):
    """A file of a trial."""

    def __init__(self, trial: str, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.mimetype = mimetypes.guess_type(name)[0] or ""
        self.url = self.direct_url = f"hpq://{trial}/{name}"
        self._trial = trial

    def download(
        self, root: str = ".", replace: bool = False, exist_ok: bool = False, api: Any = None
    ) -> IO[str]:
        """Download the file to its name below a folder; return it, open.

        Raises:
            UsageError: hpq has no such file, or its store is out of reach.
            ValueError: the folder has this file, and neither `replace` nor `exist_ok` is set.
        """
        path = os.path.join(root, self.name)
        if os.path.exists(path) and not replace:
            if not exist_ok:
                raise ValueError(f"{path} exists; write replace=True, or exist_ok=True to keep it")
        else:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            hpq("get", self._trial, self.name, "--out", path, "--force")
        return open(path)


class ApiSummary(Mapping[str, Any]):
    """The last value of each metric; a mapping that the script logged is such a summary, too."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._json_dict = values

    def __getitem__(self, key: str) -> Any:
        found = self._json_dict[key]
        return ApiSummary(found) if isinstance(found, dict) else found

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        return self[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json_dict)

    def __len__(self) -> int:
        return len(self._json_dict)

    def __repr__(self) -> str:
        return repr(self._json_dict)


def _number(value: float | None) -> float:
    """Return NaN for null: hpq's JSON has no NaN and no infinite numbers."""
    return math.nan if value is None else value


def _nested(values: Mapping[str, Any], groups: Collection[str]) -> dict[str, Any]:
    """Return values by name as the mappings that they were; `groups` are the mappings' names.

    Of a metric whose minimum `define_metric` keeps, that alone is in W&B's summary.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in groups and any(other.startswith(f"{name}.") for other in values):
            continue
        place, start = found, 0
        for end in (i for i, letter in enumerate(name) if letter == "." and name[:i] in groups):
            place = place.setdefault(name[start:end], {})
            start = end + 1
        place[name[start:]] = value
    return found
