"""hpq's wandb shim accepts the arguments of wandb; steps have W&B's meaning."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hpq.reporting import METRIC_NAME
from tests.support.constants import DATA, ROOT

# The names and parameters of the package whose version stands in the file.
REAL = json.loads((DATA / "wandb_signatures.json").read_text("utf-8"))
PLACE = ROOT / "hpq" / "wandb_shim" / "stub"
# What makes no sense without a W&B server or a notebook; a script hears so.
LEFT_OUT = {"ArtifactTTL", "EvalTable", "box3d"}


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A fresh shim, as a program imports it; its reports are in `.reports`."""
    for name in [n for n in sys.modules if n == "wandb" or n.startswith("wandb.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(PLACE))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPQ_OUT", str(tmp_path / "out"))
    for name in ("HPQ_PARAMS", "HPQ_TRIAL_ID", "WANDB_MODE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    importlib.invalidate_caches()
    module = importlib.import_module("wandb")
    assert module.__file__ == str(PLACE / "wandb" / "__init__.py")
    reports: list[tuple[int, dict[str, float]]] = []
    sender = sys.modules["wandb._transport"]
    monkeypatch.setattr(sender, "report", lambda v, step: reports.append((step, dict(v))))
    monkeypatch.setattr(sys.modules["wandb._api"].atexit, "register", lambda *a: None)
    module.reports = reports
    yield module
    for name in [n for n in sys.modules if n == "wandb" or n.startswith("wandb.")]:
        del sys.modules[name]


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


@pytest.mark.parametrize("name", ["fastai", "integration.catboost", "apis", "sdk.data_types"])
def test_a_module_that_the_stand_in_lacks_names_the_stand_in(wandb: ModuleType, name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"wandb.{name}: hpq's stand-in.*wandb: real"):
        importlib.import_module(f"wandb.{name}")
    assert not hasattr(wandb, name.partition(".")[0]) or "." in name


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


def test_a_metric_may_have_another_axis_and_keep_its_extremes(wandb: ModuleType) -> None:
    run = wandb.init()
    run.define_metric("epoch")
    run.define_metric("val/*", step_metric="epoch", summary="min,max")
    for epoch, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        wandb.log({"val/loss": loss, "epoch": epoch, "batch": 1})
    seen = [(step, v["val/loss"]) for step, v in wandb.reports if "val/loss" in v]
    assert seen == [(10, 3.0), (20, 1.0), (30, 2.0)]
    assert [v["val/loss.min"] for _, v in wandb.reports if "val/loss.min" in v] == [3.0, 1.0]
    assert [s for s, v in wandb.reports if "batch" in v] == [0, 1, 2]
    assert [(s, v["epoch"]) for s, v in wandb.reports if "epoch" in v] == [
        (10, 10),
        (20, 20),
        (30, 30),
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
    for line in (lambda: wandb.launch, lambda: wandb.init().beta, lambda: wandb.util.x):
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


def test_what_is_written_for_tensorboard_is_reported_as_well(wandb, monkeypatch) -> None:
    class SummaryWriter:
        def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
            written.append((tag, scalar_value, global_step))

    written: list[object] = []
    library, writer = ModuleType("tensorboardX"), ModuleType("tensorboardX.writer")
    writer.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", library)
    monkeypatch.setitem(sys.modules, "tensorboardX.writer", writer)
    wandb.init(sync_tensorboard=True)
    SummaryWriter().add_scalar("charts/return", 5, 70)
    wandb.finish()
    SummaryWriter().add_scalar("charts/return", 6, 80)
    assert wandb.reports == [(70, {"charts/return": 5.0})]
    assert written == [("charts/return", 5, 70), ("charts/return", 6, 80)]


NAMES = """
    env.ENTITY errors.CommError keras.WandbCallback lightgbm.wandb_callback plot.bar
    sdk.artifacts.Artifact sdk.lib.RunDisabled sdk.lib.config_util.ConfigError
    sdk.wandb_config.Config sdk.wandb_run.Run sdk.wandb_summary.Summary util.generate_id
    wandb_run.Run xgboost.WandbCallback integration.keras.WandbMetricsLogger
    integration.lightgbm.wandb_callback integration.sb3.WandbCallback
    integration.xgboost.WandbCallback
""".split()
LIBRARIES = {
    "keras/__init__.py": "from . import callbacks",
    "keras/callbacks.py": "class Callback: pass\nclass ModelCheckpoint: pass",
    "xgboost/__init__.py": "from . import callback",
    "xgboost/callback.py": "class TrainingCallback: pass",
    "stable_baselines3/common/callbacks.py": "class BaseCallback: pass",
}


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The base classes of Keras, XGBoost and stable-baselines3, in a folder on PYTHONPATH."""
    folder = tmp_path / "libraries"
    for name, text in LIBRARIES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{PLACE}:{folder}")
    return folder


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
