"""hpq's wandb shim accepts the arguments of wandb; steps have W&B's meaning."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import math
import operator
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from hpq.reporting import METRIC_NAME
from tests.support.constants import DATA
from tests.unit.worker.conftest import PLACE

# The names and parameters of the package whose version stands in the file.
REAL = json.loads((DATA / "wandb_signatures.json").read_text("utf-8"))
# What makes no sense without a W&B server or a notebook; a script hears so.
LEFT_OUT = {"ArtifactTTL", "EvalTable", "box3d"}


def find(wandb: ModuleType, name: str) -> object:
    found: object = wandb
    for part in name.split("."):
        found = getattr(found, part)
    return found.__init__ if inspect.isclass(found) else found


def test_it_has_every_public_name_and_takes_every_parameter(wandb: ModuleType) -> None:
    assert {n for n in REAL["names"] if not hasattr(wandb, n)} == LEFT_OUT
    for name, wanted in REAL["parameters"].items():
        given = inspect.signature(find(wandb, name)).parameters  # type: ignore[arg-type]
        if not any(p.kind is p.VAR_KEYWORD for p in given.values()):
            assert set(wanted) <= set(given), name
        inside = [n for n in given if n in wanted]
        assert inside == [n for n in wanted if n in inside], f"{name}: another order"


@pytest.mark.parametrize("name", ["fastai", "integration.gym", "apis.reports", "sdk.internal"])
def test_a_module_that_the_stand_in_lacks_names_the_stand_in(wandb: ModuleType, name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"wandb.{name}: .*wandb: real.*wandb-missing"):
        importlib.import_module(f"wandb.{name}")
    assert not hasattr(wandb, name.partition(".")[0]) or "." in name


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("agents", "agent"),
        ("agents.pyagent", "agent"),
        ("apis", "Api public"),
        ("apis.public", "Api Run Sweep"),
        ("apis.public.runs", "Run"),
        ("errors.errors", "CommError UsageError"),
        ("errors.term", "termerror termlog termsetup termwarn"),
        ("helper", "parse_config"),
        ("sdk.data_types", "Image Table"),
        ("sdk.data_types.image", "Image"),
        ("sdk.data_types.base_types.media", "Media"),
        ("sdk.lib.disabled", "RunDisabled SummaryDisabled"),
        ("sdk.lib.runid", "generate_fast_id generate_id"),
        ("sdk.wandb_init", "init"),
        ("sdk.wandb_sweep", "sweep"),
        ("util", "generate_id"),
    ],
)
def test_modules_of_the_package_have_the_names_that_scripts_import(
    wandb: ModuleType, module: str, names: str
) -> None:
    exec(f"from wandb.{module} import {names.replace(' ', ', ')}\nimport wandb.{module} as m", {})
    found = importlib.import_module(f"wandb.{module}")
    assert all(getattr(found, name) for name in names.split())


def test_what_is_about_an_account_goes_on_and_says_so_once(
    wandb: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert wandb.api.api_key and wandb.api.viewer()["entity"] == wandb.api.default_entity
        wandb.ensure_configured()
        assert wandb.sdk.lib.RunDisabled().anything is None
    assert capsys.readouterr().err.count("no accounts") == 3
    with pytest.raises(AttributeError, match="wandb-missing"):
        wandb.api.upsert_run  # noqa: B018


def test_two_processes_with_one_seed_have_different_run_ids(wandb: ModuleType) -> None:
    found = set()
    for _ in range(2):
        random.seed(0)
        found.add(wandb.util.generate_id())
    assert len(found) == 2


WORDS = """
init(mode="xyz") init(mode="dryrun") init(resume="sometimes") init(resume="allow")
init(reinit="sometimes") Settings(mode="x") Settings(mode="shared")
save("f",policy="sometimes") save("f",policy=None) save("f",policy="end") save("f",base_path="/usr")
define_metric("") define_metric("a*b") define_metric("a*") define_metric("a",summary="bogus")
alert("a","b",level="BAD") alert("a","b",level="WARN") alert("a","b",level=wandb.AlertLevel.INFO)
watch([],log="bogus") watch([],log="all")
Artifact("a","t").add_file("f",policy="bogus") Artifact("a","t").add_file("f",policy="immutable")
Artifact("a","t").add_dir(".",policy="bogus") Artifact("a","t").add_file("none")
"""


def test_words_that_the_package_refuses_are_refused(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package 0.31 raises a ValueError, or its own Error, for these and no others."""
    wandb.init()
    Path("f").write_text("1")
    refused = []
    for call in WORDS.split():
        try:
            eval(f"wandb.{call}", {"wandb": wandb})
        except (ValueError, wandb.Error):
            refused.append(call)
    right = ("dryrun", "allow", "shared", "end", '"a*"', "WARN", "INFO", "all", "immutable")
    assert refused == [c for c in WORDS.split() if not any(w in c for w in right)]
    wandb.finish()
    monkeypatch.setenv("WANDB_MODE", "foo")
    with pytest.raises(ValueError, match="foo"):
        wandb.init()


WRONG = """
tags=[1] tags=[None] tags=[""] tags=["%s"] project=3 project=["a"] project="a/b" project="a?b"
name=5 name=0 name=["a"] name=True notes=5 notes={} group=5 job_type=5 entity=5 id=5 id="" id="a/b"
id="a:b" dir=5 config=3 config=[1] config="none.yaml" mode=1 mode="OFFLINE" reinit=2 resume=2
settings={"run_name":5} settings={"mode":"foo"} config_include_keys=["a"],config_exclude_keys=["b"]
"""


def test_arguments_of_init_that_the_package_refuses_are_refused(wandb: ModuleType) -> None:
    for arguments in (WRONG % ("x" * 65)).split():
        with pytest.raises((ValueError, TypeError, wandb.Error)):
            eval(f"wandb.init({arguments})", {"wandb": wandb})
        assert wandb.run is None, arguments


def test_arguments_of_init_of_other_types_count_as_in_the_package(wandb: ModuleType) -> None:
    for settings in ({}, "x", 3, [1], None):
        with wandb.init(name=b"n", tags="abc", config=(), settings=settings) as run:
            assert (run.name, run.tags, run.config.as_dict()) == ("n", ("a", "b", "c"), {})
    with wandb.init(tags={"a"}, settings={"run_tags": "abc"}, dir=Path()) as run:
        assert run.tags == ("a",)
    with wandb.init(settings=wandb.Settings(run_tags="abc", project="p")) as run:
        assert (run.tags, run.project) == (("abc",), "p")


def test_charts_of_sklearn_do_nothing_and_say_so_once(
    wandb: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module("wandb.sklearn")
    importlib.import_module("wandb.integration.sklearn")
    wandb.sklearn.plot_classifier(1, 2, labels=[3])
    wandb.sklearn.plot_learning_curve(1)
    assert capsys.readouterr().err.count("wandb.sklearn") == 1
    assert not hasattr(wandb, "no_such_name") and not hasattr(wandb.integration, "no_such_name")


def test_rows_have_the_steps_that_wandb_gives_them(wandb: ModuleType) -> None:
    run = wandb.init()
    run.log({"a": 1})
    run.log({"a": 2}, commit=False)
    run.log({"b": {"c": 3}})
    run.log({"a": 4}, step=5)
    run.log({"b": 5}, step=5)
    run.log({"a": 6}, step=5)  # the last value at a step is the one that stands
    run.log({"a": 7}, step=3)  # steps must rise: dropped
    run.log({"a": 8}, step=9, commit=True)
    assert run.step == 10
    run.log({"a": math.nan}, commit=False)
    wandb.finish()
    assert [str(r) for r in wandb.reports] == [
        "(0, {'a': 1.0})", "(1, {'a': 2.0, 'b.c': 3.0})", "(5, {'a': 4.0})", "(5, {'b': 5.0})",
        "(5, {'a': 6.0})", "(9, {'a': 8.0})", "(10, {'a': nan})",
    ]  # fmt: skip


def test_a_row_whose_step_falls_leaves_nothing_behind(wandb: ModuleType) -> None:
    run = wandb.init()
    run.log({"loss": 1.0}, step=10)
    run.log({"loss": 99.0}, step=5)
    assert run.summary["loss"] == 1.0
    wandb.finish()
    assert wandb.reports == [(10, {"loss": 1.0})]


def test_every_name_that_a_sweep_file_may_ask_for_stays_as_it_is(wandb: ModuleType) -> None:
    name_of = sys.modules["wandb._history"].metric_name
    for letter in map(chr, range(256)):
        name = f"mAP{letter}0.5"
        assert (name_of(name) == name) == bool(METRIC_NAME.match(name)), name
    assert name_of("x" * 65) == "x" * 64


def test_a_step_metric_keeps_the_row_together(wandb: ModuleType) -> None:
    run = wandb.init()
    run.define_metric("val/*", step_metric="epoch", summary="min,max")
    run.define_metric("*", step_metric="epoch")
    for epoch, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        wandb.log({"train/loss": 5.0})
        wandb.log({"val/loss": loss, "epoch": epoch})
    assert wandb.reports[:4] == [
        (0, {"train/loss": 5.0}),
        (1, {"val/loss": 3.0, "val/loss.min": 3.0, "val/loss.max": 3.0, "epoch": 10.0}),
        (2, {"train/loss": 5.0}),
        (3, {"val/loss": 1.0, "val/loss.min": 1.0, "epoch": 20.0}),
    ]


def test_a_step_counter_of_all_metrics_is_the_step_of_the_row(wandb: ModuleType) -> None:
    run = wandb.init()
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    run.define_metric("acc", summary="max")
    wandb.log({"loss": 1.0, "acc": 0.5, "trainer/global_step": 49})
    wandb.log({"val/loss": 2.0, "trainer/global_step": 99})
    wandb.log({"lr": 0.1})
    assert [step for step, _ in wandb.reports] == [49, 99, 99]
    assert set(wandb.reports[0][1]) == {"loss", "acc", "acc.max", "trainer/global_step"}


def test_a_run_tells_its_project_and_the_axes_of_its_metrics(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(sys.modules["wandb._run"], "describe_run", told.append)
    run = wandb.init(project="images", tags=["a"])
    run.define_metric("epoch")
    run.define_metric("val [x]/*", step_metric="epoch [n]")
    run.define_metric("acc", step_metric=run.define_metric("epoch"))
    run.define_metric("*", step_metric="trainer/global_step")
    wandb.log({"acc": 1.0})
    wandb.log({"acc": 2.0})
    assert told == [
        {"project": "images", "tags": ["a"]},
        {
            "project": "images",
            "tags": ["a"],
            "axes": {"val _x_/*": "epoch _n_", "acc": "epoch"},  # the counter is the step itself
        },
    ]


def test_what_is_set_in_the_summary_is_the_value_that_counts(wandb: ModuleType) -> None:
    run = wandb.init()
    for value in (0.5, 0.9, 0.7):
        run.log({"acc": value})
        run.summary["best"] = max(value, run.summary.get("best", 0))
    run.summary.update({"acc": 0.9, "text": "x"})
    wandb.finish()
    assert [v["best"] for _, v in wandb.reports if "best" in v] == [0.5, 0.9]
    assert wandb.reports[-1] == (2, {"acc": 0.9})


def test_the_summary_reads_as_wandbs(wandb: ModuleType) -> None:
    run = wandb.init()
    run.define_metric("loss", summary="min,max,last")
    run.define_metric("val/*", summary="mean,first")
    run.define_metric("hidden", summary="none")
    for value in (3.0, 1.0, 2.0):
        wandb.log(
            {"loss": value, "val/a [b]": value, "hidden": value, "train": {"loss": value}, "x": 4}
        )
    summary = run.summary
    assert summary["loss"]["min"] == summary.loss.min == 1.0
    assert (summary["loss"]["max"], summary["loss"]["last"]) == (3.0, 2.0)
    assert dict(summary["val/a [b]"].items()) == {"mean": 2.0, "first": 3.0}
    assert summary["train"]["loss"] == summary.get("train").loss == summary["train.loss"] == 2.0
    assert "train" in summary and "hidden" not in summary and "tra" not in summary
    summary["train"]["best"] = 0.5
    summary.update({"a": {"b": {"c": 1.0, "text": "t"}}})
    assert copy.deepcopy(summary)["a"]["b"]._as_dict() == {"c": 1.0, "text": "t"}
    with pytest.raises(KeyError, match="nope"):
        summary["train"]["nope"]
    wandb.finish()
    last: dict[str, float] = {}
    for _, values in wandb.reports:
        last |= values
    assert last == {
        "loss": 2, "loss.min": 1, "loss.max": 3, "val/a _b_": 2, "val/a _b_.mean": 2,
        "val/a _b_.first": 3, "hidden": 2, "train.loss": 2, "train.best": 0.5, "a.b.c": 1, "x": 4,
    }  # fmt: skip


def test_the_summary_has_what_was_logged_with_its_type(wandb: ModuleType) -> None:
    run, image = wandb.init(), wandb.Image(np.zeros((2, 2), np.uint8))
    first = {"epoch": 3, "ok": True, "text": "t", "list": [1, 2], "mAP@0.5": 0.5}
    run.log({**first, "of numpy": np.int64(4), "image": image, "array": np.zeros(9), "none": None})
    run.log({"deep": {"a": {"b": np.float32(0.5)}, "c": 7}, "images": [image, image]})
    summary = run.summary
    found = {key: summary[key] for key in (*first, "of numpy")}
    assert found == {**first, "of numpy": 4}
    assert {*map(type, found.values())} == {int, bool, str, list, float}
    assert summary["image"]["path"].startswith("media/images/image_0_")
    assert summary["images"][1] == {"_type": "image-file", "path": image.path}
    assert "array" in summary and "none" not in summary
    assert summary["_step"] == 1 and summary["_runtime"] >= 0
    assert {*summary.keys()} == {
        *first, "of numpy", "image", "array", "deep", "images", "_step", "_runtime"
    }  # fmt: skip
    assert dict(summary["deep"]["a"].items()) == {"b": 0.5} and summary["deep"]["c"] == 7
    with pytest.raises(KeyError, match="nope"):
        summary.nope  # noqa: B018
    assert not hasattr(summary, "nope") and not hasattr(summary.deep, "nope")
    wandb.finish()
    assert all(isinstance(v, float) for _, values in wandb.reports for v in values.values())
    assert len(wandb.reports) == 2, "finish sends nothing anew"


class Mode(Enum):
    A = 1


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.array([1, 2]), [1, 2]),
        (np.array([[1.5], [2.5]]), [[1.5], [2.5]]),
        (np.float32(0.5), 0.5),
        (np.array([7]), 7),
        (Mode.A, "A"),
        ({"a": [Mode.A, np.arange(2)]}, {"a": ["A", [0, 1]]}),
        (np.zeros(1_000_000, np.uint8), "[0 0 0 ... 0 0 0]"),
    ],
)
def test_a_config_has_the_values_that_wandb_makes_of_it(
    wandb: ModuleType, given: object, kept: object
) -> None:
    assert wandb.init(config={"x": given}).config["x"] == kept


def test_api_has_nan_for_null_no_step_without_a_log_and_kept_minima_in_the_summary_alone(
    wandb: ModuleType,
) -> None:
    record = {
        "run_info": {}, "sweep": "s", "trial": 1, "state": "finished", "failure": None,
        "param": {}, "objective": None, "started": None, "ended": None, "duration_s": 1.0,
        "host": "h", "step": 4, "last": {"std": None, "loss": 0.5}, "artifacts": {},
    }  # fmt: skip
    points = [{"step": 4, "metric": "std", "value": None}]
    sweep = SimpleNamespace(
        id="s", entity="e", project="p", _data={"tags": []}, _points={1: points}
    )
    make = importlib.import_module("wandb._public_run").ApiRun
    run = make(record, sweep)
    assert math.isnan(run.summary["std"]) and run.summary["loss"] == 0.5
    assert [math.isnan(row["std"]) for row in run.scan_history()] == [True]
    best = [{"step": 4, "metric": name, "value": 0.5} for name in ("loss", "loss.min", "loss.x")]
    sweep._points[1] = best
    defined = make({**record, "run_info": {"groups": ["loss"]}}, sweep)
    assert list(defined.scan_history()) == [{"_step": 4, "loss": 0.5, "loss.x": 0.5}]
    silent = make({**record, "last": {}, "step": 0}, sweep)
    assert "_step" in run.summary and "_step" not in silent.summary


def test_items_of_the_config_that_begin_with_an_underscore_are_recorded(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stable-baselines3's callback sets them; W&B hides them from the script alone."""
    said: list[dict] = []
    monkeypatch.setattr(sys.modules["wandb._run"], "describe_run", said.append)
    with wandb.init(config={"_n_updates": 3, "lr": 1}) as run:
        assert run.config.as_dict() == {"lr": 1}
    assert said[-1]["config"] == {"_n_updates": 3, "lr": 1}


def test_the_last_ten_alerts_are_told_with_their_level(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict] = []
    monkeypatch.setattr(sys.modules["wandb._run"], "describe_run", said.append)
    wandb.init()
    wandb.alert("done", "all of it")
    assert said[-1]["alerts"] == ["INFO done: all of it"]
    for n in range(12):
        wandb.alert("slow", f"step {n}", level=wandb.AlertLevel.WARN)
    assert said[-1]["alerts"] == [f"WARN slow: step {n}" for n in range(2, 12)]


def test_settings_have_known_names_and_no_methods_of_a_mapping(wandb: ModuleType) -> None:
    settings = wandb.init().settings
    for use in (lambda: dict(settings), lambda: settings.copy(), lambda: settings.model_dump()):
        with pytest.raises((AttributeError, TypeError)) as error:
            use()
        assert "wandb: real" in str(error.value) or "not iterable" in str(error.value)
    assert settings.start_method is None and copy.deepcopy(settings).project is None


def test_a_log_call_makes_no_call_of_python_for_each_key(wandb: ModuleType) -> None:
    run, calls = wandb.init(), []

    def count(keys: int) -> int:
        row = {f"key{i}": i / 7 for i in range(keys)}
        run.log(row)  # once per name: its characters are checked
        calls.clear()
        sys.setprofile(lambda frame, event, arg: calls.append(event) if event == "call" else None)
        run.log(row)
        sys.setprofile(None)
        return len(calls)

    assert count(40) == count(2)


def test_a_run_is_described_by_arguments_then_settings_then_variables(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NAME", "NOTES", "JOB_TYPE", "RUN_GROUP", "DIR", "PROJECT"):
        monkeypatch.setenv(f"WANDB_{name}", f"of WANDB_{name}")
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    run = wandb.init(name="first", settings=wandb.Settings(run_name="second", run_notes="why"))
    assert (run.name, run.notes, run.project) == ("first", "why", "of WANDB_PROJECT")
    assert (run.tags, run.job_type, run.group) == (
        ("a", "b"),
        "of WANDB_JOB_TYPE",
        "of WANDB_RUN_GROUP",
    )
    settings = run.settings
    assert (settings.run_name, settings.run_id, settings.root_dir) == (
        "first",
        run.id,
        "of WANDB_DIR",
    )
    assert settings.files_dir == run.dir and settings.start_method is None


def test_a_second_init_returns_the_first_run_unless_reinit_asks_for_another(
    wandb: ModuleType,
) -> None:
    first = wandb.init(config={"a": 1})
    for reinit in (None, False, "default", "return_previous"):
        assert wandb.init(config={"a": 2, "b": 3}, reinit=reinit) is first
    assert dict(wandb.config) == {"a": 1}
    beside = wandb.init(config={"a": 4}, reinit="create_new")
    assert wandb.run is first and dict(beside.config) == {"a": 4}
    beside.finish()
    assert wandb.run is first
    with pytest.raises(wandb.errors.UsageError, match="return_previous"):
        wandb.init(reinit="allow")
    second = wandb.init(config={"a": 5}, reinit=True)
    assert wandb.run is second is not first and dict(wandb.config) == {"a": 5}
    second.finish()
    assert wandb.run is None and wandb.init() is not second


# A script's calls, and the summary that W&B's package 0.31 has of them.
@pytest.mark.parametrize(
    ("calls", "summary", "last"),
    [
        (["set 0.2", "define max", "log 0.9", "log 0.7"], {"max": 0.9}, 0.7),
        (["define max", "set 0.2", "log 0.9", "log 0.7"], 0.7, 0.7),
        (["define max", "log 0.9", "set 0.2", "log 0.7"], 0.7, 0.7),
        (["define max", "log 0.9", "log 0.7", "set 0.2"], 0.2, 0.2),
        (["set 0.2", "log 0.9", "log 0.7"], 0.7, 0.7),
        (["define none", "set 0.2", "log 0.9", "log 0.7"], None, 0.7),
        (["log 0.9", "set 0.2", "define max", "log 0.7"], {"max": 0.7}, 0.7),
    ],
)
def test_what_is_set_before_a_value_is_logged_is_not_the_last_value(
    wandb: ModuleType, calls: list[str], summary: object, last: float
) -> None:
    run = wandb.init()
    for call in calls:
        verb, _, word = call.partition(" ")
        if verb == "set":
            run.summary["acc"] = float(word)
        elif verb == "define":
            run.define_metric("acc", summary=word)
        else:
            run.log({"acc": float(word)})
    found = run.summary.get("acc")
    assert (dict(found.items()) if hasattr(found, "items") else found) == summary
    wandb.finish()
    assert [values["acc"] for _, values in wandb.reports if "acc" in values][-1] == last


def test_a_summary_that_wandb_lacks_is_refused(wandb: ModuleType) -> None:
    run = wandb.init()
    run.define_metric("acc", summary="copy,best", goal="maximize")  # of older versions
    with pytest.raises(wandb.Error, match="worst"):
        run.define_metric("acc", summary="worst")


def test_the_steps_of_a_second_run_follow_those_of_the_first(wandb: ModuleType) -> None:
    first = wandb.init()
    first.define_metric("a", summary="max")
    for step in (0, 3):
        first.log({"a": 1.0}, step=step)
    second = wandb.init(reinit=True)
    for step in (0, 3):
        second.log({"a": 2.0}, step=step)
    second.finish()
    wandb.init().log({"a": 3.0})
    wandb.finish()
    assert wandb.reports == [
        (0, {"a": 1.0, "a.max": 1.0}), (3, {"a": 1.0}),
        (4, {"a": 2.0}), (7, {"a": 2.0}), (8, {"a": 3.0}),
    ]  # fmt: skip


def test_numbers_that_a_script_sets_in_the_summary_are_pythons(wandb: ModuleType) -> None:
    run = wandb.init()
    run.summary["a"] = np.float64(0.5)
    run.summary.update({"b": np.int64(3), "c": {"d": np.float32(0.25)}, "e": np.zeros(2)})
    found = [run.summary["a"], run.summary["b"], run.summary["c"]["d"]]
    assert found == [0.5, 3, 0.25] and [*map(type, found)] == [float, int, float]
    assert json.loads(json.dumps(found)) == found


def test_numbers_are_taken_out_of_whatever_holds_one(wandb: ModuleType) -> None:
    class Tensor:
        def __init__(self, *values: float) -> None:
            self.values = values

        def item(self) -> float:
            (value,) = self.values
            return value

    wandb.init().log({"a": Tensor(2), "b": Tensor(1, 2), "c": True, "d": "4", "e": None, "f": 7})
    assert wandb.reports == [(0, {"a": 2.0, "c": 1.0, "f": 7.0})]


def test_before_a_run_there_is_nothing_and_unknown_names_say_what_helps(wandb: ModuleType) -> None:
    assert wandb.run is None
    for line in (lambda: wandb.log({}), lambda: wandb.config.lr, lambda: wandb.summary["a"]):
        with pytest.raises(wandb.errors.Error, match=r"You must call wandb\.init\(\) before"):
            line()
    for line in (
        lambda: wandb.launch, lambda: wandb.init().beta, lambda: wandb.util.x, lambda: wandb.plot.x,
        lambda: wandb.Image(1).nonsense, lambda: wandb.sdk.launch,
    ):  # fmt: skip
        with pytest.raises(AttributeError, match="write `wandb: real`"):
            line()
    config = wandb.run.config
    config.update({"a": 1})
    with pytest.raises(wandb.sdk.lib.config_util.ConfigError, match='change value of key "a"'):
        config.a = 2
    config.update({"a": 2}, allow_val_change=True)
    assert config["a"] == config.a == 2 and "a" in config and dict(config) == {"a": 2}


def test_ranks_but_the_first_report_nothing(wandb: ModuleType, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    wandb.init().log({"a": 1})
    assert wandb.reports == []


def drops(wandb: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """What the worker hears of dropped values: the name, the reason, if it is of the process."""
    found: list[tuple[str, str, bool]] = []

    def note(names, why: str, *, of_process: bool = False) -> None:
        found.extend((name, why, of_process) for name in names)

    monkeypatch.setattr(sys.modules["wandb._history"], "note_dropped", note)
    monkeypatch.setattr(sys.modules["wandb._transport"], "note_dropped", note)
    return found


@pytest.mark.parametrize(
    ("value", "step", "why"),
    [
        (0.5, 3, "step 3 is below 5"),
        (0.5, -1, "step -1 is below 5"),
        (0.5, 2**63, "2**53"),
        (0.5, 2**53, "2**53"),
        ("0.5", None, "'0.5' is a text"),
        (None, None, "None is not a number"),
        (10**400, None, "too large"),
        pytest.param(-(10**5000), None, "too large", id="more digits than Python prints"),
        ([0.5], None, "list"),
        (np.zeros(2), None, "(2,)"),
        (1j, None, "complex"),
        (True, None, ""),
        (np.float32(0.5), 5, ""),
        (np.array([0.5]), None, ""),
        (np.int64(7), None, ""),
        (10**300, None, ""),
        (math.nan, None, ""),
    ],
)
def test_a_value_that_is_dropped_is_named_with_the_reason(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch, value: object, step: int | None, why: str
) -> None:
    found = drops(wandb, monkeypatch)
    run = wandb.init()
    run.log({"x": 1}, step=5)
    run.log({"loss [val]": value}, step=step)
    run.log({"later": 1})
    wandb.finish()
    reported = [name for _, values in wandb.reports for name in values]
    assert reported == ["x", *(["loss _val_"] if not why else []), "later"]
    assert [(name, of_process) for name, _, of_process in found] == [("loss _val_", False)][
        : len(why)
    ]
    assert all(why in reason for _, reason, _ in found)


def test_values_that_no_run_reports_are_named_with_the_reason(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = drops(wandb, monkeypatch)
    wandb.init(mode="disabled").log({"a": 1})
    wandb.finish()
    run = wandb.init()
    run.summary["b"] = "0.5"
    run.log_at("c", 0.5, 2**53)
    monkeypatch.setenv("RANK", "1")
    run.log({"d": 1})
    assert [(name, of_process) for name, _, of_process in found] == [
        ("a", True), ("b", False), ("c", False), ("d", True),
    ]  # fmt: skip
    assert wandb.reports == [] and "rank 1" in found[-1][1]


def test_a_process_without_the_runs_id_has_a_run_of_its_own(wandb: ModuleType, monkeypatch) -> None:
    monkeypatch.setenv("HPQ_TRIAL_ID", "s/1")
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    wandb.init().log({"a": 1})
    assert wandb.reports == [] and wandb.run.sweep_id is None
    wandb.finish()
    monkeypatch.setenv("WANDB_RUN_ID", "s-1")
    assert wandb.init().id == "s-1"
    wandb.log({"a": 1})
    assert wandb.reports == [(0, {"a": 1.0})]


@pytest.mark.parametrize("way", ["init", "patch", "patch after init"])
def test_what_is_written_for_tensorboard_is_reported_as_well(
    wandb, monkeypatch, tmp_path: Path, way
) -> None:
    """The script imports the writer after `init`."""
    folder = tmp_path / "site" / "tensorboardX"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "writer.py").write_text(
        "class SummaryWriter:\n"
        "    written = []\n"
        "    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):\n"
        "        self.written.append((tag, scalar_value, global_step))\n"
    )
    for name in ("tensorboardX", "tensorboardX.writer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.syspath_prepend(str(folder.parent))
    if way == "patch":
        wandb.tensorboard.patch(root_logdir="runs")
    wandb.init(sync_tensorboard=way == "init")
    if way == "patch after init":
        wandb.tensorboard.patch(root_logdir="runs")
    writer = importlib.import_module("tensorboardX.writer").SummaryWriter()
    writer.add_scalar("charts/return", 5, 70)
    wandb.finish()
    writer.add_scalar("charts/return", 6, 80)
    assert wandb.reports == [(70, {"charts/return": 5.0})]
    assert writer.written == [("charts/return", 5, 70), ("charts/return", 6, 80)]
    for name in ("tensorboardX", "tensorboardX.writer"):
        monkeypatch.delitem(sys.modules, name)


def test_an_artifact_that_was_logged_is_used_by_its_version_or_alias(
    wandb: ModuleType, tmp_path: Path
) -> None:
    run = wandb.init()
    for text, aliases in (("one", ["best", "x"]), ("two", ["x"]), ("three", None)):
        artifact = wandb.Artifact("model", type="net", metadata={"said": text})
        with artifact.new_file("a/b.txt") as file:
            file.write(text)
        if text == "two":
            (tmp_path / "more.txt").write_text("more")
            artifact.add_file(str(tmp_path / "more.txt"))
        run.log_artifact(artifact, aliases=aliases)
    for name, said, version in [
        ("model", "three", "v2"), ("me/demo/model:latest", "three", "v2"),
        ("model:v0", "one", "v0"), ("model:best", "one", "v0"), ("model:x", "two", "v1"),
    ]:  # fmt: skip
        used = run.use_artifact(name, type="net")
        assert (used.version, used.metadata, used.type) == (version, {"said": said}, "net")
        assert Path(used.download(), "a/b.txt").read_text() == said
        assert Path(used.download(tmp_path / version), "a/b.txt").read_text() == said
        assert Path(used.get_path("a/b.txt").download(tmp_path / "one")).read_text() == said
    assert Path(run.use_model("model")).read_text() == "three"
    two = run.use_artifact("model:v1")
    assert [(f.name, f.size) for f in two.files()] == [("a/b.txt", 3), ("more.txt", 4)]
    assert (Path(run.use_model("model:v1")) / "more.txt").exists()
    kept = sorted(p.name for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert kept == ["b.txt", "model_artifact.json"], "the latest version alone"
    for wrong, error in [
        (lambda: two.file(), ValueError), (lambda: two.get_entry("c"), KeyError),
        (lambda: two.get_entry("../../etc/passwd"), KeyError),
        (lambda: two.get_entry(Path(two.download(), "a/b.txt")), KeyError),
        (lambda: wandb.Artifact("model/b", "t"), ValueError),
        (lambda: run.use_artifact("model:v3"), wandb.CommError),
        (lambda: run.use_artifact("model:y"), wandb.CommError),
        (lambda: run.use_artifact("me/demo/data:latest"), wandb.CommError),
    ]:  # fmt: skip
        with pytest.raises(error, match=r"hpq|model"):
            wrong()


@pytest.fixture
def trials(wandb: ModuleType, tmp_path: Path, monkeypatch) -> SimpleNamespace:
    """Two trials on one machine: the first logs an artifact of two files, the second uses it."""
    monkeypatch.setenv("HPQ_REPORT", "unused")
    monkeypatch.setenv("HPQ_SWEEP_ID", "s-00000")
    files = sys.modules["wandb._files"]

    def log(text: str) -> None:
        monkeypatch.setenv("HPQ_OUT", str(tmp_path / "s-00000.1.1/out"))
        files.out().mkdir(parents=True, exist_ok=True)
        artifact = wandb.Artifact("model", "net", metadata={"said": text})
        for name in ("a", "b"):
            with artifact.new_file(name) as file:
                file.write(text)
        artifact._log()

    def use() -> object:
        monkeypatch.setenv("HPQ_OUT", str(tmp_path / "s-00000.2.1/out"))
        files.logged.clear()  # another process
        return sys.modules["wandb._artifacts"].find("model:latest")

    return SimpleNamespace(log=log, use=use)


@pytest.mark.parametrize(
    "operation", ["shutil.copystat 1", "shutil.copystat 2", "os.replace 1", "os.replace 2"]
)
def test_an_artifact_whose_trial_is_killed_while_it_logs_is_whole_or_not_found(
    wandb: ModuleType, trials, monkeypatch, operation: str
) -> None:
    trials.log("one")
    called, last = operation.split()
    calls: list[object] = []
    plain = operator.attrgetter(called.partition(".")[2])(sys.modules[called.partition(".")[0]])

    def killed(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == int(last):
            raise KeyboardInterrupt
        return plain(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(called, killed)
        with suppress(KeyboardInterrupt):
            trials.log("two")
    try:
        used = trials.use()
        said = used.metadata["said"]
        found = {
            entry.path: Path(used.download(), entry.path).read_text() for entry in used.files()
        }
    except wandb.CommError:
        return
    assert found == {"a": said, "b": said}


def test_the_description_of_an_artifact_names_no_folder(
    wandb: ModuleType, trials, tmp_path: Path
) -> None:
    """Any client of Redis may name the file that is read as the description."""
    trials.log("one")
    (about,) = tmp_path.rglob("*_artifact.json")
    forged = {"_folder": str(tmp_path), "name": "other", "_fetch": None}
    about.write_text(json.dumps(json.loads(about.read_text()) | forged))
    used = trials.use()
    assert used.name == "model" and {entry.path for entry in used.files()} == {"a", "b"}


@pytest.mark.parametrize("when", ["before it is copied", "while it is copied", "it is removed"])
def test_an_artifact_that_its_trial_replaces_while_it_is_used_is_an_error_that_says_so(
    wandb: ModuleType, trials, monkeypatch, when: str
) -> None:
    trials.log("one")
    used, copytree = trials.use(), shutil.copytree

    def late(source: Path, *args: object, **kwargs: object) -> None:
        copytree(source, *args, **kwargs)
        with monkeypatch.context() as inner:
            inner.setattr(shutil, "copytree", copytree)
            trials.log("two")

    if when == "it is removed":
        shutil.rmtree(sys.modules["wandb._files"].out().parents[1] / "s-00000.1.1")
    elif when == "before it is copied":
        trials.log("two")
    else:
        monkeypatch.setattr(shutil, "copytree", late)
    with pytest.raises(wandb.CommError, match="use_artifact"):
        used.download()
    if when != "it is removed":
        monkeypatch.setattr(shutil, "copytree", copytree)
        assert Path(trials.use().download(), "b").read_text() == "two"


def test_an_artifact_in_a_store_leads_to_no_other_files(
    wandb: ModuleType, trials, tmp_path, monkeypatch
) -> None:
    """Another user of a store could have a trial read, and log again, files that are private."""
    (private := tmp_path / "private").mkdir()
    (private / "key").write_text("private")
    monkeypatch.setenv("HPQ_STORE", str(tmp_path / "store"))
    kept = tmp_path / "store/hpq/s-00000/1/1-a/artifacts/artifacts"
    kept.mkdir(parents=True)
    about = {"type": "net", "description": None, "metadata": {}, "aliases": []}
    described = kept / "model_artifact.json"
    described.write_text(json.dumps({**about, "_folder": str(private)}))
    (kept / "model").mkdir()
    (kept / "model" / "a").write_text("own")
    (kept / "model" / "link").symlink_to(private / "key")
    (kept / "model" / "folder").symlink_to(private)
    assert sorted(path.name for path in Path(trials.use().download()).rglob("*")) == ["a"]
    shutil.rmtree(kept / "model")
    (kept / "model").symlink_to(private)
    with pytest.raises(wandb.CommError):
        trials.use()
    (kept / "model").unlink()
    (tmp_path / "store/hpq/s-00000/2").symlink_to(private)
    shutil.move(str(kept.parents[1]), private / "1-a")
    (private / "1-a" / "artifacts" / "artifacts" / "model").mkdir()
    with pytest.raises(wandb.CommError):
        trials.use()


NAMES = """
    catboost.WandbCallback env.ENTITY errors.CommError keras.WandbCallback
    lightgbm.wandb_callback plot.bar
    sdk.artifacts.Artifact sdk.lib.RunDisabled sdk.lib.config_util.ConfigError
    sdk.wandb_config.Config sdk.wandb_run.Run sdk.wandb_summary.Summary util.generate_id
    wandb_run.Run xgboost.WandbCallback integration.keras.WandbMetricsLogger
    integration.lightgbm.wandb_callback integration.sb3.WandbCallback
    integration.xgboost.WandbCallback integration.lightning.fabric.WandbLogger tensorboard.patch
""".split()
LIBRARIES = {
    "keras/__init__.py": "from . import callbacks",
    "lightning/pytorch/loggers.py": "class WandbLogger: pass",
    "keras/callbacks.py": "class Callback: pass\nclass ModelCheckpoint: pass",
    "xgboost/__init__.py": "from . import callback",
    "xgboost/callback.py": "class TrainingCallback: pass",
    "stable_baselines3/common/callbacks.py": "class BaseCallback: pass",
}


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The base classes of four libraries, in a folder on PYTHONPATH."""
    folder = tmp_path / "libraries"
    for name, text in LIBRARIES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{PLACE}:{folder}")
    return folder


def test_lightgbms_callback_counts_on_in_a_second_training(wandb: ModuleType) -> None:
    lightgbm = importlib.import_module("wandb.lightgbm")
    wandb.init(config={"lr": 0.1})
    for value in (0.5, 0.7):
        callback = lightgbm.wandb_callback()
        for iteration in range(2):
            results = [("valid", "l2", value - iteration / 10, False)]
            results += [("cv_agg", "valid auc", 0.5, True, 0.1)]
            callback(
                SimpleNamespace(
                    iteration=iteration,
                    begin_iteration=0,
                    params={"depth": 3},
                    evaluation_result_list=results,
                )
            )
    assert dict(wandb.config) == {"lr": 0.1, "depth": 3}
    of_cv = {"valid_auc-mean": 0.5, "valid_auc-stdv": 0.1}
    assert [(step, values["valid_l2"], values["iteration"]) for step, values in wandb.reports] == [
        (0, 0.5, 0), (1, 0.4, 1), (2, 0.7, 0), (3, 0.6, 1),
    ]  # fmt: skip
    assert all(values.items() >= of_cv.items() for _, values in wandb.reports)
    assert dict(wandb.summary["valid_l2"].items()) == {"min": 0.4}
    model = SimpleNamespace(
        best_iteration=1,
        best_score={"valid": {"l2": np.float64(0.4)}},
        feature_name=lambda: ["a"],
        feature_importance=lambda: np.array([2]),
    )
    lightgbm.log_summary(model)
    assert wandb.summary["best_score"]["valid"]["l2"] == 0.4
    wandb.finish()
    assert list(Path("out/media/table").glob("Feature Importance_*"))


def test_xgboosts_callback_has_the_best_score_the_config_and_the_importances(
    wandb: ModuleType, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(libraries))
    monkeypatch.delitem(sys.modules, "xgboost", raising=False)
    xgboost = importlib.import_module("wandb.xgboost")
    with pytest.raises(wandb.Error, match=r"wandb\.init"):
        xgboost.WandbCallback()
    wandb.init()
    found = {"best_score": "0.25", "best_iteration": "1"}
    model = SimpleNamespace(
        save_config=lambda: '{"learner": {"depth": "3"}}',
        save_model=lambda path: Path(path).write_text("m"),
        get_score=lambda importance_type: {"f0": 2.0},
        attr=found.get,
    )
    Path(wandb.run.dir).mkdir()
    callback = xgboost.WandbCallback(log_model=True)
    callback.before_training(model)
    for epoch, value in enumerate((0.5, 0.25, 0.75)):
        callback.after_iteration(model, epoch, {"valid": {"logloss": [value], "x": [1]}})
    callback.after_training(model)
    assert wandb.config["learner"] == {"depth": "3"}
    assert dict(wandb.summary["valid-logloss"].items()) == {"min": 0.25}
    assert (wandb.summary["best_score"], wandb.summary["best_iteration"]) == (0.25, 1)
    wandb.finish()
    assert wandb.reports[0][1] == {
        "valid-logloss": 0.5, "valid-logloss.min": 0.5, "valid-x": 1.0, "epoch": 0.0,
    }  # fmt: skip
    assert list(Path("out/artifacts").glob("*_model.json"))
    assert list(Path("out/media/table").glob("Feature Importance_*"))
    for name in [n for n in sys.modules if n.partition(".")[0] == "xgboost"]:
        del sys.modules[name]


def python(script: str) -> subprocess.CompletedProcess[str]:
    """-S hides what is installed, so that the shim has the standard library only."""
    return subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True)


EACH_WAY = """
import importlib.util, sys
for name in {names}:
    module, _, attribute = f"wandb.{{name}}".rpartition(".")
    for way in (
        f"import {{module}}; {{module}}.{{attribute}}",
        f"import {{module}} as m; m.{{attribute}}",
        f"from {{module}} import {{attribute}}",
        f"import wandb; assert importlib.util.find_spec('{{module}}')",
    ):
        for old in [n for n in sys.modules if n.partition(".")[0] == "wandb"]:
            del sys.modules[old]
        print(way, file=sys.stderr)
        exec(way)
"""


def test_wandbs_own_modules_can_be_imported_in_each_way(libraries: Path) -> None:
    done = python(EACH_WAY.format(names=NAMES))
    assert done.returncode == 0, done.stderr


def test_importing_wandb_imports_no_library(libraries: Path) -> None:
    done = python("import sys, wandb\nassert not {'keras', 'xgboost', 'yaml'} & {*sys.modules}")
    assert done.returncode == 0, done.stderr


def test_a_class_has_one_home_so_a_pickle_of_it_loads_in_another_process(libraries: Path) -> None:
    made = python(
        "import pickle, sys\nfrom wandb.keras import WandbCallback\nimport wandb\n"
        "from wandb.integration.keras import WandbCallback as same\nassert same is WandbCallback\n"
        "table = wandb.Table(columns=['a'], data=[[1]])\n"
        "error = wandb.sdk.lib.config_util.ConfigError('x')\n"
        "print(pickle.dumps([WandbCallback(), table, error]).hex())"
    )
    assert made.returncode == 0, made.stderr
    done = python(
        f"import pickle\nfound = pickle.loads(bytes.fromhex('{made.stdout.strip()}'))\n"
        "import wandb\ncallback, table, error = found\nassert table.data == [[1]]\n"
        "assert isinstance(table, wandb.Table)\n"
        "assert isinstance(error, wandb.errors.ConfigError)\n"
        "assert type(callback) is wandb.keras.WandbCallback"
    )
    assert done.returncode == 0, done.stderr


def test_without_its_library_an_integration_cannot_be_imported(wandb: ModuleType) -> None:
    for name in ("wandb.integration.sb3", "wandb.sb3"):
        with pytest.raises(ImportError):
            importlib.import_module(name)
    assert not hasattr(wandb, "nonsense")  # once wandb.integration is imported, too


def test_a_sweep_that_no_worker_claims_is_running_in_its_words(wandb: ModuleType) -> None:
    data = {"id": "s-00000", "name": "s", "owner": "ada", "spec": {}, "state": "waiting"}
    sweep = importlib.import_module("wandb._public_api").ApiSweep
    assert sweep({**data, "open_ended": False, "planned": 3}).state == "RUNNING"
