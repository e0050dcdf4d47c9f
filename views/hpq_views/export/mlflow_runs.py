"""Write trials as MLflow's local file store: an experiment, and a run a trial.

The format is that of MLflow's FileStore: meta.yaml (JSON is YAML), a file for each parameter and
tag, and a file for each metric with lines of time, value and step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from hpq.domain.sweep import SweepView
from hpq.domain.trial import Curve, TrialState, TrialView, flatten

_RUNNING = 1
_STATUS = {
    TrialState.FINISHED: 3,
    TrialState.PRUNED: 3,
    TrialState.FAILED: 4,
    TrialState.CANCELLED: 5,
}
_NAME = re.compile(r"[^\w. :-]|^\.+")


def experiment_of(sweep: SweepView) -> str:
    """Return the id of a sweep's experiment, the name of its folder."""
    return str(sweep.created_ms or 1)


class MlflowRuns:
    """Writes the trials of an experiment into `folder`, which will be at `final`."""

    def __init__(self, folder: Path, final: Path, sweep: SweepView) -> None:
        self._sweep, self._experiment = sweep, experiment_of(sweep)
        self._folder, self._uri = folder, final.resolve().as_uri()
        meta = {
            "artifact_location": self._uri,
            "creation_time": sweep.created_ms,
            "last_update_time": sweep.created_ms,
            "experiment_id": self._experiment,
            "lifecycle_stage": "active",
            "name": sweep.id,
        }
        _write(self._folder, "meta.yaml", json.dumps(meta))

    def add(self, trials: Iterable[tuple[TrialView, Sequence[Curve]]]) -> None:
        """Write trials, each with its curves; times are when Redis received a value."""
        for trial, curves in trials:
            run = sha256(str(trial.id).encode()).hexdigest()[:32]
            folder = self._folder / run
            meta = {
                "artifact_uri": f"{self._uri}/{run}/artifacts",
                "start_time": trial.claimed_ms,
                "end_time": trial.ended_ms or None,
                "entry_point_name": "",
                "experiment_id": self._experiment,
                "lifecycle_stage": "active",
                "run_id": run,
                "run_uuid": run,
                "run_name": str(trial.id),
                "source_name": "",
                "source_type": 4,
                "source_version": "",
                "status": _STATUS.get(trial.state, _RUNNING),
                "tags": [],
                "user_id": self._sweep.owner,
            }
            _write(folder, "meta.yaml", json.dumps(meta))
            (folder / "artifacts").mkdir()
            for name, text in (("mlflow.runName", str(trial.id)), ("hpq.state", trial.state)):
                _write(folder / "tags", name, text)
            for name, value in flatten(trial.params).items():
                text = value if isinstance(value, str) else json.dumps(value)
                _write(folder / "params", name, text)
            for curve in curves:
                rows = zip(curve.times_ms, curve.values, curve.steps, strict=True)
                text = "".join(f"{at_ms} {value} {step}\n" for at_ms, value, step in rows)
                _write(folder / "metrics", curve.metric, text)


def _write(folder: Path, name: str, text: str) -> None:
    """Write a new file; what MLflow allows in no name becomes `_`, and `/` becomes a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    name = _NAME.sub("_", name.replace("/", "."))[:100]
    while (folder / name).exists():
        name += "_"
    (folder / name).write_text(text, "utf-8")
