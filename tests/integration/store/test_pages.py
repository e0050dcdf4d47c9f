"""Pages of a sweep's trials, as watch asks for them: ranked by Redis, a window at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.constraint import Constraint
from hpq.domain.sweep import Goal, Metric, SweepView
from hpq.domain.trial import Failure, FailureKind, Point, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_views.text.style import TerminalInfo
from hpq_views.watch.scene import SceneReader
from hpq_views.watch.view import View
from tests.conftest import MakeSweep
from tests.support.store_calls import LEASE, beat, end, take

ORDERS = ("best", "newest", "number")


@pytest.fixture
def mixed(
    store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, control: SweepControl,
    reader: StoreReader,
) -> SweepView:  # fmt: skip
    """Trials 1 to 4 have 0.1, 0.4, 0.2, 0.3; 5 failed; 6 runs at 0.25, 7 without a value; 9 never
    ran and is cancelled; 8 and 10 wait."""
    sweep_of(10, metric=Metric(name="acc", goal=Goal.MAXIMIZE))
    for n, value in enumerate((0.1, 0.4, 0.2, 0.3), 1):
        end(store, take(store, who, f"n{n}"), value)
    failure = Failure(kind=FailureKind.BAD_PARAMS, message="no")
    store.commit(take(store, who, "n5"), Outcome(state=TrialState.FAILED, failure=failure))
    beat(store, who, take(store, who, "n6"), 1, 1, objective=0.25)
    take(store, who, "n7")
    control.cancel("demo-00000", [9])
    return reader.sweeps.get("demo-00000")


def test_running_trials_stand_among_the_ranked_by_the_value_that_they_have(
    reader: StoreReader, mixed: SweepView
) -> None:
    assert reader.trials.page(mixed, "best", 0, 20) == [2, 4, 6, 3, 1, 7, 5, 8, 10, 9]
    assert reader.trials.page(mixed, "newest", 0, 20)[:2] == [6, 7]
    assert reader.trials.page(mixed, "number", 3, 2) == [4, 5]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 3, 4, 10])
def test_pages_put_together_are_the_whole_list(
    reader: StoreReader, mixed: SweepView, order: str, count: int
) -> None:
    whole = reader.trials.page(mixed, order, 0, 99)
    assert sorted(whole) == list(range(1, 11))
    pages = [reader.trials.page(mixed, order, first, count) for first in range(0, 10, count)]
    assert [n for page in pages for n in page] == whole
    assert reader.trials.page(mixed, order, 99, count) == []


def test_a_minimized_metric_puts_the_lowest_first(
    reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep = sweep_of(4, metric=Metric(name="acc"))
    for n, value in enumerate((0.5, 0.1, 0.9), 1):
        end(store, take(store, who, f"n{n}"), value)
    beat(store, who, take(store, who, "n4"), 1, 1, objective=-3.0)
    assert reader.trials.page(reader.sweeps.get(sweep.id), "best", 0, 9) == [4, 2, 1, 3]


def test_watch_lists_the_front_first_and_infeasible_trials_last(
    reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    metrics = (Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms"))
    limits = (Constraint.parse("ms <= 30"),)
    sid = sweep_of(6, metric=metrics[0], objectives=metrics, constraints=limits).id
    for n, values in enumerate(((0.9, 40.0), (0.8, 20.0), (0.7, 25.0), (0.1, 1.0)), 1):
        claim = take(store, who, f"n{n}")
        named = zip(("acc", "ms"), values, strict=True)
        points = tuple(Point(step=1, name=name, value=value) for name, value in named)
        store.beat(claim, who, ReportBatch(seq=1, step=1, points=points), lease_ms=LEASE)
        end(store, claim, values[0])
    take(store, who, "n5")
    scenes, view, whole = SceneReader(reader), View(sweep=sid), [2, 4, 3, 5, 6, 1]
    shown = scenes.read(view, TerminalInfo(rows=9), is_live=False)
    assert [t.id.number for t in shown.rows] == whole and shown.standing.front == [2, 4]
    for top in range(6):
        shown = scenes.read(replace(view, top=top), TerminalInfo(rows=2)).rows
        assert [t.id.number for t in shown] == whole[top : top + 2]
    newest = scenes.read(replace(view, order="number"), TerminalInfo(rows=9)).rows
    assert [t.id.number for t in newest] == [1, 2, 3, 4, 5, 6]
