"""Training code run from the shell: `python -m hpq.train`, with own and built-in trainers."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from subprocess import PIPE, Popen, run
from typing import Any

import pytest

from hpq.domain.trainer_specs import BUILT_IN
from hpq_worker.train import pair
from tests.support.constants import ROOT

CODE = """
import os, signal, time

from hpq import BadParams, Diverged

def train(params, trial):
    kept = trial.checkpoint_dir / "at"
    before = int(kept.read_text()) if kept.exists() else 0
    kept.write_text(str(before + 1))
    trial.report({"runs": before + 1, "rate": params.get("rate", 0)})

def diverges(params, trial):
    raise Diverged("epoch 1: train/loss is nan")

def refuses(params, trial):
    raise BadParams("rate: 7 ")

def is_too_large(params, trial):
    raise MemoryError("no room")

def fills_the_device(params, trial):
    print(trial.cache)
    raise RuntimeError("CUDA error:\\n out of memory")

def breaks(params, trial):
    raise KeyError("rate")

def waits(params, trial):
    trial.report({"rate": trial.checkpoint_s}, step=1)
    while not trial.should_stop:
        time.sleep(0.01)
    (trial.checkpoint_dir / "at").write_text("saved")

def never_asks(params, trial):
    try:
        print(trial.checkpoint_dir, flush=True)
        while True:
            time.sleep(0.01)
    except BaseException as error:
        print(type(error).__name__, flush=True)
        raise

def forks(params, trial):
    child = os.fork()
    if not child:
        print("child", flush=True)
        while True:
            time.sleep(0.01)
    while not trial.should_stop:
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)
    print(os.waitpid(child, 0)[1] == signal.SIGTERM)

something = 5
"""
LOOPED = """
from hpq_worker.trainers import digits

def train(params, trial):
    digits.train({"seed": 0, "epochs": 10000}, trial)
"""


BY_HAND = "-m", "hpq.train"


def prepared(folder: Path, environ: dict[str, str]) -> dict[str, Any]:
    (folder / "mine.py").write_text(CODE, "utf-8")
    (folder / "needs.py").write_text("import nowhere_to_be_found\n", "utf-8")
    environ = {**os.environ, "HPQ_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), **environ}
    return {"cwd": folder, "env": environ, "stdout": PIPE, "stderr": PIPE, "text": True}


def ran(folder: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    done = run([sys.executable, *BY_HAND, *words], **prepared(folder, environ))
    return done.returncode, done.stdout, done.stderr


@contextmanager
def begun(folder: Path, *words: str, **environ: str) -> Iterator[tuple[Popen[str], str]]:
    """The process with its first line."""
    command = [sys.executable, *words]
    with Popen(command, **prepared(folder, environ), start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_a_second_run_by_hand_does_not_go_on_from_the_first(tmp_path: Path) -> None:
    assert ran(tmp_path, "mine:train", "--set", "rate=1") == (0, "runs=1 rate=1\n", "")
    assert ran(tmp_path, "mine:train", "--set", "rate=2") == (0, "runs=1 rate=2\n", "")
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"mine.py", "needs.py", "home", "__pycache__"}


def test_a_checkpoint_that_is_kept_by_name_is_gone_on_from_and_said(tmp_path: Path) -> None:
    words = "mine:train", "--checkpoint", "kept"
    assert ran(tmp_path, *words) == (0, "runs=1 rate=0\n", "")
    code, out, err = ran(tmp_path, *words)
    assert (code, out) == (0, "runs=2 rate=0\n") and err.startswith("--checkpoint kept: ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["mine:diverges"], 1, "epoch 1: train/loss is nan"),
        (["mine:refuses"], 2, "rate: 7 "),
        (["mine:is_too_large"], 1, "MemoryError: no room;"),
        (["mine"], 2, "mine: "),
        (["mine:"], 2, "mine:: "),
        (["mine:nothing"], 2, "mine:nothing: "),
        (["mine:something"], 2, "mine:something: "),
        (["nothing:train"], 2, "nothing:train: "),
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
    code, out, err = ran(tmp_path, "mine:train", HPQ_SEED="x")
    assert (code, out) == (2, "") and err.startswith("HPQ_SEED: 'x' ")


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


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_trainer_is_told_to_stop_and_saves_its_checkpoint(
    tmp_path: Path, number: Signals
) -> None:
    words = *BY_HAND, "mine:waits", "--checkpoint", "kept"
    with begun(tmp_path, *words, HPQ_CHECKPOINT_S="7") as (process, first):
        assert first == "step 1 rate=7\n"
        process.send_signal(number)
        out, err = process.communicate()
        assert out == "" and err.startswith(f"{number.name}: ") and err.count("\n") == 1
        assert process.returncode == 128 + number
    assert (tmp_path / "kept" / "at").read_text() == "saved"


def test_a_trainer_that_does_not_ask_is_ended_by_a_second_signal(tmp_path: Path) -> None:
    with begun(tmp_path, *BY_HAND, "mine:never_asks") as (process, folder):
        assert process.stderr is not None
        process.send_signal(SIGINT)
        assert process.stderr.readline().startswith("SIGINT: ")
        process.send_signal(SIGINT)
        assert process.communicate() == ("SystemExit\n", "")
        assert process.returncode == 130
    assert not Path(folder.strip()).exists()


def test_what_a_trainer_forked_leaves_the_interrupt_to_it_and_can_be_ended(tmp_path: Path) -> None:
    with begun(tmp_path, *BY_HAND, "mine:forks") as (process, first):
        assert first == "child\n"
        os.killpg(process.pid, SIGINT)  # as a terminal does
        out, err = process.communicate()
        assert out == "True\n" and err.startswith("SIGINT: ") and err.count("\n") == 1


@pytest.mark.torch
def test_a_loop_by_hand_goes_on_from_where_it_was_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    (tmp_path / "looped.py").write_text(LOOPED, "utf-8")
    environ = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = *BY_HAND, "looped:train", "--checkpoint", "kept"
    with begun(tmp_path, *words, **environ) as (process, first):
        assert first.startswith("step 1 ")
        process.send_signal(SIGINT)
        process.communicate()
        assert process.returncode == 130
    with begun(tmp_path, *words, **environ) as (process, first):
        assert first.startswith("hpq: ") and " epoch " in first


@pytest.mark.torch
def test_an_interrupt_ends_a_built_in_trainer_at_its_next_step(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    words = *BY_HAND, "digits", "--set", "epochs=10000"
    environ = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with begun(tmp_path, *words, **environ) as (process, first):
        assert first.startswith("step 1 ")
        process.send_signal(SIGINT)
        *phases, last = process.communicate()[1].splitlines()
        assert phases == ["loading digits", "epoch 1 of 10000"] and last.startswith("SIGINT: ")
        assert process.returncode == 130


@pytest.mark.parametrize("text", ["hidden", "=3", ""])
def test_a_parameter_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"{text!r} ")):
        pair(text)


def test_a_parameter_without_a_value_is_refused(tmp_path: Path) -> None:
    code, out, err = ran(tmp_path, "mine:train", "--set", "hidden")
    assert (code, out) == (2, "")
    assert "--set: 'hidden'" in err


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_trainer_lists_its_parameters_with_limits_and_defaults(
    tmp_path: Path, name: str
) -> None:
    code, out, _ = ran(tmp_path, name, "-h")
    assert code == 0
    for parameter, one in BUILT_IN[name].params.items():
        (line,) = (line for line in out.splitlines() if line.split()[:1] == [parameter])
        assert line.split(maxsplit=2)[1:] == [f"{one.default}", one.allowed]
        assert parameter != "seed" or line.endswith("2147483647")


def test_a_trainer_by_hand_caches_where_workers_do_and_says_a_full_device(tmp_path: Path) -> None:
    code, out, err = ran(tmp_path, "mine:fills_the_device", HPQ_HOME=str(tmp_path))
    assert (code, out, err.count("\n")) == (1, f"{tmp_path / 'cache'}\n", 1)
    assert err.startswith("RuntimeError: CUDA error: out of memory") and "batch_size" in err
