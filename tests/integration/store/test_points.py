"""Points of a trial: thinned, resumed, and through its end; none changes, and none is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from struct import pack, unpack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpq.domain.attempt import Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq.domain.trial import Checkpoint, Claim, FailureKind, Point, TrialId, TrialState
from hpq.errors import DecodeError
from hpq.redis.client import connect
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext, source
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.row import NewRow
from hpq.store.wire.trial import Entry, join_points
from tests.support.store_calls import LEASE, beat, end, fail, take

MOST = 2**53 - 1
DONE = Outcome(state=TrialState.FINISHED, objective=1.0, step=1)
HERE = Checkpoint(store="abcd", path="p", step=2, counts={"acc": 2})
WHO = WorkerPresence(name="w1", host="h1", queue="default")
names = st.sampled_from(["acc", "loss", "val/loss (%)", "é→", "=", "p:points"])
floats = st.floats()  # of any sign, infinite, too small for an exponent, no number
values = floats | st.floats(width=32) | st.sampled_from([0.1, -0.0, 0.0, math.inf, math.nan])
steps = st.integers(0, 300) | st.integers(-MOST, MOST)
reports = st.lists(
    st.tuples(steps, st.dictionaries(names, values, min_size=1, max_size=4)), max_size=12
)


def bits(points: Sequence[Point]) -> list[tuple[int, bytes]]:
    """Steps and values; values as bytes, since NaN equals nothing and -0.0 equals 0.0."""
    return [(p.step, pack("<d", math.nan if p.value != p.value else p.value)) for p in points]


def points_of(batch: Sequence[tuple[int, dict[str, float]]]) -> tuple[Point, ...]:
    return tuple(
        Point(step=step, name=name, value=value)
        for step, some in batch
        for name, value in some.items()
    )


class Bench:
    """One sweep of one trial, on an emptied server."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        self.redis.flushall()
        self.keys = Keys("hpq")
        context = StoreContext.open(self.redis, self.keys, mints=False)
        self.store, self.reader = TrialStore(context), StoreReader(self.redis, self.keys, LEASE)
        self.control = SweepControl(context)
        writer, metric = SweepWriter(context), Metric(name="acc", goal=Goal.MAXIMIZE)
        writer.add_rows("demo-00000", 1, [NewRow("{}", ParameterSet({}).identity)])
        launch = Launch(trainer="digits")
        writer.create(
            SweepView(id="demo-00000", name="d", digest="d", launch=launch, metric=metric)
        )
        self.trial, self.seq = TrialId(sweep="demo-00000", number=1), 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.close()

    def beat(self, claim: Claim, points: Sequence[Point], **more: object) -> None:
        self.seq += 1
        batch = ReportBatch(seq=self.seq, points=tuple(points), **more)  # type: ignore[arg-type]
        self.store.beat(claim, WHO, batch, lease_ms=LEASE)

    def history(self) -> dict[str, tuple[list[tuple[int, bytes]], list[int], str]]:
        """What readers see of each metric: points, times and the last entry's id."""
        trial = self.reader.trials.get(self.trial)
        curves = self.reader.trials.curves(trial.id.sweep, [(1, name) for name in trial.metrics])
        found = {}
        for curve in curves:
            ((points, last),) = self.reader.trials.new_points([(self.trial, "")], curve.metric)
            assert [p.step for p in points] == curve.steps
            found[curve.metric] = (bits(points), curve.times_ms, last)
        return found

    def pack(self, last: Sequence[str | float]) -> None:
        """Move the points into the record, with those of the last batch."""
        library = source("stage_rows").partition("-- Stages results")[0]
        call = "points().pack(read_trial(ARGV[1], ARGV[2]), {unpack(ARGV, 3)})"
        self.redis.eval(library + call, 1, "hpq", "demo-00000", 1, *last)

    def streams(self) -> int:
        return sum(b":p:" in key for key in self.redis.keys("hpq:t:*"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(reports, max_size=3))
def test_an_end_changes_no_point_time_or_id(redis_url: str, batches: list) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        for batch in batches:
            bench.beat(claim, points_of(batch))
        before = bench.history()
        bench.store.commit(claim, DONE)
        assert bench.streams() == 0 and bench.history() == before
        told = {name: some for name, (some, _, _) in before.items()}
        every = [point for batch in batches for point in points_of(batch)]
        assert told == {name: bits([p for p in every if p.name == name]) for name in told}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=reports, second=reports, read_at=st.sets(st.integers(0, 2)))
def test_a_reader_of_a_trial_that_ends_meets_each_point_once(
    redis_url: str, first: list, second: list, read_at: set[int]
) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        found, last = [], ""

        def read() -> None:
            nonlocal last
            ((points, last),) = bench.reader.trials.new_points([(bench.trial, last)], "acc")
            found.extend(points)

        for i, batch in enumerate((first, second)):
            if i in read_at:
                read()
            bench.beat(claim, points_of(batch))
        if 2 in read_at:
            read()
        bench.store.commit(claim, DONE)
        read()
        read()
        every = [p for p in points_of(first) + points_of(second) if p.name == "acc"]
        assert bits(found) == bits(every)


@pytest.mark.parametrize(
    ("kind", "metrics"), [("double", 20), ("float", 3), ("few", 3), ("one", 3), ("odd", 3)]
)
def test_a_thousand_points_of_many_metrics_come_back(
    redis_url: str, kind: str, metrics: int
) -> None:
    made = {
        "double": lambda n: n / 7,
        "float": lambda n: unpack("<f", pack("<f", n / 7))[0],
        "few": lambda n: (n % 250) / 7,
        "one": lambda _: -0.0,
        "odd": lambda n: (math.nan, math.inf, -math.inf, 5e-324, -1e308)[n % 5],
    }[kind]
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        for start in range(0, 1000, 50):
            steps = range(start, start + 50)
            batch = [
                (MOST - 1000 + n, {f"m{i}": made(n + i) for i in range(metrics)}) for n in steps
            ]
            bench.beat(claim, points_of(batch))
        before = bench.history()
        assert all(len(points) == 1000 for points, _, _ in before.values())
        bench.store.commit(claim, DONE)
        assert bench.history() == before and bench.streams() == 0


def release(bench: Bench, claim: Claim) -> None:
    bench.store.release(claim, Reason.STOPPING)


def fail_and_retry(bench: Bench, claim: Claim) -> None:
    fail(bench.store, claim, "no", FailureKind.BAD_PARAMS)
    bench.control.retry("demo-00000", [1])


def end_and_retry(bench: Bench, claim: Claim) -> None:
    end(bench.store, claim, 1.0)
    bench.control.retry("demo-00000", [1])


@pytest.mark.parametrize("leave", [release, fail_and_retry])
def test_a_trial_that_resumes_keeps_its_points_up_to_the_checkpoint(redis_url: str, leave) -> None:
    with Bench(redis_url) as bench:

        def points(*steps: int, name: str = "acc") -> list[Point]:
            return [Point(step=step, name=name, value=float(step)) for step in steps]

        def seen(name: str = "acc") -> list[int]:
            return [p.step for p in bench.reader.trials.metric_history(bench.trial, name)]

        claim = take(bench.store, WHO)
        bench.beat(claim, points(1, 2) + points(1, 2, name="loss"), checkpoint=HERE)
        bench.beat(claim, points(3, 4, 5))
        ((_, last),) = bench.reader.trials.new_points([(bench.trial, "")], "acc")
        leave(bench, claim)
        assert seen() == [1, 2, 3, 4, 5] and seen("loss") == [1, 2]
        second = take(bench.store, WHO)
        assert second.checkpoint == HERE and seen() == [1, 2, 3, 4, 5]  # not yet contradicted
        bench.beat(second, points(3, 4))
        assert seen() == [1, 2, 3, 4] and seen("loss") == [1, 2]
        ((more, _),) = bench.reader.trials.new_points([(bench.trial, last)], "acc")
        assert [p.step for p in more] == [3, 4]
        bench.beat(second, points(5, 4, 6))  # what an attempt itself repeats stays
        before = bench.history()
        bench.store.commit(second, DONE)
        assert bench.history() == before and bench.streams() == 0
        assert seen() == [1, 2, 3, 4, 5, 4, 6] and seen("loss") == [1, 2]


def test_a_clock_that_was_put_back_hides_no_point_of_a_retry() -> None:
    ended = [Entry((9_000, 0), 1, 0.1), Entry((9_000, 1), 2, 0.2)]
    newer = [Entry((5_000, 0), 2, 0.3), Entry((6_000, 0), 3, 0.4)]
    assert join_points(ended, newer) == [ended[0], *newer]
    assert join_points(ended, ended) == ended


@pytest.mark.parametrize("leave", [release, end_and_retry])
def test_a_trial_that_begins_anew_forgets_its_points(redis_url: str, leave) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        beat(bench.store, WHO, claim, 1, 1, 2)
        leave(bench, claim)
        take(bench.store, WHO)
        assert bench.reader.trials.metric_history(bench.trial, "acc") == []
        assert not bench.redis.exists(bench.keys.trial(bench.trial, "points"))


def test_a_retried_trial_that_is_cancelled_keeps_its_points(redis_url: str) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        beat(bench.store, WHO, claim, 1, 1, 2)
        end(bench.store, claim, 1.0)
        before = bench.history()
        bench.control.retry("demo-00000", [1])
        bench.control.cancel("demo-00000", [1])
        assert bench.history() == before


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=reports, last=reports)
def test_an_end_records_points_that_were_in_no_stream(
    redis_url: str, first: list, last: list
) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        bench.beat(claim, points_of(first))
        flat = [part for p in points_of(last) for part in (p.step, p.name, repr(p.value))]
        fields = {f"m:{p.name}": repr(p.value) for p in points_of(last)}
        if fields:
            bench.redis.hset(bench.keys.trial(bench.trial), mapping=fields)
        bench.pack(flat)
        every = points_of(first) + points_of(last)
        for name, (found, times, _) in bench.history().items():
            assert found == bits([p for p in every if p.name == name])
            assert all(a <= b for a, b in pairwise(times))
        assert bench.streams() == 0


@pytest.mark.parametrize(
    "steps",
    [range(20_000), [0] * 3000, [2**40, *range(3000)], range(3000, 0, -1)],
    ids=["even", "one step", "a step far off", "backwards"],
)
def test_a_long_curve_is_thinned_evenly_and_keeps_its_ends(redis_url: str, steps) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        points = [Point(step=step, name="acc", value=float(step)) for step in steps]
        for start in range(0, len(points), 1001):  # its last point makes the first thinning
            batch = points[start : start + 1001]
            bench.beat(claim, batch)
            kept = [p.step for p in bench.reader.trials.metric_history(bench.trial, "acc")]
            assert len(kept) <= 1000 and (kept[0], kept[-1]) == (steps[0], batch[-1].step)
    if steps == range(20_000):  # as dense at the beginning as at the end
        assert max(after - step for step, after in pairwise(kept)) <= 20_000 / 250


def test_points_beyond_a_thousand_are_thinned_with_those_of_the_end(redis_url: str) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        bench.beat(claim, [Point(step=n, name="acc", value=n / 7) for n in range(900)])
        flat = [part for n in range(900, 1200) for part in (n, "acc", n / 7)]
        bench.pack(flat)
        found = [p.step for p in bench.reader.trials.metric_history(bench.trial, "acc")]
        assert found == [*range(0, 1200, 2), 1199]


def test_a_batch_of_a_trial_with_many_metrics_says_how_many_points_a_curve_keeps(
    redis_url: str,
) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        many = [Point(step=n, name="acc", value=n / 7) for n in range(400)]
        bench.beat(claim, many, curve_points=100)
        bench.store.commit(claim, DONE)
        found = [p.step for p in bench.reader.trials.metric_history(bench.trial, "acc")]
        assert 50 <= len(found) <= 100 and (found[0], found[-1]) == (0, 399)


def test_damaged_points_name_their_key(redis_url: str) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        beat(bench.store, WHO, claim, 1, 1, 2, 3, 4, 5)
        end(bench.store, claim, 1.0)
        key = bench.keys.trial(bench.trial, "points")
        whole = bench.redis.hget(key, "acc")
        cut = [whole[:n] for n in range(1, len(whole))]
        forged = [whole[:11] + b"sss" + whole[14:], whole[:29] + b"chello"]
        for text in (b"x", b"+", b"=", b"=d", whole + b"=", *forged, *cut):
            bench.redis.hset(key, "acc", text)
            with pytest.raises(DecodeError, match="points field acc"):
                bench.reader.trials.metric_history(bench.trial, "acc")


def test_steps_that_are_no_numbers_block_no_server(redis_url: str) -> None:
    with Bench(redis_url) as bench:
        claim = take(bench.store, WHO)
        stream = Keys("hpq").points(bench.trial, "acc")
        for _ in range(1_000):  # as only another client of Redis writes them
            bench.redis.xadd(stream, {"s": "nan", "v": "1"})
        bench.beat(claim, [Point(step=1, name="acc", value=0.5)])
        assert bench.store.commit(claim, DONE) == "done"
