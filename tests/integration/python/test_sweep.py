"""The Python API on a real Redis: sweeps, trials, curves, tables; bad input."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

import hpq
from hpq.domain.attempt import Nothing, Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Checkpoint, Claim, Failure, FailureKind, Point, TrialState
from hpq.errors import Forbidden, Held, HpqError, NotFound, SweepFileError, UserError
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_views.analysis.output_records import HISTORY_COLUMNS
from tests.support.constants import DEADLINE_S
from tests.support.desk import Desk
from tests.support.ids import raises
from tests.support.store_calls import claimed, end, fail, report

MakeSweep = Callable[..., SweepView]
Take = Callable[[], Claim | Nothing]
HOSTILE = '<b onclick="x()">$\\x1b[31m&amp;</b>'
SWEEP = {
    "program": "train.py",
    "method": "grid",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"x": {"values": (1, 2, 3)}},
}


@pytest.fixture(autouse=True)
def server(desk: Desk) -> Desk:
    """Every call of the API discovers the tests' server from the environment, as commands do."""
    return desk


@pytest.fixture
def done(store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, take: Take) -> hpq.Sweep:
    """Three trials: two finished, the second best at its second step; one failed."""
    sweep = sweep_of(3)
    for values in ([0.1, 0.2, 0.5], [0.7, 0.9, 0.8]):
        got = claimed(take)
        report(store, who, got, b"line 1\nline 2\n", acc=values, loss=[3.0, 2.0, math.nan])
        end(store, got, values[-1], best=max(values), step=3)
    fail(store, claimed(take), HOSTILE)
    return hpq.Sweep(sweep.id)


def test_a_dict_becomes_a_sweep_of_the_program_beside(desk: Desk) -> None:
    sweep = hpq.enqueue(SWEEP, tags=["a", "a"])
    assert (sweep.name, sweep.metric, sweep.goal, sweep.varying) == (
        "sweep",
        "loss",
        "minimize",
        ("x",),
    )
    assert (sweep.state, sweep.counts["queued"]) == ("waiting", 3)
    assert "waiting" in repr(hpq.sweeps()) and "waiting" in sweep._repr_html_(), "no worker runs"
    assert [trial.params for trial in sweep.trials()] == [{"x": 1}, {"x": 2}, {"x": 3}]
    shown = desk.hpq("show", sweep.id).stdout
    assert "program: train.py" in shown and "tags" in shown


def test_a_dict_and_a_file_of_the_same_content_are_one_sweep(desk: Desk) -> None:
    Path("same.yaml").write_text(
        "program: train.py\nmethod: grid\nmetric: {name: loss, goal: minimize}\n"
        "parameters: {x: {values: [1, 2, 3]}}\n"
    )
    sweep = hpq.enqueue(SWEEP)
    assert hpq.enqueue("same.yaml") == sweep == hpq.enqueue(Path("same.yaml"))
    assert hpq.enqueue(SWEEP, new=True) != sweep


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    space = {"x": {"values": numpy.linspace(0, 1, 3)}, "y": {"value": numpy.int64(7)}}
    sweep = hpq.enqueue(SWEEP | {"parameters": space})
    assert sweep.trial(2).params == {"x": 0.5, "y": 7}


def test_a_wrong_dict_is_refused_with_the_path_of_the_key() -> None:
    with raises("unknown-key", "parameters.x") as caught:
        hpq.enqueue(SWEEP | {"parameters": {"x": {"valeus": [1]}}})
    assert isinstance(caught.value, SweepFileError)
    assert str(caught.value).startswith("sweep: parameters.x"), "a dict has no lines"
    with raises("usage", "list"):
        hpq.enqueue([1])  # type: ignore[arg-type]
    with raises("sweep-file-invalid", "object"):
        hpq.enqueue(SWEEP | {"parameters": {"x": {"values": [object()]}}})
    with raises("code-invalid", "gone.py"):
        hpq.enqueue(SWEEP | {"program": "gone.py"})
    with raises("file-not-found"):
        hpq.enqueue("gone.yaml")
    with raises("usage", "--tag"):
        hpq.enqueue(SWEEP, tags=["no spaces"])
    assert list(hpq.sweeps()) == []


def test_a_sweep_is_found_as_commands_find_it(done: hpq.Sweep, sweep_of: MakeSweep) -> None:
    assert hpq.Sweep("demo") == done
    sweep_of(1, "other-00000")
    assert hpq.Sweep() == hpq.Sweep("other")
    assert [one.id for one in hpq.sweeps()] == ["other-00000", "demo-00000"]
    assert [one.id for one in hpq.sweeps(1)] == ["other-00000"]


def test_a_sweep_of_exactly_this_name_wins_over_longer_names(
    done: hpq.Sweep, sweep_of: MakeSweep, desk: Desk
) -> None:
    sweep_of(1, "demo-confirm-00000")
    assert hpq.Sweep("demo") == done
    assert "demo-00000" in desk.hpq("show", "demo").stdout
    with raises("sweep-ambiguous", "demo-confirm-00000"):
        hpq.Sweep("dem")


def test_a_sweep_has_its_trials_by_number(done: hpq.Sweep) -> None:
    assert done[2].number == 2 and [trial.number for trial in done] == [1, 2, 3]
    with raises("trial-not-found"):
        done[0]
    assert hpq.enqueue(SWEEP).parameters == {"x": {"values": [1, 2, 3]}}


def test_a_trial_has_its_parameters_values_attempts_log_and_failure(done: hpq.Sweep) -> None:
    trial = done.trial(2)
    assert (trial.id, trial.number, trial.state, trial.params) == (
        "demo-00000/2",
        2,
        "finished",
        {"x": 2},
    )
    assert (trial.objective, trial.last["acc"], trial.best, trial.step) == (
        0.8,
        0.8,
        {"acc": 0.9},
        3,
    )
    assert math.isnan(trial.last["loss"]) and trial.files == {} and trial.failure is None
    assert trial.started is not None and trial.ended is not None and trial.started <= trial.ended
    (attempt,) = trial.attempts()
    assert (attempt.number, attempt.worker, attempt.end) == (1, "w1", "finished")
    assert (trial.log(), trial.log(tail=1)) == ("line 1\nline 2\n", "line 2\n")
    failure = done.trial(3).failure
    assert failure is not None and (failure.kind, failure.message) == ("user_error", HOSTILE)


def test_a_trial_that_is_to_run_again_has_no_best_value(
    done: hpq.Sweep, control: SweepControl, take: Take
) -> None:
    control.retry(done.id, [2])
    assert (done.trial(2).best, done.trial(2).objective) == ({}, None)
    assert claimed(take).attempt == 2 and done.trial(2).best == {}


def test_best_is_what_the_command_prints(done: hpq.Sweep, desk: Desk) -> None:
    assert done.best().number == 2 and done.best("x < 2").number == 1
    assert desk.hpq("best", done.id).stdout.splitlines()[0] == f"trial  {done.best().id}"


def test_trials_are_filtered_and_sorted_as_results_are(done: hpq.Sweep) -> None:
    def numbers(*words: str, **options: object) -> list[int]:
        return [trial.number for trial in done.trials(*words, **options)]  # type: ignore[arg-type]

    assert numbers(sort="objective") == [2, 1, 3] and numbers(top=1) == [2]
    assert numbers("param.x > 1 and state == failed") == numbers(state="failed") == [3]
    assert numbers("last.acc > 0.6") == numbers("best.acc > 0.8") == numbers("x == 2") == [2]
    assert numbers("failure.kind == user_error and failure.message != x") == [3]
    with raises("filter-name-unknown", "acc, loss"):
        done.trials("nope > 1")
    for wrong in (done.best, done.trials):
        with raises("usage", "top=3"):
            wrong(3)  # type: ignore[operator]
    with raises("usage", "queued, running"):
        done.trials(state="done")
    with raises("filter-name-unknown", "nope"):
        done.trials("nope > 1")
    with raises("expression-invalid"):
        done.trials("x >")


def test_history_is_every_value_in_long_form(done: hpq.Sweep) -> None:
    frame = done.history()
    assert tuple(frame.columns) == HISTORY_COLUMNS
    assert len(frame) == 12 and set(frame["attempt"]) == {1}
    second = frame[(frame["trial"] == 2) & (frame["metric"] == "acc")]
    assert list(zip(second["step"], second["value"], strict=True)) == [(1, 0.7), (2, 0.9), (3, 0.8)]
    assert frame[frame["metric"] == "loss"]["value"].isna().sum() == 2
    assert str(frame["received"].dtype).startswith("datetime64")
    assert frame["received"].dt.tz is not None
    assert set(done.history(["acc"])["metric"]) == set(done.history("acc")["metric"]) == {"acc"}
    assert len(done.trial(1).history()) == 6 == 2 * len(done.trial(1).history(metric="acc"))
    for read in (done.history, done.trial(1).history):
        with raises("column-unknown", "'nope'", "acc, loss"):
            read(["acc", "nope"])


def test_history_names_the_attempt_of_each_value(
    store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, take: Take, reader: StoreReader
) -> None:
    """A resumed trial keeps the values up to its checkpoint, which an earlier attempt reported."""

    def pass_a_millisecond() -> None:
        before = reader.now_ms()
        while reader.now_ms() == before:
            pass

    sweep = sweep_of(1)
    for begin in (1, 3, 5):
        got = claimed(take)
        assert got.attempt == (begin + 1) // 2
        points = tuple(Point(step=s, name="acc", value=s / 10) for s in (begin, begin + 1))
        saved = Checkpoint(store="s", path=f"p{begin}", step=begin + 2)
        batch = ReportBatch(seq=1, step=begin + 1, points=points, checkpoint=saved)
        store.beat(got, who, batch, lease_ms=30_000)
        if begin < 5:
            pass_a_millisecond()  # as between two claims of any worker
            store.release(got, Reason.STOPPING)
    frame = hpq.Sweep(sweep.id).history()
    assert list(zip(frame["step"], frame["attempt"], strict=True)) == [
        (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3),
    ]  # fmt: skip


def test_to_pandas_has_a_row_a_trial(done: hpq.Sweep) -> None:
    frame = done.to_pandas().set_index("trial")
    assert list(frame.columns[:4]) == ["sweep", "state", "param.x", "objective"]
    assert list(frame["param.x"]) == [1, 2, 3]
    assert list(frame["last.acc"].fillna(-1)) == [0.5, 0.8, -1]
    assert list(frame["best.acc"].fillna(-1)) == [0.5, 0.9, -1]
    assert list(frame["failure.kind"].fillna("")) == ["", "", "user_error"]
    assert frame["ended"].notna().all()


def test_nested_parameters_are_columns_and_names_of_columns_do_not_collide(
    done: hpq.Sweep,
) -> None:
    space = {"opt": {"parameters": {"lr": {"values": [0.1, 0.2]}}}, "state": {"value": "on"}}
    frame = hpq.enqueue(SWEEP | {"parameters": space}).to_pandas()
    assert list(frame["param.opt.lr"]) == [0.1, 0.2]
    assert list(frame["param.state"]) == ["on", "on"] and list(frame["state"]) == ["queued"] * 2


def test_wait_returns_the_ended_sweep(done: hpq.Sweep) -> None:
    assert done.wait(timeout=DEADLINE_S) is done and done.state == "finished"


def test_wait_for_a_sweep_without_workers_ends_with_its_timeout(
    sweep_of: MakeSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = hpq.Sweep(sweep_of(1).id)
    with raises("timed-out", "0/1") as caught:
        sweep.wait(timeout=0)
    assert isinstance(caught.value, hpq.TimedOut) and not isinstance(caught.value, Held)
    assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, HpqError)
    assert "[no-worker]" in capsys.readouterr().err, "the reason is printed"


def test_cancel_stops_trials_or_the_sweep_of_its_owner(
    sweep_of: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = hpq.Sweep(sweep_of(5).id)
    with raises("trial-not-found", "/99"):
        sweep.cancel(1, 99)
    assert sweep.cancel(2, 3) == 2 and sweep.counts["cancelled"] == 2
    monkeypatch.setenv("HPQ_USER", "another")
    with raises("sweep-of-another") as caught:
        sweep.cancel()
    assert isinstance(caught.value, Forbidden)
    assert sweep.cancel(force=True) == 3 and sweep.state == "cancelled"


def test_unknown_and_removed_sweeps_and_trials_are_not_found(
    done: hpq.Sweep, control: SweepControl
) -> None:
    with raises("sweep-not-found"):
        hpq.Sweep("nope")
    with raises("trial-not-found"):
        done.trial(4)
    control.remove(done.id)
    for read in (done.trials, done.best, done.history, done.to_pandas, done.wait, done.cancel,
                 lambda: done.state, lambda: done.trial(1)):  # fmt: skip
        with pytest.raises(NotFound):
            read()
    assert "3/3" in repr(done), "as it was read last"


def test_a_sweep_without_results_has_tables_without_rows_of_results(
    sweep_of: MakeSweep, store: TrialStore, take: Take
) -> None:
    sweep = hpq.Sweep(sweep_of(2).id)
    with raises("no-result", "1 running; wait for one: hpq watch") as caught:
        claimed(take)
        sweep.best()
    assert isinstance(caught.value, HpqError)
    assert len(sweep.to_pandas()) == 2 and sweep.history().empty
    assert list(sweep.history().columns) == list(HISTORY_COLUMNS)
    bare = hpq.Sweep(sweep_of(1, "bare-00000", metric=None).id)
    with raises("no-result", "no metric"):
        bare.best()


def test_a_sweep_whose_trials_reported_another_metric_names_it(
    sweep_of: MakeSweep, store: TrialStore, take: Take
) -> None:
    sweep = hpq.Sweep(sweep_of(1).id)
    why = Failure(kind=FailureKind.UNREPORTED, message="the trial reported accuracy")
    store.commit(claimed(take), Outcome(state=TrialState.FINISHED, failure=why))
    with raises("no-result", "1 finished; the trial reported accuracy"):
        sweep.best()


def test_a_sweep_without_any_trial_has_empty_tables(sweep_of: MakeSweep) -> None:
    sweep = hpq.Sweep(sweep_of(0, sampler="random", run_cap=0).id)
    assert list(sweep.trials()) == [] and sweep.to_pandas().empty and sweep.history().empty
    assert "<table>" in sweep.trials()._repr_html_()


def test_curves_that_a_full_server_dropped_are_warned_of(
    done: hpq.Sweep, redis: object, keys: object
) -> None:
    redis.hset("hpq:t:demo-00000/1", "thinned", "1")  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="1 trial "):
        done.history()


def test_hostile_text_is_escaped_in_html(done: hpq.Sweep) -> None:
    trials = done.trials()
    html = trials._repr_html_()
    assert "<b onclick" not in html and "&lt;b onclick" in html and "&amp;amp;" in html
    assert html.count("<tr>") == 4 and "0.8000" in html
    assert HOSTILE in repr(trials), "the text form has the same rows"
    assert "<table>" in done._repr_html_() and "demo-00000" in hpq.sweeps()._repr_html_()
    assert repr(done) == "<sweep demo-00000: 3/3 trials ended>"
    best = done.best()
    assert repr(best) == "<trial demo-00000/2: finished, acc 0.8000, x=2>"
    assert best._repr_html_().count("<tr>") == 2 and "<td>2</td>" in best._repr_html_()


def test_a_long_list_shows_fifty_rows(sweep_of: MakeSweep) -> None:
    trials = hpq.Sweep(sweep_of(60).id).trials()
    assert (len(trials), trials._repr_html_().count("<tr>")) == (60, 51)
    assert "10 more" in trials._repr_html_() and "10 more" in repr(trials)


def test_without_pandas_the_remedy_is_named(
    done: hpq.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for read in (done.history, done.to_pandas):
        with raises("extra-missing", "pandas", "pip install pandas plotly") as caught:
            read()
        assert isinstance(caught.value, UserError) and "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "pip", None)  # as in an environment of `uv tool install`
    with raises("extra-missing", f"uv pip install --python {sys.executable} pandas plotly"):
        done.history()
    assert pandas is not None


def test_without_a_server_the_error_names_it(
    done: hpq.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPQ_REDIS_URL", "redis://127.0.0.1:1/0")
    with raises("redis-unreachable"):
        done.trials()


def test_importance_has_the_numbers_or_the_reason(done: hpq.Sweep, sweep_of: MakeSweep) -> None:
    assert "2 parameters" in done.importance().why_none
    with raises("no-result"):
        hpq.Sweep(sweep_of(1, "new-00000").id).importance()


def test_added_sets_are_trials_and_a_set_that_exists_is_the_older_one(
    desk: Desk, store: TrialStore, take: Take
) -> None:
    sweep = hpq.enqueue(SWEEP)
    end(store, claimed(take), 0.25)
    (trial,) = sweep.add({"x": 1})
    assert (trial.number, trial.state, trial.objective) == (1, "finished", 0.25)
    trials = sweep.add([{"x": 4}, {"x": 1}, {"x": 5}], outside=True)
    assert [(t.number, t.params["x"]) for t in trials] == [(4, 4), (1, 1), (5, 5)]
    assert [t.number for t in sweep.add({"x": 1}, again=True)] == [6]
    for bad, code in (
        ({"x": 9}, "outside-space"),
        ({"y": 1}, "unknown-parameter"),
        ({"x": math.nan}, "invalid-value"),
        ([{"x": 2}, {}], "missing-parameter"),
        ([], "invalid-value"),
        (["x"], "invalid-value"),
        ([{"x": n} for n in range(10_001)], "too-many-sets"),
    ):
        with pytest.raises(UserError) as caught:
            sweep.add(bad)
        assert [one.code for one in caught.value.notices] == [code]
        assert caught.value.code == code
    with raises("sweep-file-invalid"):  # several kinds
        sweep.add([{"x": 9}, {"y": 1}])
    with pytest.raises(SweepFileError) as caught:
        sweep.add({"x": math.inf}, outside=True)
    assert [one.code for one in caught.value.notices] == ["invalid-value"]
    with raises("sweep-file-invalid", "set"):
        sweep.add({"x": object()})
    assert sweep.counts["queued"] == 5
    (trial,) = sweep.add({"x": pandas.Series([7])[0]}, outside=True)  # numpy's number
    assert trial.params == {"x": 7} and type(trial.params["x"]) is int
