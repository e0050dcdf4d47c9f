"""`hpq export`: TensorBoard and Optuna themselves read back what it writes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hpq.domain.attempt import Nothing, Outcome, ReportBatch, WorkerPresence
from hpq.domain.constraint import Constraint
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq.domain.trial import Claim, Failure, FailureKind, Json, Point, TrialState
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from tests.support.desk import Done
from tests.support.ids import refused

Hpq = Callable[..., Done]
SPACE: dict[str, Json] = {
    "lr": {"distribution": "log_uniform_values", "min": 0.001, "max": 1},
    "width": {"distribution": "int_uniform", "min": 8, "max": 64},
    "opt": {"values": ["sgd", "adam", None, [1, 2]]},
    "momentum": {"min": 0.0, "max": 0.9},
    "noise": {"distribution": "normal", "mu": 0, "sigma": 1},
    "nested": {"parameters": {"dropout": {"values": [0.1, 0.5]}}},
}
NAMES = ("lr", "width", "opt", "momentum", "noise", "nested")
SETS: list[dict[str, Any]] = [
    dict(zip(NAMES, values, strict=True))
    for values in (
        (0.01, 8, "sgd", 0.5, -2.5, {"dropout": 0.1}),
        (0.1, 64, None, 0.2, 0.5, {"dropout": 0.5}),
        (0.5, 16, [1, 2], 0, 1.5, {"dropout": 0.5}),
        (2.0, 16, "other", 0.1, 0, {"dropout": 0.1}),
        (0.2, 16, "sgd", 0.1, 0, {"dropout": 0.1}),
    )
]
del SETS[1]["momentum"]  # a condition may omit a parameter
READ_MLFLOW = """
import json, sys, mlflow
client = mlflow.MlflowClient(tracking_uri=sys.argv[1])
runs = client.search_runs([client.get_experiment_by_name(sys.argv[2]).experiment_id])
print(json.dumps({run.info.run_name: {
    "status": run.info.status, "params": run.data.params, "metrics": run.data.metrics,
    "tags": run.data.tags, "artifacts": len(client.list_artifacts(run.info.run_id)),
    "acc": [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "acc")],
} for run in runs}))
"""
CURVES = [[0.1, 0.4, 0.6], [0.2, math.nan, math.nan], [0.3, 0.35], [0.5]]


@pytest.fixture
def ended(
    writer: SweepWriter, store: TrialStore, who: WorkerPresence, take: Callable[[], Claim | Nothing]
) -> str:
    """Trials that finished, diverged, were pruned and failed; the fifth waits."""
    sweep = SweepView(
        id="demo-00000", name="demo", digest="d", launch=Launch(program="t.py"), owner="me",
        metric=Metric(name="acc", goal=Goal.MAXIMIZE), varying=tuple(SPACE),
        spec={"method": "random", "parameters": SPACE},
    )  # fmt: skip
    writer.add_rows(sweep.id, 1, [(dumps(one), ParameterSet(one).identity) for one in SETS])
    assert writer.create(sweep) is None
    failure = Failure(kind=FailureKind.USER_ERROR, message="ValueError: no", fingerprint="f")
    ends = [
        Outcome(state=TrialState.FINISHED, objective=0.6, step=3),
        Outcome(state=TrialState.FINISHED, step=3),
        Outcome(state=TrialState.PRUNED, objective=0.35, step=2),
        Outcome(state=TrialState.FAILED, failure=failure, step=1),
    ]
    for values, end in zip(CURVES, ends, strict=True):
        got = take()
        assert isinstance(got, Claim)
        points = [Point(step=s, name="acc", value=v) for s, v in enumerate(values, start=1)]
        points += [Point(step=1, name="loss/train", value=2.5)]
        store.beat(got, who, ReportBatch(seq=1, step=3, points=tuple(points)), lease_ms=30_000)
        store.commit(got, end)
    return sweep.id


def test_optuna_reads_the_study_with_its_ranges_states_and_curves(
    hpq: Hpq, ended: str, tmp_path: Path
) -> None:
    optuna = pytest.importorskip("optuna")
    done = hpq("export", "--to", "optuna", "study.journal")
    assert done.returncode == 0 and "optuna-dashboard study.journal" in done.stderr
    assert "4 trials written; 1 trial not ended" in done.stderr and done.stdout == ""
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    study = optuna.load_study(study_name=ended, storage=optuna.storages.JournalStorage(backend))
    assert (study.direction.name, study.best_value, study.best_trial.number) == ("MAXIMIZE", 0.6, 0)
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "FAIL", "PRUNED", "FAIL"]
    assert [dict(t.intermediate_values) for t in study.trials] == [
        {1: 0.1, 2: 0.4, 3: 0.6}, {1: 0.2}, {1: 0.3, 2: 0.35}, {1: 0.5},
    ]  # fmt: skip
    first, second, pruned, failed = study.trials
    assert first.params == {
        "lr": 0.01, "width": 8, "opt": "sgd", "momentum": 0.5, "noise": -2.5, "nested.dropout": 0.1,
    }  # fmt: skip
    assert "momentum" not in second.params and second.params["opt"] is None
    assert (pruned.value, pruned.params["opt"]) == (0.35, "[1, 2]")
    assert failed.user_attrs["failure"] == "user_error: ValueError: no"
    assert first.user_attrs["last.loss/train"] == 2.5 and first.user_attrs["hpq"] == f"{ended}/1"
    assert all(t.datetime_start <= t.datetime_complete for t in study.trials)
    kinds = optuna.distributions
    assert first.distributions == {
        "lr": kinds.FloatDistribution(0.001, 2.0, log=True),  # 2.0 is beyond the file's range
        "width": kinds.IntDistribution(8, 64),
        "opt": kinds.CategoricalDistribution(("sgd", "adam", None, "[1, 2]", "other")),
        "momentum": kinds.FloatDistribution(0.0, 0.9),
        "noise": kinds.FloatDistribution(-2.5, 1.5),
        "nested.dropout": kinds.CategoricalDistribution((0.1, 0.5)),
    }


def test_optuna_reads_several_metrics_and_constraints(
    hpq: Hpq, sweep_of, take, store: TrialStore, who: WorkerPresence, tmp_path: Path
) -> None:
    optuna = pytest.importorskip("optuna")
    pair = (Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms"))
    sweep_of(4, objectives=pair, constraints=(Constraint.parse("gb <= 24"),))
    for n, metrics in enumerate(({"gb": 32.0}, {"gb": 16.0}, {"gb": 8.0, "acc": math.nan}), 1):
        values = {"acc": 0.5, "ms": float(n), **metrics}
        points = tuple(Point(step=1, name=name, value=value) for name, value in values.items())
        done = Outcome(state=TrialState.FINISHED, objective=0.5)
        store.commit(take(), done, ReportBatch(seq=1, step=1, points=points))
    assert hpq("export", "--to", "optuna", "x").returncode == 0
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "x"))
    study = optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))
    assert [one.name for one in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["acc", "ms"]
    assert [t.values for t in study.trials] == [[0.5, 1.0], [0.5, 2.0], None]
    assert [t.system_attrs["constraints"] for t in study.trials] == [[8.0], [-8.0], [-16.0]]
    assert [trial.number for trial in study.best_trials] == [1]


def test_numbers_without_a_file_become_ranges(
    hpq: Hpq, sweep_of: Callable[..., SweepView], take: Callable[[], Claim | Nothing],
    store: TrialStore, tmp_path: Path,
) -> None:  # fmt: skip
    """As a list of parameter sets has them: a choice for each of 10,000 numbers takes minutes."""
    optuna = pytest.importorskip("optuna")
    sweep_of(3)
    for value in (0.5, 0.25, 0.75):
        got = take()
        assert isinstance(got, Claim)
        store.commit(got, Outcome(state=TrialState.FINISHED, objective=value))
    assert hpq("export", "--to", "optuna", "x").returncode == 0
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "x"))
    study = optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))
    assert study.best_params == {"x": 3}
    assert study.best_trial.distributions == {"x": optuna.distributions.IntDistribution(1, 3)}


def test_tensorboard_reads_a_run_a_trial_with_its_hyperparameters(
    hpq: Hpq, ended: str, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_multiplexer import (  # noqa: PLC0415
        EventMultiplexer,
    )
    from tensorboard.plugins.hparams import plugin_data_pb2  # noqa: PLC0415

    done = hpq("export", "demo", "logs", "--to", "tensorboard")
    assert done.returncode == 0 and "tensorboard --logdir logs" in done.stderr
    assert "4 trials written; 1 trial not started" in done.stderr
    runs = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "logs"))
    runs.Reload()
    assert sorted(runs.Runs()) == ["1", "2", "3", "4"], "no run but the trials"
    acc = runs.Scalars("1", "acc")
    assert [(point.step, round(point.value, 5)) for point in acc] == [(1, 0.1), (2, 0.4), (3, 0.6)]
    assert abs(acc[0].wall_time - os.stat(tmp_path / "logs" / "1").st_mtime) < 3600
    assert [math.isnan(point.value) for point in runs.Scalars("2", "acc")] == [False, True, True]
    assert runs.Runs()["4"]["scalars"] == ["acc", "loss/train"]
    parsed = {
        tag: plugin_data_pb2.HParamsPluginData.FromString(content)
        for tag, content in runs.GetAccumulator("2").PluginTagToContent("hparams").items()
    }
    start = parsed["_hparams_/session_start_info"].session_start_info
    assert (start.group_name, start.hparams["lr"].number_value) == (f"{ended}/2", 0.1)
    assert start.hparams["opt"].string_value == "null"
    assert parsed["_hparams_/session_end_info"].session_end_info.end_time_secs > 0


def test_an_existing_path_stays_and_a_failed_export_leaves_nothing(
    hpq: Hpq, ended: str, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("mine")
    refused(hpq("export", "--to", "optuna", "kept"), "file-exists")
    refused(hpq("export", "--to", "tensorboard", "kept"), "file-exists")
    refused(hpq("export", "--to", "optuna", "gone/x"), "file-unwritable")
    refused(hpq("export", "nope", "x", "--to", "optuna"), "sweep-not-found", exit=4)
    refused(hpq("export", "a", "b", "c", "--to", "optuna"), "usage")
    refused(hpq("export", "x", "--to", "excel"), "usage")
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["kept"]


def test_mlflow_reads_an_experiment_with_a_run_a_trial(
    hpq: Hpq, ended: str, sweep_of, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "sub").mkdir()
    done = hpq("export", "demo", "sub/../runs", "--to", "mlflow")
    ui = "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri sub/../runs"
    assert done.returncode == 0 and ui in done.stderr
    assert not [path for path in tmp_path.glob("runs/**/meta.yaml") if "sub" in path.read_text()]
    refused(hpq("export", "demo", "runs", "--to", "mlflow"), "file-exists")
    sweep_of(1, "more-00000")
    assert hpq("export", "more", "runs", "--to", "mlflow").returncode == 0
    assert len([*tmp_path.glob("runs/*/meta.yaml")]) == 2, "an experiment for each sweep"
    if not find_spec("mlflow"):
        pytest.skip("mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    read = [sys.executable, "-c", READ_MLFLOW, (tmp_path / "runs").as_uri(), ended]
    runs = json.loads(subprocess.run(read, stdout=subprocess.PIPE, check=True).stdout)
    assert {name: run["status"] for name, run in runs.items()} == {
        f"{ended}/1": "FINISHED", f"{ended}/2": "FINISHED", f"{ended}/3": "FINISHED",
        f"{ended}/4": "FAILED",
    }  # fmt: skip
    first = runs[f"{ended}/1"]
    assert first["params"]["nested.dropout"] == "0.1" and first["params"]["opt"] == "sgd"
    assert first["metrics"] == {"acc": 0.6, "loss.train": 2.5} and first["artifacts"] == 0
    assert first["acc"] == [[1, 0.1], [2, 0.4], [3, 0.6]]
    assert runs[f"{ended}/3"]["tags"]["hpq.state"] == "pruned"


def test_a_name_of_a_metric_leaves_no_directory_of_mlflow(
    hpq: Hpq, store, take, who, sweep_of, tmp_path: Path
) -> None:
    """Export: metrics are named as paths out of the directory, and alike."""
    sweep_of(1)
    got = take()
    names = ("../../out", "/etc/x", "..", "a/b", "a.b", "x" * 300, "\x1b[31m")
    points = tuple(Point(step=1, name=name, value=0.5) for name in names)
    store.beat(got, who, ReportBatch(seq=1, step=1, points=points), lease_ms=30_000)
    assert hpq("export", "demo", "runs", "--to", "mlflow").returncode == 0
    (metrics,) = tmp_path.glob("runs/*/*/metrics")
    assert len(list(metrics.iterdir())) == len(names)
    assert not [path for path in tmp_path.rglob("*out*") if "metrics" not in path.parts]


@pytest.mark.parametrize("to", ["tensorboard", "optuna"])
def test_without_the_library_the_remedy_is_named(
    hpq: Hpq, ended: str, to: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [to, *(name for name in sys.modules if name.startswith(f"{to}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    refused(hpq("export", "x", "--to", to), "extra-missing", to, "pip install")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("to", ["tensorboard", "optuna", "mlflow"])
def test_a_sweep_without_results_is_an_empty_export(
    hpq: Hpq, sweep_of: Callable[..., SweepView], to: str, tmp_path: Path
) -> None:
    sweep_of(3, metric=None)
    assert "0 trials written" in hpq("export", "x", "--to", to).stderr
    assert (tmp_path / "x").exists()
