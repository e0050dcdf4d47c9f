"""`hpq report`, as a user runs it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Claim, Point, TrialState
from hpq.store.trials import TrialStore
from tests.support.ids import refused

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")

Hpq = Callable[..., subprocess.CompletedProcess[str]]


def data_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'id="data">([^<]*)<', page)
    assert found
    return list(json.loads(gzip.decompress(base64.b64decode(found[1]))))


@pytest.fixture
def running(
    sweep_of, store: TrialStore, who: WorkerPresence, take: Callable[[], Claim]
) -> SweepView:
    """Return a sweep with one finished trial, one that runs, and two that wait."""
    sweep: SweepView = sweep_of(4)
    for value in (0.5, 0.25):
        claim = take()
        names = ("acc", "loss")
        points = tuple(Point(step=k, name=n, value=value * k) for k in (1, 2) for n in names)
        batch = ReportBatch(seq=1, step=2, objective=value * 2, points=points, log=b"<b>hi</b>\n")
        store.beat(claim, who, batch, lease_ms=30_000)
        if value == 0.5:
            store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0, step=2))
    return sweep


def test_the_report_of_a_running_sweep_is_one_file(
    running: SweepView, hpq: Hpq, tmp_path: Path
) -> None:
    done = hpq("report", running.id)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{running.id}.html"]
    page = (tmp_path / f"{running.id}.html").read_text("utf-8")
    (data,) = data_of(page)
    assert data["trials"]["state"] == [2, 1], "no trial that waits"
    assert data["trials"]["y"] == [1.0, 0.5]
    assert data["curves"]["n"] == [1, 2] and data["curves"]["len"] == [2, 2]
    assert data["metrics"] == ["acc", "loss"] and [*data["more"]] == ["loss", "_runtime"]
    assert data["more"]["loss"]["n"] == [1, 2] and data["more"]["loss"]["len"] == [2, 2]
    assert data["more"]["_runtime"]["n"] == [1, 2]
    assert data["winner"] == 1
    assert "http://" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert list(tmp_path.glob(".*")) == []


def test_a_report_is_written_through_no_link_in_a_folder_of_others(
    running: SweepView, hpq: Hpq, tmp_path: Path
) -> None:
    (mine := tmp_path / "mine").write_text("mine")
    for name in (f".{running.id}.html.new", f"{running.id}.html"):
        (tmp_path / name).symlink_to(mine)
    assert hpq("report", running.id).returncode == 0
    assert mine.read_text() == "mine" and not (tmp_path / f"{running.id}.html").is_symlink()


def test_several_sweeps_go_into_one_file(
    running: SweepView, sweep_of, hpq: Hpq, tmp_path: Path
) -> None:
    other = sweep_of(2, "other-00000")
    assert hpq("report", running.id, "other", running.id, "--out", "both.html").returncode == 0
    page = (tmp_path / "both.html").read_text("utf-8")
    assert [one["id"] for one in data_of(page)] == [running.id, other.id]


def test_a_file_that_cannot_be_written_is_one_line(running: SweepView, hpq: Hpq) -> None:
    refused(hpq("report", running.id, "--out", "no/such/folder/page.html"), "file-unwritable")


def test_a_sweep_that_does_not_exist_is_refused(hpq: Hpq) -> None:
    refused(hpq("report", "nothing", "--out", "page.html"), "sweep-not-found", exit=4)


def test_the_report_of_very_many_trials_shows_the_best_and_counts_all(
    sweep_of, store: TrialStore, take: Callable[[], Claim], hpq: Hpq, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("hpq_views.page.sweep_reads._MOST_TRIALS", 2)
    sweep = sweep_of(4)
    for value in (0.5, 0.125, 0.75):
        store.commit(take(), Outcome(state=TrialState.FINISHED, objective=value, step=1))
    assert hpq("report", sweep.id).returncode == 0
    page = (tmp_path / f"{sweep.id}.html").read_text("utf-8")
    (data,) = data_of(page)
    assert data["trials"]["n"] == [1, 3]
    assert "the best of 3 results" in page and "the page shows the best 2 trials" in page
