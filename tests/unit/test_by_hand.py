"""Training code run from the shell: `python -P -m worker.by_hand`, and the shipped trainers."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from subprocess import run

import pytest

from hpq.hyperparams import SHIPPED
from hpq.trial import Json
from worker.trainers import by_hand
from worker.trainers.by_hand import pair
from worker.trainers.context import TrialContext

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from worker.trainers.context import BadParams, Diverged

def train(params, trial):
    kept = trial.checkpoint_dir / "at"
    before = int(kept.read_text()) if kept.exists() else 0
    kept.write_text(str(before + 1))
    trial.report({"runs": before + 1, "rate": params.get("rate", 0)})

def diverges(params, trial):
    raise Diverged("epoch 1: train/loss is nan")

def refuses(params, trial):
    raise BadParams("rate: 7 is too much")

def is_too_large(params, trial):
    raise MemoryError("no room")

def breaks(params, trial):
    raise KeyError("rate")

something = 5
"""


def ran(folder: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    (folder / "mine.py").write_text(CODE, "utf-8")
    (folder / "needs.py").write_text("import nowhere_to_be_found\n", "utf-8")
    environ = {**os.environ, "HPQ_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, "-P", "-m", "worker.by_hand", *words]
    done = run(command, cwd=folder, env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_second_run_by_hand_does_not_go_on_from_the_first(tmp_path: Path) -> None:
    assert ran(tmp_path, "mine:train", "--set", "rate=1") == (0, "runs=1 rate=1\n", "")
    assert ran(tmp_path, "mine:train", "--set", "rate=2") == (0, "runs=1 rate=2\n", "")
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"mine.py", "needs.py", "home", "__pycache__"}


def test_a_checkpoint_that_is_kept_by_name_is_gone_on_from_and_said(tmp_path: Path) -> None:
    words = "mine:train", "--checkpoint", "kept"
    assert ran(tmp_path, *words) == (0, "runs=1 rate=0\n", "")
    said = "--checkpoint kept: not empty, the trainer may go on from it\n"
    assert ran(tmp_path, *words) == (0, "runs=2 rate=0\n", said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["mine:diverges"], 1, "epoch 1: train/loss is nan"),
        (["mine:refuses"], 2, "rate: 7 is too much"),
        (["mine:is_too_large"], 1, "MemoryError: no room; a smaller batch_size may help"),
        (["mine"], 2, "mine: give MODULE:FUNCTION, as train:train"),
        (["mine:"], 2, "mine:: give MODULE:FUNCTION, as train:train"),
        (["mine:nothing"], 2, "mine:nothing: mine has no function nothing"),
        (["mine:something"], 2, "mine:something: mine has no function something"),
        (["nothing:train"], 2, "nothing:train: there is no module nothing in "),
        (["mine:train", "--checkpoint", "mine.py"], 2, "--checkpoint mine.py: File exists"),
    ],
)
def test_what_hpq_knows_is_one_line_and_an_exit_code(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    got, _, err = ran(tmp_path, *words)
    assert (got, err.count("\n")) == (code, 1)
    assert err.startswith(said)


def test_a_seed_that_is_no_number_is_said(tmp_path: Path) -> None:
    said = "HPQ_SEED: 'x' is no whole number\n"
    assert ran(tmp_path, "mine:train", HPQ_SEED="x") == (2, "", said)


@pytest.mark.parametrize(
    ("trainer", "said"),
    [("mine:breaks", "KeyError: 'rate'"), ("needs:train", "No module named 'nowhere_to_be_found'")],
)
def test_a_mistake_in_training_code_keeps_its_traceback(
    tmp_path: Path, trainer: str, said: str
) -> None:
    code, _, err = ran(tmp_path, trainer)
    assert code == 1
    assert err.startswith("Traceback") and err.strip().endswith(said)


@pytest.mark.parametrize("text", ["hidden", "=3", ""])
def test_a_parameter_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"{text!r} is not NAME=VALUE")):
        pair(text)


def test_a_parameter_without_a_value_is_refused(tmp_path: Path) -> None:
    code, out, err = ran(tmp_path, "mine:train", "--set", "hidden")
    assert (code, out) == (2, "")
    assert err.endswith("argument --set: 'hidden' is not NAME=VALUE\n")


@pytest.mark.torch
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_trainer_lists_its_parameters_with_limits_and_defaults(name: str) -> None:
    pytest.importorskip("torch")
    spec = SHIPPED[name]
    words = [sys.executable, "-m", spec.module, "-h"]
    shown = run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for parameter, one in spec.params.items():
        (line,) = (line for line in shown if line.split()[:1] == [parameter])
        assert line.split(maxsplit=2)[1:] == [f"{one.default}", one.allowed]
        assert parameter != "seed" or line.endswith("a whole number from 0 to 2147483647")


def test_a_shipped_trainer_by_hand_keeps_data_where_workers_do_and_says_a_full_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(params: dict[str, Json], trial: TrialContext) -> None:
        print(trial.cache)
        raise RuntimeError("CUDA error:\n out of memory")

    monkeypatch.setattr(sys, "argv", ["x"])
    monkeypatch.setenv("HPQ_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        by_hand.main("x", train)  # type: ignore[arg-type]
    assert caught.value.code == 1
    said = "RuntimeError: CUDA error: out of memory; a smaller batch_size may help\n"
    assert capsys.readouterr() == (f"{tmp_path / 'cache'}\n", said)
