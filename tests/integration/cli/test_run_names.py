"""Names and tags that scripts give their runs, and projects: in tables, CSV and expressions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Claim, TrialState
from hpq.store.trials import TrialStore
from tests.support.ids import refused

SID = "demo-00000"
RUNS: list[dict[str, Any]] = [
    {"name": "brisk-1", "group": "g1", "tags": ["base", "two words"], "project": "vision"},
    {"name": "calm-2", "tags": ["base"]},
    {},
]


@pytest.fixture
def named(
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: Callable[..., SweepView],
    take: Callable[[], Claim],
) -> str:
    """Three trials whose scripts named their runs as RUNS; a sweep without any is beside it."""
    sweep_of(len(RUNS), SID)
    for info, value in zip(RUNS, (0.9, 0.8, 0.7), strict=True):
        claim = take()
        batch = ReportBatch(seq=1, run_info=json.dumps(info))
        store.beat(claim, who, batch, lease_ms=30_000)
        store.commit(claim, Outcome(state=TrialState.FINISHED, objective=value, step=2))
    sweep_of(1, "plain-00000")
    return SID


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_tables_show_the_names_and_tags_of_runs_if_a_trial_has_them(hpq, named: str) -> None:
    for command in (("results", named), ("best", named, "-n", "3")):
        head, first, *_ = words(hpq(*command).stdout)
        assert "name" in head and "brisk-1" in first, command
    head, first, *_ = words(hpq("results", named).stdout)
    assert "tags" in head and {"base,", "two", "words"} <= {*first}
    head, *_ = words(hpq("results", "plain-00000", "--where", "state == queued").stdout)
    assert not {"name", "tags"} & {*head}


def test_csv_and_pandas_have_a_column_for_what_a_run_has(hpq, named: str) -> None:
    rows = list(csv.DictReader(io.StringIO(hpq("results", named, "-o", "csv").stdout)))
    assert [row["name"] for row in rows] == ["brisk-1", "calm-2", ""]
    assert [row["group"] for row in rows] == ["g1", "", ""]
    assert [row["tags"] and json.loads(row["tags"]) for row in rows] == [
        ["base", "two words"], ["base"], "",
    ]  # fmt: skip
    plain = hpq("results", "plain-00000", "-o", "csv", "--where", "state == queued").stdout
    assert not {"name", "group", "tags"} & {*plain.splitlines()[0].split(",")}


@pytest.mark.parametrize(
    ("expression", "trials"),
    [
        ("name == 'brisk-1'", [1]),
        ("name in ['brisk-1', 'calm-2'] and x > 1", [2]),
        ("name == null", [3]),
        ("group == g1", [1]),
        ("base in tags", [1, 2]),
        ("'two words' in tags", [1]),
        ("base not in tags", [3]),
        ("not base in tags or objective > 0.85", [1, 3]),
        ("other in tags", []),
    ],
)
def test_expressions_know_the_names_and_tags_of_runs(
    hpq, named: str, expression: str, trials: list[int]
) -> None:
    done = hpq("results", named, "--where", expression, "--json")
    assert [row["trial"] for row in json.loads(done.stdout)] == trials, done.stderr


@pytest.mark.parametrize("wrong", ["base in lacking", "x in tags in tags", "3 in 4", "a in b.c()"])
def test_what_is_no_list_of_texts_is_refused(hpq, named: str, wrong: str) -> None:
    done = hpq("results", named, "--where", wrong)
    refused(done, "filter-name-unknown" if "lacking" in wrong else "expression-invalid")


def test_the_project_of_its_runs_is_the_sweeps(hpq, named: str) -> None:
    head, *rows = words(hpq("ls").stdout)
    assert "project" in head and ["vision" in row for row in rows if row[0] == named] == [True]
    assert "project" not in words(hpq("ls", "--where", "id == 'plain-00000'").stdout)[0]
    [found] = json.loads(hpq("ls", "--where", "project == vision", "--json").stdout)
    assert found["id"] == named
    assert ["project", "vision"] in words(hpq("show", named).stdout)


def test_the_list_has_the_tags_of_runs_and_finds_sweeps_by_them(hpq, named: str) -> None:
    [row] = [line for line in hpq("ls").stdout.splitlines() if line.startswith(named)]
    assert row.endswith("base two words")
    for words_ in (("--tag", "base"), ("--where", "base in run_tags")):
        assert [one["id"] for one in json.loads(hpq("ls", *words_, "--json").stdout)] == [named]
    assert json.loads(hpq("ls", "--tag", "other", "--json").stdout) == []
