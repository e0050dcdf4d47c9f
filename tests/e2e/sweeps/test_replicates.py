"""Replicates: each set with several seeds, ranked by what they come to on average."""

from __future__ import annotations

import json

import pytest

from tests.support.lab import Lab

# Which of two sets is better depends on the seed; on average x = 2 is.
NOISY = """
    import os, sys

    def train(params, trial):
        return {"loss": loss(params["x"], params["seed"])}

    def loss(x, seed):
        return {1: [0.1, 1.0, 1.0], 2: [0.5, 0.6, 0.4]}[x][seed - 7]

    if __name__ == "__main__":
        arguments = dict(word[2:].split("=") for word in sys.argv[1:])
        print(f"loss={loss(int(arguments['x']), int(os.environ['HPQ_SEED']))}")
"""
SWEEP = """
    program: noisy.py
    method: grid
    metric: {name: loss, goal: minimize}
    seed: 7
    replicates: 3
    parameters:
      x: {values: [1, 2]}
"""


@pytest.fixture
def lab(served_lab: Lab) -> Lab:
    """All tests share one worker."""
    return served_lab


def test_replicates_have_seeds_of_their_own_and_sets_are_ranked_by_their_mean(lab) -> None:
    lab.write("noisy.py", NOISY)
    sid = lab.enqueue(SWEEP)
    lab.wait_over(sid)
    trials = list(lab.reader.trials.all(sid))
    assert [(t.params["x"], t.objective) for t in trials] == [
        (1, 0.1), (1, 1.0), (1, 1.0), (2, 0.5), (2, 0.6), (2, 0.4),
    ]  # fmt: skip
    record = json.loads(lab.ok("best", sid, "--json"))
    assert record["param"] == {"x": 2}
    assert record["objective"] == pytest.approx(0.5)
    assert record["replicates"]["trials"] == [4, 5, 6]
    page = lab.ok("summary", sid)
    assert page.index("0.5000 ± 0.1000 (3 of 3)") < page.index("0.7000 ± 0.5196 (3 of 3)")
    # A replicate that is tried again counts only once it has ended again.
    lab.steered(1)
    lab.wait_for("began-1-1")  # so that no worker is free
    lab.ok("retry", f"{sid}/5", f"{sid}/6", "--yes")
    (best,) = lab.reader.ranking.best(lab.reader.sweeps.get(sid), 1)
    assert (best.id.number, best.objective, best.group.objectives) == (4, 0.5, (0.5,))


def test_a_parameter_seed_is_counted_up_with_the_replicates(lab) -> None:
    lab.write("noisy.py", NOISY)
    text = SWEEP.replace("program: noisy.py", "trainer: noisy:train\n    resident: true")
    sid = lab.enqueue(text.replace("    seed: 7\n", "") + "      seed: {value: 7}\n")
    lab.wait_over(sid)
    trials = list(lab.reader.trials.all(sid))
    assert [t.params["seed"] for t in trials] == [7, 8, 9, 7, 8, 9]
    assert [t.objective for t in trials[3:]] == [0.5, 0.6, 0.4]
    assert "2 of 3, seed 8" in lab.ok("show", f"{sid}/5")
    rows = [row.split() for row in lab.ok("results", sid).splitlines()]
    assert [row[rows[0].index("seed")] for row in rows[1:4]] == ["7", "8", "9"]


def test_a_trainer_gets_the_seed_of_its_replicate(lab) -> None:
    lab.write(
        "mine.py",
        """
        def train(params, trial):
            return {"loss": trial.seed}
        """,
    )
    sid = lab.enqueue(
        "trainer: mine:train\nresident: true\nmethod: random\nmetric: {name: loss}\nseed: 3\n"
        "replicates: 2\nrun_cap: 5\nparameters: {lr: {min: 0.0, max: 1.0}}\n"
    )
    lab.wait_over(sid)
    trials = list(lab.reader.trials.all(sid))
    assert [t.objective for t in trials] == [3, 4, 3, 4]  # five trials hold two whole sets
    assert len({t.params["lr"] for t in trials}) == 2
