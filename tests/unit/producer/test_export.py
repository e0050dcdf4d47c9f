"""Trials as CSV, YAML and flags: inert in a spreadsheet and a shell, the same when read back."""

from __future__ import annotations

import csv
import io
import math
import shlex
import subprocess
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpq.code.command import argv
from hpq.domain.sweep import Launch, Sweep
from hpq.domain.trial import Artifacts, Failure, FailureKind, Json, TrialId, TrialState, TrialView
from hpq_producer.analysis.records import column_order, flat_record, trial_record
from hpq_producer.reports.export import to_args
from hpq_producer.terminal.output import guard_formula, to_yaml, write_csv
from hpq_producer.terminal.text import clean

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


def _trial(params: dict[str, Json], **fields: object) -> TrialView:
    base: dict[str, object] = {
        "id": TrialId(sweep="s", number=1),
        "state": TrialState.FINISHED,
        "params": params,
    }
    return TrialView(**{**base, **fields})  # type: ignore[arg-type]


def _csv(trial: TrialView, replicates: int = 1) -> dict[str, str]:
    out = io.StringIO(newline="")
    sweep = Sweep(id="s", name="s", digest="", launch=Launch(), seed=7, replicates=replicates)
    row = flat_record(trial_record(trial, sweep))
    write_csv(out, column_order(row), [row])
    return next(csv.DictReader(io.StringIO(out.getvalue(), newline="")))


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_text_that_a_spreadsheet_would_run_is_guarded(text: str) -> None:
    """B6: formulas in a CSV."""
    assert guard_formula(text).startswith("'")
    assert _csv(_trial({"opt": text}))["param.opt"].startswith("'")


def test_numbers_stay_numbers() -> None:
    row = _csv(_trial({"lr": -0.5}, objective=-1.25))
    assert (row["param.lr"], row["objective"]) == ("-0.5", "-1.25")


def test_a_parameter_and_a_metric_named_as_a_column_of_ours_have_columns_of_their_own() -> None:
    row = _csv(_trial({"state": "on", "step": 3}, step=7, metrics={"step": 1.5}))
    assert (row["state"], row["param.state"]) == ("finished", "on")
    assert (row["step"], row["param.step"], row["last.step"]) == ("7", "3", "1.5")


def test_where_sets_have_replicates_a_row_says_which_and_its_seed() -> None:
    second = replace(_trial({"seed": 3}), id=TrialId(sweep="s", number=5))
    row = _csv(second, replicates=3)
    assert (row["replicate"], row["seed"], row["param.seed"]) == ("2", "3", "3")


def test_columns_are_those_of_json_by_dotted_name_without_files() -> None:
    trial = _trial({"a": {"b": 1}}, metrics={"x/y": math.nan}, artifacts=Artifacts(
        store="s", path="p", files={"m.pt": 3}))  # fmt: skip
    record = trial_record(trial, Sweep(id="s", name="s", digest="", launch=Launch()))
    row = flat_record(record)
    assert record["artifacts"] == {"m.pt": 3} and not any("m.pt" in name for name in row)
    assert (row["param.a.b"], row["last.x/y"], row["failure.kind"]) == (1, None, None)
    assert column_order(["failure.kind", "last.b", "trial", "param.x", "last.a", "trial"]) == [
        "trial", "param.x", "last.b", "last.a", "failure.kind",
    ]  # fmt: skip


def test_an_error_with_escapes_and_commas_is_one_cell() -> None:
    failure = Failure(kind=FailureKind.USER_ERROR, message='a,"b"\n\x1b[31mc')
    row = _csv(_trial({}, state=TrialState.FAILED, failure=failure))
    assert (row["failure.kind"], row["failure.message"]) == ("user_error", 'a,"b"\nc')


@given(st.dictionaries(st.text(min_size=1), scalars, max_size=5))
def test_yaml_reads_back_the_same(params: dict[str, Json]) -> None:
    assert yaml.safe_load(to_yaml(params)) == params


@pytest.mark.parametrize(
    "text", ["1e-3", "off", "010", "1:30", "null", "0o7", "-", "", "2026-01-01"]
)
def test_yaml_quotes_text_that_some_reader_takes_for_something_else(text: str) -> None:
    assert to_yaml({"x": text}).strip() == f"x: '{text}'"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), TEXT, max_size=4))
def test_flags_survive_a_shell_and_act_on_no_terminal(params: dict[str, str]) -> None:
    line = to_args(params)
    assert clean(line) == line
    told = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    expected = [f"--{name}={value}\0" for name, value in params.items()] or ["\0"]
    assert told.stdout.decode() == "".join(expected)


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


def test_nested_sets_stand_in_double_quotes_where_a_shell_reads_them_so() -> None:
    assert to_args({"model": {"width": 16}}) == "\"--model={'width': 16}\""
    for word in ("it's $HOME", "it's `ls`", 'it\'s "so"', "it's\\n", "it's!"):
        told = subprocess.run(
            ["sh", "-c", f"printf %s {to_args({'x': word})}"], capture_output=True
        )
        assert told.stdout.decode() == f"--x={word}"
        assert not to_args({"x": word}).startswith('"')
