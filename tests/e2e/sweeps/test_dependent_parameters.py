"""derive, require and zip in whole sweeps; what trials keep that are suggested as a sweep runs."""

from __future__ import annotations

import json

import pytest

from tests.support.lab import Lab

TRAINER = """
    def train(params, trial):
        assert params["head"] == params["width"] // params["layers"]
        assert params["width"] % params["layers"] == 0
        assert ("momentum" in params) == (params.get("optimizer") == "sgd")
        assert params.get("epochs") == {"ce": 1, "focal": 2, "mse": 2}.get(params.get("loss"))
        return {"loss": abs(params["head"] - 16) + params["lr"]}
"""
SWEEP = """
    trainer: mine:train
    resident: true
    method: grid
    metric: {name: loss}
    parameters:
      layers: {min: 1, max: 8}
      width: {values: [32, 48, 64]}
      lr: {values: [0, 1]}
    derive: {head: "width // layers"}
    require: ["width % layers == 0", "layers > 1"]
"""
# lr, and what a worker also suggests: a condition, a group, an exclusion, a point and replicates
SUGGESTED = """      lr: {min: 0.0, max: 1.0}
      optimizer: {values: [sgd, adam]}
      momentum: {min: 0.5, max: 0.9}
      epochs: {values: [1, 2, 2]}
      loss: {values: [ce, focal, mse]}
    when: {momentum: {optimizer: sgd}}
    zip: [[epochs, loss]]
    exclude: [{optimizer: adam, lr: {min: 0.5}}]
    points: [{layers: 2, width: 32, lr: 0.25, optimizer: adam, epochs: 1, loss: ce}]
    replicates: 2
"""
EVERY = {(layers, w) for w in (32, 48, 64) for layers in range(2, 9) if w % layers == 0}


@pytest.fixture
def lab(served_lab: Lab) -> Lab:
    """All tests share one worker."""
    return served_lab


def test_every_trial_of_a_grid_has_its_derived_parameters_and_meets_what_is_required(lab) -> None:
    lab.write("mine.py", TRAINER)
    sid = lab.enqueue(SWEEP)
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert (sweep.counts.finished, sweep.counts.failed) == (2 * len(EVERY), 0)
    assert sweep.varying == ("layers", "width", "lr", "head")
    assert {(t.params["layers"], t.params["width"]) for t in lab.reader.trials.all(sid)} == EVERY
    best = json.loads(lab.ok("best", sid, "--json"))["param"]
    assert best["head"] == best["width"] // best["layers"]


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_trials_suggested_while_the_sweep_runs_keep_all_that_the_file_says(lab, method) -> None:
    if method == "bayes":
        pytest.importorskip("optuna")
    lab.write("mine.py", TRAINER)
    text = SWEEP.replace("      lr: {values: [0, 1]}\n", SUGGESTED).replace("grid", method)
    cap = "" if method == "random" else "    run_cap: 30\n"  # random is open-ended
    sid = lab.enqueue(text + cap)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.finished >= 26, "26 ends")
    lab.hpq("stop", sid, "--yes")  # bayes may be over by now
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert sweep.counts.failed == 0
    assert ("tpe as gp knows no conditions" in sweep.made) == (method == "bayes")
    params = [trial.params for trial in lab.reader.trials.all(sid)]
    assert params[0] == {"layers": 2, "width": 32, "head": 16, "lr": 0.25, "optimizer": "adam",
                         "epochs": 1, "loss": "ce"}  # fmt: skip
    assert params[::2] == params[1::2]
    assert len({json.dumps(one) for one in params}) == len(params) / 2
    assert {(one["layers"], one["width"]) for one in params} <= EVERY
    assert {one["loss"] for one in params} == {"ce", "focal", "mse"}
    assert all(one["optimizer"] == "sgd" or one["lr"] < 0.5 for one in params)


def test_derived_parameters_count_for_reuse_and_for_added_trials(lab) -> None:
    lab.write("mine.py", TRAINER)
    text = SWEEP.replace("{values: [0, 1]}", "{value: 0}")
    sid = lab.enqueue(text)
    lab.wait_over(sid)
    again = lab.write("again.yaml", text + "    name: again\n    seed: 0\n    order: shuffle\n")
    other = lab.ok("enqueue", again, "--reuse").strip()
    assert lab.reader.sweeps.get(other).counts.finished == len(EVERY)
    more = lab.write("more.yaml", text.replace("[32, 48, 64]", "[32, 48, 64, 96]"))
    added = [n for n in range(2, 9) if 96 % n == 0]
    lab.ok("add", sid, "--file", more)
    lab.wait_until(
        lambda: lab.reader.sweeps.get(sid).counts.finished == len(EVERY) + len(added), "the rest"
    )


def test_parameters_that_go_together_count_for_reuse_and_for_added_trials(lab) -> None:
    lab.write("mine.py", "def train(params, trial):\n    return {'loss': params['lr']}\n")
    text = """
    trainer: mine:train
    resident: true
    method: grid
    metric: {name: loss}
    parameters:
      lr: {values: [0, 1]}
      epochs: {values: [1, 2, 2]}
      loss: {values: [ce, focal, mse]}
    zip: [[epochs, loss]]
    """
    sid = lab.enqueue(text)
    lab.wait_over(sid)
    again = lab.write("again.yaml", text.replace("zip:", "name: again\n    zip:"))
    other = lab.ok("enqueue", again, "--reuse").strip()
    assert lab.reader.sweeps.get(other).counts.finished == 6
    more = lab.write("more.yaml", text.replace("[0, 1]", "[0, 1, 2]"))
    lab.ok("add", sid, "--file", more)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.finished == 9, "the rest")
    sweep = lab.reader.sweeps.get(sid)
    assert sweep.counts.failed == 0
