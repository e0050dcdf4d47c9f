"""`hpq summary --narrow`: a block that `hpq enqueue` accepts, or a plain refusal."""

from __future__ import annotations

import json
import math

import pytest
import yaml

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import Goal, Metric
from hpq.store.trials import TrialStore
from tests.conftest import MakeSweep
from tests.support.desk import Desk
from tests.support.ids import refused
from tests.support.store_calls import end, take

HEAD = "program: train.py\nmethod: random\nrun_cap: 32\nmetric: {name: loss, goal: minimize}\n"
SPACE = """parameters:
  lr: {distribution: log_uniform_values, min: 0.0001, max: 1.0}
  opt:
    parameters:
      name: {values: [adam, sgd]}
      beta: {value: 0.9}
  width: {min: 1, max: 64}
"""


def test_the_block_replaces_that_of_the_file(
    desk: Desk, store: TrialStore, who: WorkerPresence
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    file = desk.folder / "s.yaml"
    file.write_text(HEAD + SPACE)
    sid = desk.hpq("enqueue", "s.yaml").stdout.strip()
    for n in range(32):
        if n == 30:
            early = desk.hpq("summary", sid, "--narrow")
            assert "2 trials not ended yet" in early.stderr
        claim = take(store, who)
        params = desk.reader.trials.get(claim.trial).params
        far = abs(math.log10(params["lr"]) + 2)
        end(store, claim, far + 0.001 * params["width"] / 64)
    made = desk.hpq("summary", sid, "--narrow")
    assert made.returncode == 0, made.stderr
    before, after = yaml.safe_load(SPACE)["parameters"], yaml.safe_load(made.stdout)["parameters"]
    low, high = after["lr"]["min"], after["lr"]["max"]
    assert 0.0001 < low < 0.01 < high < 1 and high / low < 1000
    assert {**after, "lr": before["lr"]} == before and [*after] == [*before]
    file.write_text(HEAD + made.stdout)
    assert desk.hpq("enqueue", "s.yaml").returncode == 0
    data = json.loads(desk.hpq("summary", sid, "--narrow", "-o", "json").stdout)
    assert data["parameters"] == after and (data["best"], data["settings"]) == (8, 32)
    assert [one["param"] for one in data["reasons"] if one["narrowed"]] == ["lr"]


def test_what_says_too_little_narrows_nothing(
    desk: Desk, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    metrics = (Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms"))
    spec = {"parameters": {"x": {"min": 1, "max": 9}}}
    sweep_of(5, "few-00000", spec=spec)
    for _ in range(5):
        end(store, take(store, who), 0.5)
    sweep_of(3, "list-00000")
    sweep_of(3, "front-00000", spec=spec, metric=metrics[0], objectives=metrics)
    refused(desk.hpq("summary", "few", "--narrow"), "not-narrowed", "hpq summary few-00000", exit=1)
    refused(desk.hpq("summary", "list", "--narrow"), "not-narrowed", "hpq summary")
    refused(desk.hpq("summary", "front", "--narrow"), "metrics-several", "hpq best")
    both = desk.hpq("summary", "few", "list", "--narrow")
    refused(both, "one-sweep-only", "hpq summary few-00000 --narrow")
