"""What `hpq plan` prints of the sets: short, dotted, and how many more follow from what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpq_producer.commands.submit.plan_page import describe_rest
from hpq_producer.sweepfile.load import load
from tests.constants import DEADLINE_S, ROOT

BAYES = """
program: train.py
method: bayes
metric: {name: loss, goal: minimize}
parameters:
  lr: {min: 0.001, max: 0.1}
  optimizer: {parameters: {momentum: {min: 0.5, max: 0.9}, name: {value: 'off'}}}
"""


@pytest.mark.parametrize(
    ("count", "first", "rest"),
    [
        (3, 3, ()),
        (10, 5, ("5 more", "--first 10")),
        (10, 10, ()),
        (30, 5, ("5 more", "--first 10", "bayes")),
        (None, 10, ("bayes",)),
    ],
)
def test_plan_of_bayes_says_which_sets_follow_from_results(
    tmp_path: Path, count: int | None, first: int, rest: tuple[str, ...]
) -> None:
    (tmp_path / "sweep.yaml").write_text(BAYES)
    line = describe_rest(load(tmp_path / "sweep.yaml", count=count), first, count) or ""
    assert bool(line) == bool(rest) and all(word in line for word in rest)
    assert ("bayes" in line) == ("bayes" in rest)


def test_plan_prints_short_numbers_and_nested_names_with_dots(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(BAYES)
    (tmp_path / "train.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "hpq_producer", "plan", "sweep.yaml", "--count", "7"], cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    *_, first, end = (line for line in done.stdout.splitlines() if line.startswith("   "))
    assert end.startswith("   ... 2 more ") and "--first 7" in end
    _, lr, momentum, name = first.split()
    assert lr.startswith("lr=") and momentum.startswith("optimizer.momentum=")
    assert name == "optimizer.name='off'"
    assert all(len(word.split("=")[1]) <= 8 for word in (lr, momentum))
