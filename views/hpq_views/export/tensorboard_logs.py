"""Write trials as TensorBoard logs: a directory a trial, with its curves and hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hpq.domain.trial import Curve, Json, TrialState, TrialView, flatten
from hpq.extras import library

_STATUS = {
    TrialState.FINISHED: "STATUS_SUCCESS",
    TrialState.PRUNED: "STATUS_SUCCESS",
    TrialState.FAILED: "STATUS_FAILURE",
    TrialState.RUNNING: "STATUS_RUNNING",
}


class TensorBoardLogs:
    """Writes trials under a new directory: `folder/7/events.out.tfevents…`."""

    def __init__(self, folder: Path) -> None:
        what, package = "--to tensorboard", "tensorboard"
        self._folder = folder
        folder.mkdir()
        self._hparams = library("tensorboard.plugins.hparams.summary_v2", what, package)
        self._plugin = library("tensorboard.plugins.hparams.plugin_data_pb2", what, package)
        self._events = library("tensorboard.compat.proto.event_pb2", what, package)
        self._records = library("tensorboard.summary.writer.record_writer", what, package)

    def add(self, trials: Iterable[tuple[TrialView, Sequence[Curve]]]) -> None:
        """Write trials, each with its curves; times are when Redis received a value."""
        for trial, curves in trials:
            self._write(trial, curves)

    def _write(self, trial: TrialView, curves: Sequence[Curve]) -> None:
        began = trial.claimed_ms / 1000
        folder = self._folder / str(trial.id.number)
        folder.mkdir()
        with (folder / f"events.out.tfevents.{int(began)}.hpq").open("wb") as file:
            records = self._records.RecordWriter(file)

            def write(**fields: Any) -> None:
                records.write(self._events.Event(**fields).SerializeToString())

            write(wall_time=began, file_version="brain.Event:2")
            values = {name: _plain(value) for name, value in flatten(trial.params).items()}
            start = self._hparams.hparams_pb(values, str(trial.id), began)
            write(wall_time=began, summary=start)
            for curve in curves:
                rows = zip(curve.steps, curve.values, curve.times_ms, strict=True)
                for step, value, at_ms in rows:
                    point = {"tag": curve.metric, "simple_value": value}
                    write(wall_time=at_ms / 1000, step=step, summary={"value": [point]})
            if trial.state.is_terminal:
                write(wall_time=trial.ended_ms / 1000, summary=self._end(start, trial))

    def _end(self, start: Any, trial: TrialView) -> Any:
        """Return the summary that ends the session of a trial."""
        pb = self._plugin
        status = _STATUS.get(trial.state, "STATUS_UNKNOWN")
        info = pb.SessionEndInfo(status=status, end_time_secs=trial.ended_ms / 1000)
        data = pb.HParamsPluginData(version=0, session_end_info=info)
        end = type(start)()
        end.CopyFrom(start)
        end.value[0].tag = "_hparams_/session_end_info"
        end.value[0].metadata.plugin_data.content = data.SerializeToString()
        return end


def _plain(value: Json) -> str | float | bool:
    return value if isinstance(value, str | bool | int | float) else json.dumps(value)
