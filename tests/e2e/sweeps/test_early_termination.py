"""Early termination, targets and owners' turns, with real workers, programs and trainers."""

from __future__ import annotations

import json

import pytest

from hpq.domain.trial import TrialState
from tests.support.lab import Lab

PROGRAM = """
    import os, pathlib, signal, sys, time

    def save(*_):
        pathlib.Path(os.environ["HPQ_OUT"], "saved.txt").write_text("in time")
        sys.exit(3)

    signal.signal(signal.SIGTERM, save)
    x, n = int(sys.argv[1].partition("=")[2]), 0
    while x > 1 or n < 3:  # only the first comes to an end by itself
        print(f"loss={x}", flush=True)
        n += 1
        time.sleep(0.01)
"""
TRAINER = """
    import time

    def train(params, trial):
        n = 0
        while params["x"] > 1 or n < 3:
            trial.report({"loss": params["x"]})
            n += 1
            if trial.should_stop:
                trial.save(__file__, "saved.txt")
                return
            time.sleep(0.01)
"""
DEAF = """
    import pathlib, time

    def train(params, trial):
        trial.report({"loss": params["x"]})
        while params["x"] > 1 and not pathlib.Path("go").exists():
            time.sleep(0.01)
        return {"loss": 0.5}
"""
OF_FOUR = """
trainer: steered:train
resident: true
method: grid
metric: {name: loss}
parameters: {x: {values: [1, 2, 3, 4]}}
"""
SPACE = "method: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2, 3]}}\n"


@pytest.fixture(scope="module")
def worker_env(file_lab: Lab) -> dict[str, str]:
    return {"HPQ_STORE": str(file_lab.folder / "store"), "HPQ_GRACE_S": "60"}


@pytest.fixture
def lab(served_lab: Lab) -> Lab:
    """All tests share one worker."""
    return served_lab


@pytest.mark.parametrize("launch", ["program: train.py", "trainer: train:train"])
def test_what_does_badly_is_stopped_early_and_has_time_to_save(lab, launch) -> None:
    lab.write("train.py", PROGRAM if launch.startswith("program") else TRAINER)
    sid = lab.enqueue(f"{launch}\n{SPACE}early_terminate: {{type: hyperband, min_iter: 1}}\n")
    lab.wait_over(sid)
    trials = list(lab.reader.trials.all(sid))
    assert [t.state.value for t in trials] == ["finished", "pruned", "pruned"]
    assert [t.objective for t in trials] == [1.0, 2.0, 3.0]
    assert [t.attempt for t in trials] == [1, 1, 1]
    assert all(t.artifacts and "saved.txt" in t.artifacts.files for t in trials[1:])
    said = lab.ok("show", f"{sid}/3")
    assert "hyperband" in said and "3 of 3" in said
    told = json.loads(lab.ok("show", f"{sid}/2", "--json"))["pruning"]
    assert told == {"rule": "hyperband", "band": 1, "rank": 2, "n": 2, "threshold": 1, "value": 2}
    assert "2 pruned" in lab.ok("summary", sid)
    assert lab.events(sid, 2) == ["claimed", "prune", "pruned"]
    assert "1, 3, 9, 27, …" in lab.ok("show", sid)


def test_a_trial_that_comes_to_its_end_all_the_same_is_finished(lab) -> None:
    lab.write("train.py", DEAF)
    sid = lab.enqueue(f"trainer: train:train\n{SPACE}early_terminate: {{type: asha}}\n")
    lab.wait_until(lambda: "prune" in lab.events(sid, 2), "the order to stop")
    lab.go()
    lab.wait_over(sid)
    trial = lab.trial(sid, 2)
    assert (trial.state.value, trial.objective, trial.attempt) == ("finished", 0.5, 1)
    assert trial.pruning is not None


def test_a_target_that_is_reached_ends_the_sweep(lab) -> None:
    lab.write("train.py", "def train(params, trial):\n    return {'acc': params['x'] / 10}\n")
    sid = lab.enqueue(
        "trainer: train:train\nresident: true\nmethod: grid\n"
        "metric: {name: acc, goal: maximize, target: 0.25}\n"
        "parameters: {x: {values: [1, 2, 3, 4, 5]}}\n"
    )
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert (sweep.state.value, sweep.counts.finished, sweep.counts.cancelled) == ("finished", 3, 2)
    assert "#3 has acc 0.3000 >= 0.25" in lab.ok("watch", sid, "--once")
    assert "#3" in lab.ok("show", f"{sid}/4")
    assert lab.ok("wait", sid) is not None  # done: exit code 0


def test_a_target_ends_also_a_sweep_that_has_no_end(lab) -> None:
    lab.write("train.py", "def train(params, trial):\n    return {'acc': params['x']}\n")
    sid = lab.enqueue(
        "trainer: train:train\nresident: true\nmethod: random\n"
        "metric: {name: acc, goal: maximize, target: 0.9}\nparameters: {x: {min: 0.0, max: 1.0}}\n"
    )
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert sweep.state.value == "finished" and sweep.reached and sweep.reached.value >= 0.9
    assert sum(t.objective >= 0.9 for t in lab.reader.trials.all(sid) if t.objective) == 1


def test_the_owner_with_few_trials_waits_for_no_large_sweep_to_end(lab) -> None:
    """Both workers run trials of one owner; the first that is free runs all of another's."""
    large = lab.steered(5)
    lab.worker()
    lab.wait_until(lambda: lab.reader.sweeps.get(large).counts.running == 2, "two running trials")
    lab.write("quick.py", "def train(params, trial):\n    return {'loss': params['x']}\n")
    small = lab.enqueue(OF_FOUR.replace("steered", "quick"), HPQ_USER="other")
    lab.ok("cancel", f"{large}/1", "--yes")
    lab.wait_over(small)
    lab.wait_until(lambda: lab.has_claimed(large, 3), "the worker's return to the large sweep")
    few = [lab.trial(small, n) for n in range(1, 5)]
    assert {t.state for t in few} == {TrialState.FINISHED}
    assert max(t.ended_ms for t in few) <= lab.trial(large, 3).claimed_ms
    assert lab.trial(large, 2).state is TrialState.RUNNING


def test_only_force_cancels_the_sweep_of_another_owner(lab) -> None:
    large = lab.steered(3)
    lab.wait_for("began-1-1")
    lab.enqueue(OF_FOUR, HPQ_USER="other")
    refused = lab.hpq("cancel", large, "--yes", HPQ_USER="other")
    assert refused.returncode == 4 and "--force" in refused.stderr
    assert lab.hpq("cancel", "--yes").returncode == 2  # no bare one on a server of others
    lab.ok("cancel", large, "--yes", "--force", HPQ_USER="other")
    lab.wait_over(large)
    assert lab.trial(large, 3).state is TrialState.CANCELLED
