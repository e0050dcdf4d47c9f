"""What `hpq plan` prints of the sets: short, dotted, and how many more follow from what."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpq_producer.commands.submit.plan_page import describe_rest
from hpq_producer.scaffold.script import rejections
from hpq_producer.sweepfile.load import load
from tests.constants import DEADLINE_S, ROOT
from tests.desk import run_here

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


PARSER = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
p.add_argument("--batch-size", "--bs", type=int)
p.add_argument("--amp", action="store_true")
p.add_argument("--ema", action=argparse.BooleanOptionalAction)
"""
NAMES = ("lr", "bs", "learning_rate", "batch_size", "batch-siz", "amp", "ema", "zz")


@pytest.mark.parametrize(
    ("more", "flags_alone", "rejected"),
    [
        ("", False, ["learning_rate", "batch_size", "amp", "ema", "zz"]),
        ("", True, ["learning_rate", "batch_size", "zz"]),
        ("p.parse_known_args()", False, []),
        ("sub = p.add_subparsers()", False, []),
        ("for n in names: p.add_argument(f'--{n}')", False, []),
        ("q = argparse.ArgumentParser(parents=[p])", False, []),
        ("add_model_arguments(p)", False, []),
        ("def x(:", False, []),
    ],
)
def test_options_that_argparse_rejects_are_found_unless_in_doubt(
    tmp_path: Path, more: str, flags_alone: bool, rejected: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PARSER + more)
    found = list(rejections(script, NAMES, flags_alone=flags_alone))
    assert len(found) == len(rejected)
    assert all(f"--{name}" in line for name, line in zip(rejected, found, strict=True))
    for line in found:
        assert ("learning_rate" in line) <= ("--lr?" in line)
        assert ("batch_size" in line) <= ("--batch-size?" in line)
    script.write_text("print('no parser')")
    assert not list(rejections(script, NAMES, flags_alone=flags_alone))


def test_plan_warns_of_an_option_that_the_script_lacks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PARSER)
    text = BAYES.replace("  optimizer", "  amp: {value: true}\n  optimizer")
    for command, count in (
        ("", 2),  # --amp and --optimizer
        ("command: ['${program}', '${args}']\n", 0),  # executable: perhaps no Python
        ("command: [python, '${program}', '${args_no_boolean_flags}']\n", 1),
        ("command: [python, '${program}', '${args_json}']\n", 0),
    ):
        (tmp_path / "sweep.yaml").write_text(text + command)
        done = run_here(["plan", "sweep.yaml", "--json"], tmp_path, {"HOME": str(tmp_path)})
        codes = [warning["code"] for warning in json.loads(done.stdout)["warnings"]]
        assert codes.count("option-rejected") == count, (command, done.stdout)
