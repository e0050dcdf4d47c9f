"""`hpq init`: what is read from scripts as people write them, and that the file it gives loads."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from hpq.domain.sweep import Goal
from hpq.errors import UserError
from hpq_producer.scaffold.script import read_script
from hpq_producer.scaffold.template import sweep_file
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import SweepSpec
from tests.support.constants import DEADLINE_S, ROOT
from tests.support.ids import refused

ARGPARSE = """
    import argparse
    LR = 1e-3
    def str2bool(text): return text == "true"
    p = argparse.ArgumentParser()
    p.add_argument("-b", "--batch-size", type=int, default=2 ** 6)
    p.add_argument("--lr", type=float, default=LR)
    p.add_argument("--wd", type=float, default=0.0)
    p.add_argument("--momentum", type=float, default=.9)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--opt", choices=["sgd", "adam"])
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--cosine", action="store_true")
    p.add_argument("--nesterov", action=argparse.BooleanOptionalAction, default=True)
    p.add_argument("--aug", type=str2bool, default=True)
    p.add_argument("--trap", type=bool, default=False)
    p.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    p.add_argument("-x", type=float, default=1.0)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    raise SystemExit("it was run")
"""
WANDB = """
    import wandb
    DEFAULTS = dict(lr=0.01, layers=2, bn=True, sizes=[1, 2])
    wandb.init(project="p", config=DEFAULTS)
    config = wandb.config
    model = Model(config.lr, config["depth"])
    for epoch in range(3):
        print(f"val/loss={1.0}")
        errors = wandb.Table(columns=["row"])
        wandb.log({"epoch": epoch, "train/loss": 1.0, "val/accuracy": 0.5, "errors": errors})
"""


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """The sweep file for a script as its text, and as `plan` loads it."""

    def make(script: str) -> tuple[str, SweepSpec]:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(script))
        text = sweep_file(read_script(path), "train.py")
        (tmp_path / "sweep.yaml").write_text(text)
        return text, load(tmp_path / "sweep.yaml")

    return make


def space(spec: SweepSpec) -> dict[str, Any]:
    """The parameters as W&B's file has them, short: a list of values, or (min, max)."""
    parameters: Any = spec.source["parameters"]
    return {
        name: entry.get("values") or entry.get("value") or (entry["min"], entry["max"])
        for name, entry in parameters.items()
    }


def test_argparse_options_get_a_range_around_their_defaults(made: Any) -> None:
    text, spec = made(ARGPARSE)
    assert space(spec) == {
        "batch-size": [32, 64, 128],
        "lr": (0.0001, 0.01),
        "wd": [0.0, 0.0001, 0.001, 0.01],
        "momentum": [0.8, 0.9, 0.95, 0.99],
        "dropout": (0.0, 0.5),
        "opt": ["sgd", "adam"],
        "layers": (1, 6),
        "cosine": [True, False],
        "no-nesterov": [True, False],
        "aug": ["true", "false"],
    }
    assert "# epochs: {value: 10}" in text and "# seed: {value: 0}" in text
    for name in ("trap", "sizes", "x"):
        assert f"  # {name}: " in text
    assert spec.command[-1] == "${args_no_boolean_flags}"
    assert spec.metric is None and "# metric: {name: val_loss, goal: minimize}" in text


def test_defaults_of_wandb_and_its_metrics_are_taken(made: Any) -> None:
    text, spec = made(WANDB)
    assert space(spec) == {
        "lr": (0.001, 0.1),
        "layers": (1, 4),
        "bn": [True, False],
        "depth": "<fill in>",  # it is read, and nothing says what it is
    }
    assert spec.command == ("${env}", "${interpreter}", "${program}", "${args}")
    assert spec.metric is not None
    assert (spec.metric.name, spec.metric.goal) == ("val/accuracy", Goal.MAXIMIZE)
    assert "# also reported: train/loss\n" in text, "no table, and no line that does not count"


SWEEP = """
    import wandb
    def train():
        with wandb.init() as run:
            wandb.log({"loss": run.config.lr})
    if __name__ == "__main__":
        sweep_config = {"method": "bayes", "metric": {"name": "loss", "goal": "minimize"}}
        parameters = {"lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 1e-1},
                      "opt": {"values": ["adam", "sgd"]}}
        sweep_config["parameters"] = parameters
        parameters.update({"epochs": {"value": 3}})
        sid = wandb.sweep(sweep_config, project="demo")
        wandb.agent(sid, train, count=5)
"""


def test_the_sweep_that_a_script_hands_to_wandb_is_the_file(made: Any) -> None:
    _, spec = made(SWEEP)
    assert space(spec) == {"lr": (1e-5, 0.1), "opt": ["adam", "sgd"], "epochs": 3}
    assert (spec.method, spec.keys.run_cap, spec.keys.program) == ("bayes", 5, "train.py")
    assert spec.metric is not None and spec.metric.name == "loss"
    assert spec.command[-1] == "${args}"
    parser = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
    _, spec = made(SWEEP.replace('"method"', '"program": "other.py", "method"'))
    assert spec.keys.program == "train.py", "the agent calls a function of this script"
    _, spec = made(parser + textwrap.dedent(SWEEP))
    assert spec.command == ("${env}", "${interpreter}", "${program}")


def test_a_sweep_that_is_not_written_down_is_not_made_up(made: Any) -> None:
    for old, new in (
        ('["adam", "sgd"]', "names()"),
        ("parameters.update(", "parameters = dict("),  # which of the two it is nobody knows
        ("parameters = {", "parameters |= {"),
    ):
        _, spec = made(SWEEP.replace(old, new))
        assert space(spec) == {"lr": "<fill in>"}


def test_a_default_of_wandbs_config_that_is_a_mapping_is_nested(made: Any) -> None:
    _, spec = made("""
        import wandb
        wandb.init(config={"lr": 0.1, "optimizer": {"name": "adam", "wd": 0.01}})
    """)
    inner: Any = spec.source["parameters"]
    assert inner["optimizer"] == {"parameters": {
        "name": {"value": "adam"},
        "wd": {"distribution": "log_uniform_values", "min": 0.001, "max": 0.1},
    }}  # fmt: skip


def test_what_only_wandb_has_is_no_option_where_a_parser_would_refuse_it(made: Any) -> None:
    both = "import argparse, wandb\np = argparse.ArgumentParser()\n" + "{}\n" * 3
    lines = "p.add_argument('--lr', type=float, default=0.1)", "wandb.init(config={'wd': 0.01})"
    text, spec = made(both.format(*lines, "args = p.parse_args()"))
    assert list(space(spec)) == ["lr"] and "# wd: {value: 0.01}  # only in wandb.config" in text
    _, spec = made(both.format(*lines, "args, _ = p.parse_known_args()"))
    assert sorted(space(spec)) == ["lr", "wd"]


@pytest.mark.parametrize(
    ("line", "name", "goal"),
    [
        ("print(f'val_loss={x:.3f}')", "val_loss", "minimize"),
        ("print('test_acc=%.3f' % x)", "test_acc", "maximize"),
        ("print(f'epoch={e} train_loss={x} val_loss={y}, acc={z}')", "val_loss", "minimize"),
        ("print('epoch', e, '- loss: {} - val_f1: {:.2f}'.format(x, y))", "val_f1", "maximize"),
        ("print(f'epoch {e} val_time: {x}s, test_loss: {y:,.1f}')", "test_loss", "minimize"),
        ("hpq.report({'val/f1': x, 'train/loss': y}, step=1)", "val/f1", "maximize"),
        ("hpq.report({'val/loss': x, 'val/acc': y, 'val/time': t})", "val/acc", "maximize"),
        (
            "def f():\n    row = {'train/loss': x}\n    row['val/acc'] = y\n    row.update(ms=z)\n"
            "    run.log(row)\nrun.log({'test_acc': a})",
            "val/acc",
            "maximize",
        ),
        ("self.log('val_wer', x)", "val_wer", "minimize"),
        ("trial.report({'quality': x})", "quality", "minimize"),
        ("EarlyStopping(monitor='val_auc')", "val_auc", "maximize"),
        ("wandb.log({'acc': x, 'val_images': [wandb.Image(i) for i in y]})", "acc", "maximize"),
    ],
)
def test_the_metric_is_what_the_script_reports(made: Any, line: str, name: str, goal: str) -> None:
    argument = "p.add_argument('--lr', type=float, default=0.1)\n"
    text, spec = made(argument + "print(f'epoch {e} of {n}')\n" + line)
    assert spec.metric is not None and (spec.metric.name, spec.metric.goal.value) == (name, goal)
    assert ("or maximize" in text) == (name == "quality")


def hpq(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpq_producer", *words], cwd=folder, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def test_init_writes_once_and_plan_takes_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\np.add_argument('--name', required=True)\n"
        "print('val-loss', 0.3)\n"
    )
    first = hpq(tmp_path, "init", "train.py")
    assert (first.returncode, first.stdout) == (0, "sweep.yaml\n")
    assert "! parameters.name.value: <fill in>" in first.stderr
    assert "train.py:5" in first.stderr and "print val-loss=" in first.stderr
    text = (tmp_path / "sweep.yaml").read_text()
    schema = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=file://")
    assert json.loads(Path(unquote(schema)).read_text())["title"] == "hpq sweep file"
    assert hpq(tmp_path, "plan", "sweep.yaml").returncode == 0
    again = hpq(tmp_path, "init", "train.py")
    refused(again, "file-exists", "sweep.yaml")
    assert (tmp_path / "sweep.yaml").read_text() == text
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["sweep.yaml", "train.py"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "train.py:1:7: not Python"),
        ("print(1)", "script-without-options"),
        (
            "import click\n@click.command()\n@click.option('--lr')\ndef main(lr): ...",
            "script-without-options",
        ),
        (None, "file-not-found"),
    ],
)
def test_a_script_that_gives_no_file_is_told_in_one_line(
    tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "train.py").write_text(text)
    done = hpq(tmp_path, "init", "train.py")
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "sweep.yaml").exists()


def test_a_script_that_is_not_python_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0\xff")
    with pytest.raises(UserError, match="not Python"):
        read_script(tmp_path / "x")


def test_a_notebook_is_refused_with_the_command_that_makes_a_script_of_it(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text('{"cells": []}')
    refused(hpq(tmp_path, "init", "n.ipynb"), "script-invalid", "jupyter nbconvert --to script")


@pytest.mark.parametrize("how", ["yaml.safe_load(open('conf.yaml'))", "yaml.load(f, Loader=X)"])
def test_a_sweep_that_the_script_loads_from_yaml_is_that_file(tmp_path: Path, how: str) -> None:
    (tmp_path / "conf.yaml").write_text(
        "method: random\nmetric: {name: loss}\nparameters: {lr: {min: 1e-4, max: 0.1}}\n"
    )
    (tmp_path / "train.py").write_text(
        f"import wandb, yaml\nwith open('conf.yaml') as f:\n    conf = {how}\n"
        "sid = wandb.sweep(conf)\nwandb.agent(sid, main, count=3)\n"
    )
    done = hpq(tmp_path, "init", "train.py")
    assert done.returncode == 0, done.stderr
    spec = load(tmp_path / "sweep.yaml")
    assert spec.source["parameters"] == {"lr": {"min": 1e-4, "max": 0.1}} and spec.keys.run_cap == 3
