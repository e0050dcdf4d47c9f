"""A trial is described in the same words wherever people see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from hpq.domain.sweep import SweepView
from hpq.domain.trial import Failure, FailureKind, Point, TrialState, TrialView
from hpq_producer.python_api.trial import trial_listing
from hpq_views.analysis.history import Attempt
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.results_table import result_row
from hpq_views.command_output.show import attempt_lines, trial_lines
from hpq_views.page.render import part
from hpq_views.page.sweep_data import encode_trials
from hpq_views.text.style import plain
from hpq_views.text.text import failure_words
from hpq_views.watch.trial_columns import trial_cells
from tests.support.made_sweeps import SETS_OF_ARTICLE, made

DATA = made(SETS_OF_ARTICLE[:2], points=3)
FAILED = replace(
    DATA.trials[0],
    state=TrialState.FAILED,
    failure=Failure(kind=FailureKind.USER_ERROR, message="width 40 is too large"),
)


def _shown(trial: TrialView, sweep: SweepView) -> str:
    return "\n".join(map(plain, trial_lines(TrialRow(trial=trial, sweep=sweep), {}, {}, "")))


def _watched(trial: TrialView, sweep: SweepView) -> str:
    row = TrialRow(trial=trial, sweep=sweep, at=replace(DATA.status, sweep=sweep))
    return plain(trial_cells(row, sweep.varying, None, ""))


VIEWS: Mapping[str, Callable[[TrialView, SweepView], str]] = {
    "watch": _watched,
    "show": _shown,
    "results": lambda trial, sweep: plain(result_row(trial, sweep)),
    "page": lambda trial, sweep: json.dumps(encode_trials(sweep, [trial], sweep.varying)),
    "python": lambda trial, sweep: trial_listing([trial], sweep)._repr_html_(),
}


def test_use_of_a_machine_is_shown_with_its_whole_part() -> None:
    used = {"gpu.power_w": 2790.0, "gpu.power_w.mean": 1012.0, "rss_gb": 0.523, "cpu": 128.0}
    row = TrialRow(trial=replace(DATA.trials[0], usage=used), sweep=DATA.sweep)
    assert row.usage == {"gpu.power_w": "2790 (mean 1012)", "rss_gb": "0.523", "cpu": "128"}


TABLES = [view for view in VIEWS if view != "show"]  # `show` has a line for each fact


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_names_a_failure_in_words(view: str) -> None:
    text = VIEWS[view](FAILED, DATA.sweep)
    assert "program failed" in text and "user_error" not in text


@pytest.mark.parametrize("view", TABLES)
def test_every_table_shows_the_last_value_of_a_trial_without_an_objective(view: str) -> None:
    trial = replace(FAILED, objective=None, metrics={"test/acc": 0.1234})
    assert "0.1234" in VIEWS[view](trial, DATA.sweep)


def test_show_begins_with_the_runs_name_group_and_tags() -> None:
    info = {"name": "lr0.1", "group": "", "tags": ["a", "b"], "config": {"depth": 3}}
    lines = _shown(replace(DATA.trials[0], run_info=info), DATA.sweep).splitlines()
    assert [line.split() for line in lines[1:3]] == [["name", "lr0.1"], ["tags", "a,", "b"]]
    assert [line.split() for line in lines if "config.depth" in line] == [["config.depth", "3"]]
    assert sum("lr0.1" in line for line in lines) == 1


def test_a_sweeps_page_begins_with_its_description_and_note() -> None:
    sweep = replace(DATA.sweep, spec={"description": "Which <b>rate</b>?"}, note="run again")
    head = part("head", replace(DATA, status=replace(DATA.status, sweep=sweep)), False)
    assert "Which &lt;b&gt;rate" in head and "run again" in head


@pytest.mark.parametrize("view", VIEWS)
def test_a_result_that_arrived_after_its_worker_was_lost_is_no_failure(view: str) -> None:
    lost = Failure(kind=FailureKind.LOST, message="its worker died")
    text = VIEWS[view](replace(DATA.trials[0], failure=lost), DATA.sweep)
    assert "finished" in text or view == "page"
    assert "lost" not in text and "died" not in text


@pytest.mark.parametrize("view", TABLES)
def test_every_table_says_whose_result_a_trial_has(view: str) -> None:
    reused = replace(DATA.trials[0], reused="older-00000/7")
    assert ("reused" if view == "watch" else "of older-00000/7") in VIEWS[view](reused, DATA.sweep)


def test_an_attempt_names_its_failure_as_the_ranking_does() -> None:
    story = [
        Attempt(number=1, end="user_error"),
        Attempt(number=2, end="failed", kind="user_error"),
    ]
    first, last = ["".join(span.text for span in line) for line in attempt_lines(story)]
    assert failure_words("user_error") in first and "retried" in first
    assert failure_words("user_error") in last and "user_error" not in first + last


def test_show_says_what_is_not_kept_of_many_metrics_and_of_a_long_curve() -> None:
    def shown(metrics: int, points: int, history: str = "") -> str:
        trial = replace(DATA.trials[0], metrics={f"m{n}": 0.5 for n in range(metrics)})
        row = TrialRow(trial=trial, sweep=replace(DATA.sweep, history=history))
        curves = {"m0": [Point(step=n, name="m0", value=n / 7) for n in range(points)]}
        return "\n".join(map(plain, trial_lines(row, curves, {}, "")))

    assert "only 300 metrics" in shown(300, 10) and "only 300" not in shown(299, 10)
    assert "`history: all`" in shown(1, 507) and "`history: all`" not in shown(1, 507, "all")
    assert "at most 1,000 points" in shown(1, 507) and "at most 166" in shown(300, 150)
    assert "at most" not in shown(1, 499)
