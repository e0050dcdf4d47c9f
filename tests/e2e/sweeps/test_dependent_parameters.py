"""derive, require and zip in whole sweeps: every trial has what the file says and meets it."""

from __future__ import annotations

import json

import pytest

TRAINER = """
    def train(params, trial):
        assert params["head"] == params["width"] // params["layers"]
        assert params["width"] % params["layers"] == 0
        return {"loss": abs(params["head"] - 16) + params["lr"]}
"""
SWEEP = """
    trainer: mine:train
    resident: true
    method: {method}
    metric: {{name: loss}}
    parameters:
      layers: {{min: 1, max: 8}}
      width: {{values: [32, 48, 64]}}
      lr: {lr}
    derive: {{head: "width // layers"}}
    require: ["width % layers == 0", "layers > 1"]
    {rest}
"""
LISTED, DRAWN = "{values: [0, 1]}", "{min: 0.0, max: 1.0}"
EVERY = {(layers, w) for w in (32, 48, 64) for layers in range(2, 9) if w % layers == 0}


@pytest.mark.parametrize(
    ("method", "lr", "rest", "count"),
    [
        ("grid", LISTED, "", 2 * len(EVERY)),
        ("random", DRAWN, "", 15),  # open-ended: a worker suggests them
        ("bayes", DRAWN, "run_cap: 15", 15),
    ],
)
def test_every_trial_has_its_derived_parameters_and_meets_what_is_required(
    lab, method: str, lr: str, rest: str, count: int
) -> None:
    if method == "bayes":
        pytest.importorskip("optuna")
    lab.write("mine.py", TRAINER)
    sid = lab.enqueue(SWEEP.format(method=method, lr=lr, rest=rest))
    lab.worker(1)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.finished >= count, "the ends")
    lab.hpq("stop", sid, "--yes")  # only random is not over yet
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert sweep.counts.failed == 0 and sweep.varying == ("layers", "width", "lr", "head")
    # Older workers would suggest trials without head; they can run those that are stored.
    assert sweep.schema == (3 if method == "grid" else 4)
    sets = {(t.params["layers"], t.params["width"]) for t in lab.reader.trials.all(sid)}
    assert sets == EVERY if method == "grid" else sets <= EVERY
    best = json.loads(lab.ok("best", sid, "--json"))["param"]
    assert best["head"] == best["width"] // best["layers"]


def test_derived_parameters_count_for_reuse_and_for_added_trials(lab) -> None:
    lab.write("mine.py", TRAINER)
    text = SWEEP.format(method="grid", lr="{value: 0}", rest="")
    sid = lab.enqueue(text)
    lab.worker(1)
    lab.wait_over(sid)
    again = lab.write("again.yaml", text + "    name: again\n    seed: 0\n    order: shuffle\n")
    other = lab.ok("enqueue", again, "--reuse").strip()
    assert lab.reader.sweeps.get(other).counts.finished == len(EVERY)
    more = lab.write("more.yaml", text.replace("[32, 48, 64]", "[32, 48, 64, 96]"))
    added = [n for n in range(2, 9) if 96 % n == 0]
    lab.ok("enqueue", more, "--into", sid)
    lab.wait_until(
        lambda: lab.reader.sweeps.get(sid).counts.finished == len(EVERY) + len(added), "the rest"
    )


def test_a_worker_suggests_parameters_that_go_together_for_bayes(lab) -> None:
    pytest.importorskip("optuna")
    lab.write(
        "mine.py",
        """
        def train(params, trial):
            assert params["epochs"] == {"ce": 1, "focal": 2, "mse": 2}[params["loss"]]
            return {"loss": params["epochs"] + params["lr"]}
        """,
    )
    text = """
    trainer: mine:train
    resident: true
    method: bayes
    metric: {name: loss}
    run_cap: 12
    parameters:
      lr: {min: 0.0, max: 1.0}
      epochs: {values: [1, 2, 2]}
      loss: {values: [ce, focal, mse]}
    zip: [[epochs, loss]]
    """
    sid = lab.enqueue(text)
    lab.worker(1)
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert (sweep.counts.finished, sweep.counts.failed, sweep.schema) == (12, 0, 4)
    assert len({t.params["loss"] for t in lab.reader.trials.all(sid)}) == 3
    again = lab.write("again.yaml", text.replace("zip:", "name: again\n    zip:"))
    other = lab.ok("enqueue", again, "--reuse").strip()
    assert lab.reader.sweeps.get(other).counts.finished == 12
    lab.ok("stop", other, "--yes")
    text = text.replace("bayes", "grid").replace("run_cap: 12", "")
    listed = lab.enqueue(text.replace("{min: 0.0, max: 1.0}", "{values: [0, 1]}"))
    more = lab.write("more.yaml", text.replace("{min: 0.0, max: 1.0}", "{values: [0, 1, 2]}"))
    lab.ok("enqueue", more, "--into", listed)
    lab.wait_over(listed)
    sweep = lab.reader.sweeps.get(listed)
    assert (sweep.counts.finished, sweep.counts.failed, sweep.schema) == (9, 0, 3)
