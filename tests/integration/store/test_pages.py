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
from hpq_views.watch.app import Search, matching
from hpq_views.watch.keys import View
from hpq_views.watch.scene import SceneReader
from tests.conftest import MakeSweep
from tests.support.store_calls import LEASE, beat, end, fail, report, take

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
    assert reader.ranking.page(mixed, "best", 0, 20) == [2, 4, 6, 3, 1, 7, 5, 8, 10, 9]
    assert reader.ranking.page(mixed, "newest", 0, 20)[:2] == [6, 7]
    assert reader.ranking.page(mixed, "number", 3, 2) == [4, 5]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 3, 4, 10])
def test_pages_put_together_are_the_whole_list(
    reader: StoreReader, mixed: SweepView, order: str, count: int
) -> None:
    whole = reader.ranking.page(mixed, order, 0, 99)
    assert sorted(whole) == list(range(1, 11))
    pages = [reader.ranking.page(mixed, order, first, count) for first in range(0, 10, count)]
    assert [n for page in pages for n in page] == whole
    assert reader.ranking.page(mixed, order, 99, count) == []


def test_a_minimized_metric_puts_the_lowest_first(
    reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep = sweep_of(4, metric=Metric(name="acc"))
    for n, value in enumerate((0.5, 0.1, 0.9), 1):
        end(store, take(store, who, f"n{n}"), value)
    beat(store, who, take(store, who, "n4"), 1, 1, objective=-3.0)
    assert reader.ranking.page(reader.sweeps.get(sweep.id), "best", 0, 9) == [4, 2, 1, 3]


def test_watch_lists_the_front_first_and_infeasible_trials_after_the_ranked(
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
        end(store, claim, values[0], infeasible=values[1] > 30)
    take(store, who, "n5")
    scenes, view, whole = SceneReader(reader), View(sweep=sid), [2, 4, 3, 5, 1, 6]
    shown = scenes.read(view, TerminalInfo(rows=9), is_live=False)
    assert [t.id.number for t in shown.rows] == whole
    assert shown.front is not None and shown.front.order == [2, 4]
    for top in range(6):
        shown = scenes.read(replace(view, top=top), TerminalInfo(rows=2)).rows
        assert [t.id.number for t in shown] == whole[top : top + 2]
    newest = scenes.read(replace(view, order="number"), TerminalInfo(rows=9)).rows
    assert [t.id.number for t in newest] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("several", [False, True])
def test_watch_has_a_row_for_each_setting_and_one_for_each_run_without_a_result(
    reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, several: bool
) -> None:
    """A lucky seed, 1, leads no list: its setting is the last one."""
    metrics = (Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms"))
    of = {"objectives": metrics} if several else {}
    sid = sweep_of(15, metric=metrics[0], replicates=3, **of).id
    values = (0.9, 0.1, None, 0.6, 0.7, 0.8, 0.4, 0.4, 0.4, None, 0.5, 0.6)
    for n, value in enumerate(values, 1):
        claim = take(store, who, f"n{n}")
        if value is None:
            fail(store, claim, "no")
            continue
        report(store, who, claim, acc=[value], ms=[(8, 7, 4, 9)[(n - 1) // 3]])
        end(store, claim, value)
    take(store, who, "n13")
    scenes, view = SceneReader(reader), View(sweep=sid)
    shown = scenes.read(view, TerminalInfo(rows=40), is_live=False)
    firsts = [4, 7, 10, 1] if several else [4, 10, 1, 7]
    settings, rest = shown.rows[:4], shown.rows[4:]
    best = reader.ranking.best(reader.sweeps.get(sid), 9)
    found = {t.group.first: t for t in settings if t.group}
    assert [*found] == (firsts if several else [t.id.number for t in best])
    assert {n: (t.objective, t.group) for n, t in found.items()} == {
        t.id.number: (t.objective, t.group) for t in best
    }
    if several:
        assert [t.metrics["ms"] for t in settings] == [7, 4, 9, 8]
    assert {t.id.number for t in rest} == {3, 13, 14, 15}
    whole = [t.id for t in shown.rows]
    parts = [scenes.read(replace(view, top=n), TerminalInfo(rows=1)).rows for n in range(4)]
    assert [t.id for rows in parts for t in rows] == whole[:4]
    sweep = reader.sweeps.get(sid)
    assert matching(reader, sweep, Search("best", "acc > 0.55")) == [4, 10, 1]
    assert matching(reader, sweep, Search("best", "failed")) == [10, 3]
    assert matching(reader, sweep, Search("number", "acc > 0.55")) == [1, 4, 5, 6, 12]
    runs = scenes.read(replace(view, order="number"), TerminalInfo(rows=40)).rows
    assert [t.id.number for t in runs] == [*range(1, 16)] and not any(t.group for t in runs)


@pytest.mark.parametrize("replicates", [1, 2])
def test_pages_and_ranks_order_ties_by_number(
    reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep,
    replicates: int,
) -> None:  # fmt: skip
    """Redis orders them by text, in which 10 comes before 9."""
    made = sweep_of(12 * replicates, replicates=replicates)
    for n in range(12 * replicates):
        end(store, take(store, who, f"n{n}"), 0.5)
    sweep = reader.sweeps.get(made.id)
    order = reader.ranking.numbers(sweep)
    assert order == sorted(order) and len(order) == 12
    assert [t.id.number for t in reader.ranking.best(sweep, 12)] == order
    for first in range(12):
        assert reader.ranking.page(sweep, "best", first, 3) == order[first : first + 3]
        assert reader.ranking.standing(sweep, order[first]).rank == first + 1
