"""Metrics beside the sweep's: their order in all views, and `hpq best --by`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from hpq.access.session import open_session
from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.store.trials import TrialStore
from hpq_worker.lease.report_buffer import ReportBuffer
from tests.support.desk import Desk
from tests.support.store_calls import LEASE, end, take

SID = "demo-00000"
# Not in the order of their names, and more than Redis keeps in the order of writing.
LOGGED = ["train/loss", "val/loss", "val/acc", "grad", "acc", *(f"z{n}" for n in range(200, 0, -1))]


@pytest.fixture
def trials(
    desk: Desk, store: TrialStore, who: WorkerPresence, sweep_of: Callable[..., SweepView]
) -> SweepView:
    """Three trials: the first by acc is the last by val/acc."""
    sweep = sweep_of(3)
    for number in (1, 2, 3):
        claim, reports = take(store, who), ReportBuffer(sweep.metric)
        reports.report({"train/loss": 1.0, "val/loss": number, "val/acc": number / 4}, 1)
        assert store.beat(claim, who, reports.batch(), lease_ms=LEASE)
        reports.acknowledge(reports.batch())
        reports.report({name: 1 / number for name in LOGGED if "/" not in name}, 1)
        store.beat(claim, who, reports.batch(), lease_ms=LEASE)
        end(store, claim, 1 / number)
    return sweep


def test_all_views_have_the_metrics_as_they_were_logged(desk: Desk, trials: SweepView) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    from hpq_views.page.sweep_reads import read_sweep  # noqa: PLC0415

    first = json.loads(desk.hpq("results", "--json").stdout)[0]
    assert [*first["last"]] == LOGGED
    head = desk.hpq("results", "-o", "csv").stdout.splitlines()[0].split(",")
    assert [n.removeprefix("last.") for n in head if n.startswith("last.")] == LOGGED
    lines = desk.hpq("show", f"{SID}/1").stdout.splitlines()
    at = [next(i for i, line in enumerate(lines) if f"  {n} " in line) for n in LOGGED[:6]]
    assert at == sorted(at)
    desk.hpq("results", "-o", "parquet")
    import hpq  # noqa: PLC0415

    frame = hpq.Sweep(SID).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert [n.removeprefix("last.") for n in frame if n.startswith("last.")] == LOGGED
    with open_session() as session:
        shown = read_sweep(session.reader, SID, session.settings).metrics
    assert shown == ["acc", *(name for name in LOGGED if name != "acc")]


@pytest.mark.parametrize(
    ("metric", "trial", "value"), [("val/acc", 3, 0.75), ("val/loss", 1, 1.0), ("acc", 1, 1.0)]
)
def test_best_ranks_by_any_metric_whose_name_says_its_goal(
    desk: Desk, trials: SweepView, metric: str, trial: int, value: float
) -> None:
    found = json.loads(desk.hpq("best", "--by", metric, "--json").stdout)
    assert (found["trial"], found["objective"], found["rank"]) == (trial, value, 1)
    assert (
        desk.hpq("best", "--by", metric, "--args").stdout
        == desk.hpq("best", f"{SID}/{trial}", "--args").stdout
    )
    few = json.loads(desk.hpq("best", "--by", metric, "-n", "3", "--json").stdout)
    assert [one["rank"] for one in few] == [1, 2, 3]
    some = desk.hpq("best", "--by", metric, "--where", f"number != {trial}", "--json").stdout
    assert json.loads(some)["trial"] == 2


@pytest.mark.parametrize(("metric", "code"), [("val/f1", "column-unknown"), ("grad", "usage")])
def test_best_refuses_a_metric_that_is_unknown_or_has_no_goal(
    desk: Desk, trials: SweepView, metric: str, code: str
) -> None:
    done = desk.hpq("best", "--by", metric)
    assert done.returncode == 2 and f"[{code}]" in done.stderr
