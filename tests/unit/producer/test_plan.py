"""What `hpq plan` prints of the sets: short, dotted, and how many more follow from what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpq_producer.commands.make_sweep.set_text import describe_rest
from hpq_producer.scaffold.script import rejections
from hpq_producer.scaffold.script_contents import Source
from hpq_producer.sweepfile.load import load
from tests.support.constants import DEADLINE_S, ROOT
from tests.support.desk import run_here
from tests.support.ids import ids, refused

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
        ("add_model_arguments(parser=p)", False, []),
    ],
)
def test_options_that_argparse_rejects_are_found_unless_in_doubt(
    tmp_path: Path, more: str, flags_alone: bool, rejected: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PARSER + more)
    found = list(rejections(Source.read(script), NAMES, flags_alone=flags_alone))
    assert len(found) == len(rejected)
    assert [name for name, _, _ in found] == rejected
    for name, line, is_sure in found:
        assert f"--{name}" in line and not is_sure  # nothing here calls parse_args
        assert ("learning_rate" in line) <= ("--lr?" in line)
        assert ("batch_size" in line) <= ("--batch-size?" in line)
    script.write_text("print('no parser')")
    assert not list(rejections(Source.read(script), NAMES, flags_alone=flags_alone))


SURE = PARSER + "p.parse_args()\n"


@pytest.mark.parametrize(
    ("script", "is_sure"),
    [
        (SURE, True),
        (SURE.replace("import argparse", "from argparse import *"), False),
        (SURE.replace("import argparse", "import argparse, simple_parsing"), True),
        (SURE.replace("import argparse", "import argparse\nfrom tap import ArgumentParser"), False),
        (SURE.replace("parse_args()", "parse_args(words)"), False),
        (SURE + "sys.argv[1:] = []", False),
        (SURE + "from sys import argv; argv.clear()", False),
        (SURE + "def parser(): return p", False),
        (SURE + "g = p.add_argument_group('x')\nparsers = [g]", False),
    ],
)
def test_a_rejection_is_sure_only_if_argparse_alone_reads_the_command_line(
    tmp_path: Path, script: str, is_sure: bool
) -> None:
    (tmp_path / "train.py").write_text(script)
    source = Source.read(tmp_path / "train.py")
    found = [sure for _, _, sure in rejections(source, NAMES, flags_alone=False)]
    assert set(found) <= {is_sure} and (found or not is_sure)


@pytest.mark.parametrize(
    ("command", "rejected"),
    [
        ("", [7, 8]),  # --amp and --optimizer
        ("command: ['${program}', '${args}']\n", []),  # executable: perhaps no Python
        ("command: [python, '${program}', '${args_no_boolean_flags}']\n", [8]),
        ("command: [python, '${program}', '${args_json}']\n", []),
        ("command: [python, '${program}', '--optimizer=${optimizer}']\n", []),
    ],
)
def test_an_option_that_the_script_rejects_is_refused_or_warned_of_if_in_doubt(
    tmp_path: Path, command: str, rejected: list[int]
) -> None:
    text = BAYES.replace("  optimizer", "  amp: {value: true}\n  optimizer") + command
    (tmp_path / "sweep.yaml").write_text(text)
    home = {"HOME": str(tmp_path)}
    (tmp_path / "train.py").write_text(PARSER)
    done = run_here(["plan", "sweep.yaml", "--json"], tmp_path, home)
    codes = [warning["code"] for warning in json.loads(done.stdout)["warnings"]]
    assert codes.count("option-rejected") == len(rejected), (command, done.stdout)

    (tmp_path / "train.py").write_text(SURE)
    for words in (["plan", "sweep.yaml"], ["enqueue", "sweep.yaml"]) if rejected else ():
        done = run_here(words, tmp_path, home)
        assert done.returncode == 2 and done.stderr.count("[option-rejected]") == len(rejected)
        assert [f"sweep.yaml:{line}:" in done.stderr for line in rejected] == [True] * len(rejected)


@pytest.mark.parametrize("command", ["plan", "enqueue", "run"])
def test_a_script_that_the_python_of_this_machine_cannot_parse_is_refused_with_its_line(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "sweep.yaml").write_text(BAYES)
    (tmp_path / "train.py").write_text("x = 1\ndef f(:\n")
    env = {"HPQ_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    done = run_here([command, "sweep.yaml"], tmp_path, env)
    refused(done, "script-invalid", "train.py:2:7", exit=2)


def test_a_script_that_workers_elsewhere_run_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(BAYES)
    (tmp_path / "train.py").write_text("x = 1\ndef f(:\n")
    env = {"HPQ_HOME": str(tmp_path / "home"), "HPQ_REDIS_URL": "redis://127.0.0.1:1"}
    done = run_here(["plan", "sweep.yaml"], tmp_path, {**env, "PATH": os.environ["PATH"]})
    assert done.returncode == 0 and ids(done.stderr) == ["script-invalid"]
    assert "train.py:2:7" in done.stderr


def test_a_script_that_the_python_of_trials_parses_is_right(tmp_path: Path) -> None:
    """A newer Python than hpq's: a stand-in that finds no error."""
    (tmp_path / "sweep.yaml").write_text(BAYES)
    (tmp_path / "train.py").write_text("x = 1\ndef f(:\n")
    newer = tmp_path / "bin" / "python"
    newer.parent.mkdir()
    newer.write_text("#!/bin/sh\n")
    newer.chmod(0o755)
    env = {"HPQ_HOME": str(tmp_path / "home"), "HPQ_PYTHON": str(newer)}
    done = run_here(["plan", "sweep.yaml"], tmp_path, {**env, "PATH": os.environ["PATH"]})
    assert done.returncode == 0 and not ids(done.stderr), done.stderr
