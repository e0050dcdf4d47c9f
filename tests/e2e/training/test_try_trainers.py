"""`hpq try` with a trainer, its own or a built-in one: no server, checkpoints, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.commands import HPQ, run_hpq
from tests.support.constants import DEADLINE_S
from tests.support.terminal import Pty

CODE = """
import json, os, signal, time

from hpq import BadParams, Diverged

def train(params, trial):
    kept = trial.checkpoint_dir / "at"
    before = int(kept.read_text()) if kept.exists() else 0
    kept.write_text(str(before + 1))
    trial.report({"runs": before + 1})
    print(json.dumps([params, trial.seed]))

def diverges(params, trial):
    raise Diverged("epoch 1: train/loss is nan")

def refuses(params, trial):
    raise BadParams("rate: 7 ")

def breaks(params, trial):
    raise KeyError("rate")

def waits(params, trial):
    trial.report({"rate": trial.checkpoint_s}, step=1)
    while not trial.should_stop:
        time.sleep(0.01)
    (trial.checkpoint_dir / "at").write_text("saved")

def never_asks(params, trial):
    print("began", flush=True)
    try:
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

def loops(params, trial):
    from hpq_worker.trainers import digits
    digits.train({"seed": 0, "epochs": 10000}, trial)

something = 5
"""
SWEEP = "trainer: mine:train\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"


class Place:
    """A directory with training code, and a home in which no server has run."""

    def __init__(self, folder: Path) -> None:
        self.code, self.home = folder / "code", folder / "home"
        self.code.mkdir()
        (self.code / "mine.py").write_text(CODE, "utf-8")
        (self.code / "needs.py").write_text("import nowhere_to_be_found\n", "utf-8")
        (self.code / "sweep.yaml").write_text(SWEEP, "utf-8")
        self.env = {**os.environ, "HPQ_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        self.env["CUDA_VISIBLE_DEVICES"] = ""

    def tries(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `hpq try`."""
        return run_hpq(("try", *words), self.code, self.env | env, DEADLINE_S)

    def on_terminal(self, *words: str, **env: str) -> Pty:
        """Start `hpq try` on a terminal."""
        return Pty(["try", *words], self.code, self.env | env)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("what", ["mine:train", "sweep.yaml"])
def test_a_trainer_and_a_file_need_no_server_and_start_none(place: Place, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        for env in ({"HPQ_REDIS_URL": url}, {}):
            done = place.tries(what, **env)
            assert done.returncode == 0 and "runs=1\n" in done.stdout, done.stderr
        with pytest.raises(BlockingIOError):
            server.accept()
    assert {path.name for path in place.home.iterdir()} <= {"work", "cache"}, "no server's files"
    assert not any((place.home / "work").iterdir()), "nor files of the trial"


def test_a_function_gets_its_parameters_with_their_types_and_a_seed(place: Place) -> None:
    sets = ("a.b=1", "x=1.0", "y='1'", "z={n: [on, null]}", "e=")
    words = [word for one in sets for word in ("--set", one)]
    done = place.tries("mine:train", *words, "--seed", "7")
    params = {"a.b": 1, "x": 1.0, "y": "1", "z": {"n": [True, None]}, "e": ""}
    assert set(done.stdout.splitlines()) == {"runs=1", json.dumps([params, 7])}, done.stderr
    assert "metrics: runs" in done.stderr


def test_checkpoints_that_are_kept_are_resumed_from_and_others_are_gone(place: Place) -> None:
    for _ in range(2):
        assert "runs=1\n" in place.tries("mine:train").stdout
    for runs, said in ((1, 0), (2, 1)):
        done = place.tries("sweep.yaml", "--checkpoint", "kept")
        assert f"runs={runs}\n" in done.stdout
        assert done.stderr.count("--checkpoint kept: not empty") == said
    assert (place.code / "kept" / "at").read_text() == "2"


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ("mine:diverges", "epoch 1: train/loss is nan"),
        ("mine:refuses", "rate: 7"),
        ("mine:trian", "did you mean 'train'?"),
        ("mine:something", "mine has no function 'something'"),
    ],
)
def test_an_error_that_names_its_reason_has_no_traceback(
    place: Place, trainer: str, said: str
) -> None:
    done = place.tries(trainer)
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("trainer", "said"),
    [("mine:breaks", "KeyError: 'rate'"), ("needs:train", "No module named 'nowhere_to_be_found'")],
)
def test_a_mistake_in_training_code_keeps_its_traceback(
    place: Place, trainer: str, said: str
) -> None:
    done = place.tries(trainer)
    assert done.returncode == 1 and done.stdout.startswith("Traceback")
    assert done.stdout.strip().endswith(said)


def test_ctrl_c_stops_a_trainer_at_its_next_step_and_it_saves_its_checkpoint(place: Place) -> None:
    terminal = place.on_terminal("mine:waits", "--checkpoint", "kept", HPQ_CHECKPOINT_S="7")
    terminal.read_until("step 1 rate=7\r\n")
    terminal.type("\x03")
    assert terminal.end() == 130, terminal.seen
    assert "a second Ctrl-C ends it now" in terminal.seen and "interrupted" in terminal.seen
    assert (place.code / "kept" / "at").read_text() == "saved"


def test_sigterm_stops_a_trainer_as_ctrl_c_does(place: Place) -> None:
    with subprocess.Popen(
        [HPQ, "try", "mine:waits", "--checkpoint", "kept"], cwd=place.code, env=place.env,
        stdout=subprocess.PIPE, text=True,
    ) as tried:  # fmt: skip
        assert tried.stdout and tried.stdout.readline() == "step 1 rate=60\n"
        tried.send_signal(signal.SIGTERM)
        assert tried.wait(DEADLINE_S) == 128 + signal.SIGTERM
    assert (place.code / "kept" / "at").read_text() == "saved"


def test_a_second_ctrl_c_interrupts_a_trainer_that_does_not_ask(place: Place) -> None:
    terminal = place.on_terminal("mine:never_asks")
    terminal.read_until("began\r\n")
    terminal.type("\x03")
    terminal.read_until("a second Ctrl-C ends it now")
    terminal.type("\x03")
    assert terminal.end() == 130 and "KeyboardInterrupt" in terminal.seen, terminal.seen
    assert "interrupted" in terminal.seen and "failed" not in terminal.seen, terminal.seen


def test_a_process_that_a_trainer_forked_leaves_ctrl_c_to_it(place: Place) -> None:
    terminal = place.on_terminal("mine:forks")
    terminal.read_until("child\r\n")
    terminal.type("\x03")
    assert terminal.end() == 130, terminal.seen
    assert "True\r\n" in terminal.seen and terminal.seen.count("next step") == 1, terminal.seen


@pytest.mark.torch
@pytest.mark.parametrize("words", [("mine:loops",), ("digits", "--set", "epochs=10000")])
def test_a_loop_goes_on_from_where_ctrl_c_stopped_it(place: Place, words: Sequence[str]) -> None:
    pytest.importorskip("sklearn")
    for seen in ("step 1 ", "hpq: the training continues "):
        terminal = place.on_terminal(*words, "--checkpoint", "kept")
        terminal.read_until(seen)
        terminal.read_until("\r\n")
        terminal.type("\x03")
        assert terminal.end() == 130, terminal.seen


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="/proc, and glibc's malloc")
@pytest.mark.parametrize(("trainer", "is_set"), [("digits", True), ("mine:waits", False)])
def test_only_the_process_of_a_built_in_trainer_keeps_freed_memory(
    place: Place, trainer: str, is_set: bool
) -> None:
    pytest.importorskip("sklearn")
    words = [HPQ, "try", trainer, *(["--set", "epochs=10000"] if is_set else [])]
    with subprocess.Popen(words, cwd=place.code, env=place.env, stdout=subprocess.PIPE) as tried:
        assert tried.stdout and tried.stdout.readline().startswith(b"step 1 ")
        below = psutil.Process(tried.pid).children(recursive=True)
        (runner,) = [one for one in below if "hpq_worker.runner" in one.cmdline()]
        assert ("MALLOC_TRIM_THRESHOLD_" in runner.environ()) is is_set
        tried.send_signal(signal.SIGTERM)
        tried.stdout.read()
