"""Trials as CSV, YAML and flags: inert in a spreadsheet and a shell, the same when read back."""

from __future__ import annotations

import csv
import io
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpq.code.command import argv
from hpq.domain.trial import Artifacts, Failure, FailureKind, Json, TrialId, TrialState, TrialView
from hpq.errors import UserError
from hpq.sanitize import CONTROL
from hpq.shell import shell_line
from hpq_producer.commands.inspect.best import to_args
from hpq_views.analysis.output_records import column_order, flat_record, trial_record
from hpq_views.command_output.results_table import write_trials
from hpq_views.text.output import guard_formula, write_csv
from hpq_views.text.text import clean
from hpq_views.text.yaml_text import to_yaml
from tests.support.views import sweep_view, trial_view

UNPRINTABLE = re.compile(rf"{CONTROL.pattern}|[\ud800-\udfff]")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


def _csv(trial: TrialView, replicates: int = 1) -> dict[str, str]:
    out = io.StringIO(newline="")
    sweep = sweep_view(seed=7, replicates=replicates)
    row = flat_record(trial, sweep)
    write_csv(out, column_order(row), [row])
    return next(csv.DictReader(io.StringIO(out.getvalue(), newline="")))


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_text_that_a_spreadsheet_would_run_is_guarded(text: str) -> None:
    """B6: formulas in a CSV."""
    assert guard_formula(text).startswith("'")
    assert _csv(trial_view(params={"opt": text}))["param.opt"].startswith("'")


def test_a_column_that_only_later_trials_have_is_empty_in_the_first_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trials = [
        trial_view(params={"a": 1}),
        trial_view(params={"a": 2, "b": "x"}, metrics={"acc": 0.5}),
        trial_view(params={"b": 3}),
    ]
    write_trials([sweep_view()], trials)
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [(row["param.a"], row["param.b"], row["last.acc"]) for row in rows] == [
        ("1", "", ""),
        ("2", "x", "0.5"),
        ("", "3", ""),
    ]


def test_numbers_stay_numbers() -> None:
    row = _csv(trial_view(params={"lr": -0.5}, objective=-1.25))
    assert (row["param.lr"], row["objective"]) == ("-0.5", "-1.25")


def test_a_parameter_and_a_metric_named_as_a_column_of_ours_have_columns_of_their_own() -> None:
    row = _csv(trial_view(params={"state": "on", "step": 3}, step=7, metrics={"step": 1.5}))
    assert (row["state"], row["param.state"]) == ("finished", "on")
    assert (row["step"], row["param.step"], row["last.step"]) == ("7", "3", "1.5")


def test_where_sets_have_replicates_a_row_says_which_and_its_seed() -> None:
    second = replace(trial_view(params={"seed": 3}), id=TrialId(sweep="s", number=5))
    row = _csv(second, replicates=3)
    assert (row["replicate"], row["seed"], row["param.seed"]) == ("2", "3", "3")


def test_columns_are_those_of_json_by_dotted_name_without_files() -> None:
    trial = trial_view(params={"a": {"b": 1}}, metrics={"x/y": math.nan}, artifacts=Artifacts(
        store="s", path="p", files={"m.pt": 3}))  # fmt: skip
    sweep = sweep_view()
    record, row = trial_record(trial, sweep), flat_record(trial, sweep)
    assert record["artifacts"] == {"m.pt": 3} and not any("m.pt" in name for name in row)
    assert (row["param.a.b"], row["last.x/y"], row["failure.kind"]) == (1, None, None)
    assert column_order(["failure.kind", "last.b", "trial", "param.x", "last.a", "trial"]) == [
        "trial", "param.x", "last.b", "last.a", "failure.kind",
    ]  # fmt: skip


def test_an_error_with_escapes_and_commas_is_one_cell() -> None:
    failure = Failure(kind=FailureKind.USER_ERROR, message='a,"b"\n\x1b[31mc')
    row = _csv(trial_view(state=TrialState.FAILED, failure=failure))
    assert (row["failure.kind"], row["failure.message"]) == ("user_error", 'a,"b"\nc')


@given(st.dictionaries(st.text(min_size=1), scalars, max_size=5))
def test_yaml_reads_back_the_same(params: dict[str, Json]) -> None:
    assert yaml.safe_load(to_yaml(params)) == params


@pytest.mark.parametrize(
    "text", ["1e-3", "off", "010", "1:30", "null", "0o7", "-", "", "2026-01-01"]
)
def test_yaml_quotes_text_that_some_reader_takes_for_something_else(text: str) -> None:
    assert to_yaml({"x": text}).strip() == f"x: '{text}'"


SHELLS = (("sh",), ("dash",), ("bash",), ("zsh", "-f"), ("busybox", "sh"))
ODD = ("", "-n", "~", "~root", "=ls", "=", "*", "/*", "$HOME", "$(id)", "`id`", "'", "''",
       "\\", "\\'", "'; id #", '"', "!!", "a=~/b", "{a,b}", "[a-z]", "?", "&", "|", ";", "<", ">",
       "(", ")", "#", "%1", "^a", "\N{NO-BREAK SPACE}", "\N{FULLWIDTH DOLLAR SIGN}")  # fmt: skip


def odd_values(count: int, seed: int) -> list[str]:
    """Values of all Unicode but controls, with what shells interpret more often than the rest."""
    draw, found = random.Random(seed), list(ODD)
    while len(found) < count:
        parts = (
            draw.choice(ODD) if draw.random() < 0.6 else chr(draw.randrange(0x20, sys.maxunicode))
            for _ in range(draw.randrange(1, 8))
        )
        value = "".join(parts)
        found += [] if UNPRINTABLE.search(value) else [value]
    return found


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
def test_every_shell_reads_the_words_of_the_trial_and_nothing_acts(
    shell: tuple[str, ...], locale: str, tmp_path: Path
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    values = odd_values(600, seed=26)
    line = to_args({f"p{i}": value for i, value in enumerate(values)})
    assert clean(line) == line
    file = tmp_path / "line"
    file.write_text(f"printf '%s\\0' {line} {shell_line(values)}\n", "utf-8")
    env = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": locale}
    done = subprocess.run([*shell, file], capture_output=True, env=env, cwd=tmp_path, check=False)
    read = done.stdout.decode().split("\0")
    assert read == [*(f"--p{i}={value}" for i, value in enumerate(values)), *values, ""]
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("value", ["a\nb", "\x00", "x\x1b[31m", "\x7f", "\x9b", "\u202e", "\ud800"])
def test_a_value_that_no_line_holds_is_refused_and_the_json_form_named(value: str) -> None:
    with pytest.raises(UserError) as refused:
        to_args({"x": value}, of="demo-1/7")
    assert refused.value.code == "value-not-for-shells"
    assert "`hpq show demo-1/7 -o json`" in str(refused.value)
    assert str(refused.value).isprintable()


def test_flags_are_the_words_that_the_trial_got() -> None:
    params: dict[str, Json] = {
        "o": {"lr": 0.1, "on": None},
        "l": ["a", True],
        "x": 1e-05,
        "n": None,
    }
    words = argv(("${args}",), "", params, environ={}, params_file="", interpreter="")
    assert shlex.split(to_args(params)) == list(words)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ((), "--model=cnn --optim.lr=0.01"),
        (("${program}", "${args_no_hyphens}"), "model=cnn optim.lr=0.01"),
        (("${program}", "${args_no_equals}"), "--model cnn --optim.lr 0.01"),
        (("train", "--lr=${optim.lr}"), "--model=cnn --optim.lr=0.01"),
    ],
)
def test_flags_have_the_form_that_the_command_of_the_sweep_gives_them(
    command: tuple[str, ...], line: str
) -> None:
    assert to_args({"model": "cnn", "optim.lr": 0.01}, command) == line
