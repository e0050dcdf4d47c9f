"""Events as lines, bars, and what a summary says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hpq.domain.budget import Budget
from hpq.domain.status import DurationStats, Event, SweepStatus
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import Counts, Goal, Metric
from hpq.domain.trial import Failure, FailureKind, Json, Params, TrialState, TrialView
from hpq.error_codes import ExitCode
from hpq.errors import UserError
from hpq.notice import plural
from hpq_views.analysis.summary import SweepSummary, effect
from hpq_views.command_output.comparison import result_cells
from hpq_views.command_output.summary_page import effect_lines, failure_lines
from hpq_views.follow import SweepUpdate
from hpq_views.text.charts import bar, ends_of, scale_of
from hpq_views.text.style import Span, fold, plain
from hpq_views.text.tables import Column, lay
from hpq_views.watch.event_log import event_line, event_lines
from hpq_views.why.verdict import exit_code
from hpq_worker.process import devices
from tests.support.golden import Golden
from tests.support.views import held, sweep_view, trial_view

SWEEP = sweep_view(metric=Metric(name="test/acc", goal=Goal.MAXIMIZE), varying=("lr",))


def _trial(number: int, lr: float, objective: float | None, **fields: object) -> TrialView:
    params = {"lr": lr, "seed": 1}
    base = {"params": params, "objective": objective, "claimed_ms": 1_000, "ran_ms": 13_000}
    return trial_view(number, **{"attempt": 1, **base, **fields})


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("finished", {"objective": "0.94"}),
        ("claimed", {"worker": "w1"}),
        ("failed", {"kind": "user_error", "error": "KeyError\x1b[31m: x"}),
        ("requeued", {"reason": "lost"}),
        ("something else", {}),
    ],
)
def test_an_event_of_a_trial_is_one_line(golden: Golden, what: str, fields: dict[str, str]) -> None:
    event = Event(id="14000-0", what=what, trial=7, attempt=1, fields=fields)
    golden.check("watch", f"event: {what}", event_line(event, _trial(7, 0.4, 0.94), SWEEP))


def test_why_another_sampler_suggested_is_printed_once() -> None:
    said = set[str]()
    events = [
        Event(id=f"{n}-0", what="suggested", trial=n, fields={"by": by})
        for n, by in enumerate(
            ["tpe as torch is missing", "tpe as torch is missing", "gp", "tpe as gp was killed"], 1
        )
    ]
    trials = {event.trial: _trial(event.trial, 0.4, None) for event in events}
    status = SweepStatus(
        sweep=SWEEP, at_ms=0, running=(), best=(), recent=(), workers=(),
        durations=DurationStats(), last_event="9-0",
    )  # fmt: skip
    lines = event_lines(SweepUpdate(status=status, events=events, trials=trials), said)
    assert [line.partition("  ")[0] for line in lines] == [
        "#1 suggested by tpe as torch is missing", "#2 suggested by tpe",
        "#3 suggested by gp", "#4 suggested by tpe as gp was killed",
    ]  # fmt: skip


def test_one_of_anything_is_not_several() -> None:
    with pytest.raises(UserError) as refused:
        devices.slots(["0"], 2, 1)
    assert [plural(n, "trial") for n in (0, 1, 1.0, 1.5, 2)] == [
        "trials", "trial", "trial", "trials", "trials",
    ]  # fmt: skip
    assert plural(2, "entry", "entries") == "entries"
    texts = (
        Budget.of_hours(1, 0).limits, Budget.of_hours(1, 0).usage,
        str(refused.value), devices.idle(["0", "1", "2"], 2),
        event_line(Event(id="1-0", what="added", fields={"count": "1"}), None, SWEEP),
        event_line(Event(id="1-0", what="created", fields={"count": "1"}), None, SWEEP),
    )  # fmt: skip
    assert not [text for text in texts if re.search(r"\b1 (?:more )?(?:GPU-)?[a-zA-Z]+s\b", text)]


def test_an_event_of_the_sweep_is_one_line() -> None:
    assert event_line(
        Event(id="1-0", what="held", fields={"id": "alike", "why": "5 of 5"}), None, SWEEP
    ) == ("held: 5 of 5")
    spent = Event(id="1-0", what="held", fields={"id": "budget.until", "why": ""})
    assert event_line(spent, None, SWEEP).endswith("fits budget.until")
    created = Event(id="1-0", what="created", fields={"count": "16"})
    assert event_line(created, None, SWEEP).startswith("demo-00000: 16 trials")
    assert "budget.gpu_hours" in event_line(Event(id="1-0", what="budget"), None, SWEEP)


def test_a_bar_is_as_long_as_its_value() -> None:
    scale = scale_of([0.0, 5.0, 10.0])
    assert [len(bar(v, scale, 10)) for v in (0.0, 5.0, 10.0)] == [0, 5, 10]


def test_values_that_are_alike_are_points_between_two_ends_and_no_bars() -> None:
    scale = scale_of([0.90, 0.95])
    points = [bar(value, scale, 20) for value in (0.90, 0.925, 0.95)]
    assert [text.index("●") for text in points] == [0, 10, 19]
    assert "0.9000" in ends_of(scale) and "0.9500" in ends_of(scale)
    assert ends_of(scale_of([0.0, 5.0])) == ""


def test_one_outlier_does_not_hide_what_the_other_values_differ_in() -> None:
    scale = scale_of([0.1, 0.2, 0.3, 0.4, 0.5, 1e6])
    assert (scale.low, scale.high) == (0, 0.5)
    assert [len(bar(v, scale, 10).strip()) for v in (0.1, 0.5, 1e6)] == [2, 10, 10]
    assert bar(1e6, scale, 10).endswith("▶") and "▶" in ends_of(scale)
    alike = scale_of([-50.0, 0.90, 0.91, 0.92, 0.93, 0.95])
    assert alike.low == 0.90 and bar(-50.0, alike, 10) == "◀" + "·" * 9
    assert scale_of([1.0, 1.0, 1.0, 1.0, 9.0]).high == 9.0
    clusters = scale_of([*[0.70] * 3, 0.801, 0.802, 0.803, 0.804, 0.805, 0.806, *[0.90] * 3])
    assert not clusters.is_cut, "the best values are no outliers"


def test_bars_of_what_is_not_finite_are_empty() -> None:
    scale = scale_of([float("nan"), 1.0, float("inf")])
    assert bar(float("nan"), scale, 10) == ""
    assert bar(1.0, scale, 10) == "█" * 10


def test_the_median_and_mean_of_each_value_are_shown() -> None:
    tally = SweepSummary(SWEEP).add(
        _trial(i, [0.1, 0.4][i % 2], [0.5, 0.9][i % 2]) for i in range(6)
    )
    (found,) = tally.effects
    assert [(x.label, x.count, x.median, round(x.mean, 3)) for x in found.levels] == [
        ("0.1", 3, 0.5, 0.5),
        ("0.4", 3, 0.9, 0.9),
    ]
    assert any("0.9000" in plain(line) for line in effect_lines(tally))


def test_of_very_many_results_the_parameters_of_some_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hpq_views.analysis.summary._MOST_SETS", 40)
    tally = SweepSummary(SWEEP).add(
        _trial(i, [0.1, 0.4][i % 2], [0.5, 0.9][i % 2]) for i in range(1000)
    )
    assert len(tally.objectives) == 1000 and tally.importance.of == 1000
    (found,) = tally.effects  # a stride would keep one value
    assert sum(x.count for x in found.levels) == 40 and all(x.count > 9 for x in found.levels)
    assert tally.counted == "of 40 drawn of 1,000 finished trials"


def test_one_diverged_trial_does_not_change_the_order_of_values() -> None:
    losses = {0.1: [0.5, 0.6, 900.0], 0.4: [0.8, 0.9, 1.0]}
    trials = [_trial(i, lr, loss) for lr in losses for i, loss in enumerate(losses[lr])]
    (found,) = SweepSummary(SWEEP).add(trials).effects
    assert [level.median for level in found.levels] == [0.6, 0.9]
    assert found.size == pytest.approx(0.3)


def test_few_trials_tell_nothing_of_effects() -> None:
    assert SweepSummary(SWEEP).add(_trial(i, 0.1 * i, 0.5) for i in range(3)).effects == []


def test_many_numbers_are_put_into_quarters() -> None:
    found = effect("lr", list(range(100)), [v / 100 for v in range(100)])
    assert found is not None
    assert [level.label for level in found.levels] == [
        "0 to 24",
        "25 to 49",
        "50 to 74",
        "75 to 99",
    ]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([96] * 5 + [192] * 6 + list(range(200, 256, 8)), ["96", "192", "200 to 216"]),
        ([1, 2, 3, 4] + [5] * 20 + [6, 7, 8, 9], ["1 to 5", "6 to 9"]),
        ([0.12341, 0.12342, 0.12343, 0.12344, 1, 2, 3, 4], ["0.1234", "1 to 2", "3 to 4"]),
    ],
)
def test_equal_values_are_never_in_two_bars(values: list[float], labels: list[str]) -> None:
    found = effect("units", values, [0.5] * len(values))
    assert found is not None
    shown = [level.label for level in found.levels]
    assert [label for label in labels if label not in shown] == []
    assert sum(level.count for level in found.levels) == len(values)


def test_a_parameter_with_few_values_has_a_bar_for_each() -> None:
    found = effect("batch", [96, 192, 192, 192, 208, 96, 208, 256], [0.5] * 8)
    assert found is not None
    assert [level.label for level in found.levels] == ["96", "192", "208", "256"]


def test_nested_parameters_have_effects_of_their_own() -> None:
    sweep = replace(SWEEP, varying=("optimizer.lr", "optimizer.name"))
    trials = [
        _trial(i, 0, i / 10, params={"optimizer": {"lr": i % 2, "name": "ab"[i // 4]}})
        for i in range(8)
    ]
    effects = SweepSummary(sweep).add(trials).effects
    assert [(e.param, [level.label for level in e.levels]) for e in effects] == [
        ("optimizer.name", ["a", "b"]),
        ("optimizer.lr", ["0", "1"]),
    ]


def test_a_parameter_that_a_condition_leaves_out_of_a_set_has_no_level_there() -> None:
    sweep = replace(SWEEP, varying=("momentum",))
    some: list[dict[str, Json]] = [{"momentum": 0.5}, {"momentum": 0.9}, {}]
    trials = [_trial(i, 0, float(i % 3), params=some[i % 3]) for i in range(9)]
    (found,) = SweepSummary(sweep).add(trials).effects
    levels = [(level.label, level.count, level.mean) for level in found.levels]
    assert levels == [("0.5", 3, 0.0), ("0.9", 3, 1.0)]


def test_failures_are_counted_by_kind_with_an_example() -> None:
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="CUDA out of memory")
    failed = [_trial(i, 0.1, None, state=TrialState.FAILED, failure=failure) for i in (3, 4)]
    lines = [plain(line) for line in failure_lines(SweepSummary(SWEEP).add(failed))]
    assert lines[-1] == "out of memory: 2 trials  demo-00000/3: CUDA out of memory"


RUN = {"attempt": 1, "claimed_ms": 1_000, "ran_ms": 13_000}


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize(
    ("failing", "others", "common"),
    [
        ({"boosting": "rf"}, {"boosting": "gbdt"}, "all 6 have boosting=rf"),
        ({"boosting": None}, {"boosting": "gbdt"}, "all 6 have boosting=null"),
        ({"boosting": "gbdt"}, {"boosting": "gbdt"}, ""),
        ({"boosting": "rf"}, None, ""),
    ],
)
def test_what_failed_trials_have_in_common_is_named_for_each_kind(
    kind: FailureKind, failing: dict[str, Json], others: dict[str, Json] | None, common: str
) -> None:
    sweep = replace(SWEEP, varying=("boosting", "lr"))
    failure = Failure(kind=kind, message="m")
    failed = [
        trial_view(
            n, params={**failing, "lr": n % 3}, failure=failure, state=TrialState.FAILED, **RUN
        )
        for n in range(1, 7)
    ]
    done = [
        trial_view(n, params={**(others or {}), "lr": n % 3}, objective=0.5, **RUN)
        for n in (range(7, 30) if others else ())
    ]
    (found,) = SweepSummary(sweep).add([*failed, *done]).failures
    assert found.count == 6 and list(found.common) == ([common] if common else [])


def test_two_errors_of_one_kind_are_two_failures() -> None:
    """A second error does not hide what the trials of the first have in common."""
    sweep = replace(SWEEP, varying=("scale", "lr"))
    errors = {"log": ("ValueError t.py:9", "no log of -1"), "none": ("exit status 3", "explodes")}

    def fails(n: int, scale: str) -> TrialView:
        fingerprint, message = errors[scale]
        failure = Failure(kind=FailureKind.USER_ERROR, message=message, fingerprint=fingerprint)
        params: Params = {"scale": scale, "lr": n % 3}
        return trial_view(n, params=params, failure=failure, state=TrialState.FAILED, **RUN)

    failed = [fails(n, "none" if n == 1 else "log") for n in range(1, 6)]
    done = [
        trial_view(n, params={"scale": "none", "lr": n % 3}, objective=0.5, **RUN)
        for n in range(6, 30)
    ]
    summary = SweepSummary(sweep).add([*failed, *done])
    first, second = summary.failures
    assert (first.count, second.count) == (4, 1)
    assert list(first.common) == ["all 4 have scale=log"] and not second.common
    lines = "\n".join(plain(line) for line in failure_lines(summary))
    assert "no log of -1" in lines and "explodes" in lines
    assert result_cells(summary, (), "")["failed"] == "program failed: 5"


def test_failed_trials_at_one_end_of_a_range_have_that_in_common() -> None:
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="m")
    failed = [
        _trial(n, 0.5 + n / 100, None, failure=failure, state=TrialState.FAILED)
        for n in range(1, 7)
    ]
    done = [_trial(n, n / 50, 0.5) for n in range(7, 27)]
    (found,) = SweepSummary(SWEEP).add([*failed, *done]).failures
    assert list(found.common) == ["all 6 have lr >= 0.51, as 1 of 20 trials with a result"]


def test_a_trial_that_finished_without_the_metric_is_counted_too() -> None:
    failure = Failure(kind=FailureKind.UNREPORTED, message="'acc' was never reported")
    finished = [_trial(3, 0.1, None, failure=failure)]
    lines = [plain(line) for line in failure_lines(SweepSummary(SWEEP).add(finished))]
    assert lines[-1] == "unreported: 1 trial  demo-00000/3: 'acc' was never reported"


@pytest.mark.parametrize(
    ("counts", "fields", "code"),
    [
        (Counts(finished=3), {}, ExitCode.DONE),
        (Counts(finished=2, failed=2, diverged=2), {}, ExitCode.SOME_FAILED),
        (Counts(finished=3, failed=1), {}, ExitCode.SOME_FAILED),
        (Counts(finished=2, pruned=1, cancelled=1), {}, ExitCode.DONE),
        (Counts(finished=3, cancelled=1), {"stored": StoredState.CANCELLED}, ExitCode.SOME_FAILED),
        (Counts(finished=3, cancelled=1), {"stored": StoredState.STOPPED}, ExitCode.DONE),
        (Counts(queued=3, failed=5), held("5 of 5"), ExitCode.HELD),
    ],
)
def test_the_exit_code_tells_how_a_sweep_ended(
    counts: Counts, fields: dict[str, object], code: ExitCode
) -> None:
    sweep = sweep_view(counts=counts, **fields)
    assert exit_code(sweep, 0.5) is code
    assert exit_code(sweep, None) is code, "without a metric"


@pytest.mark.parametrize(
    ("counts", "best", "code"),
    [
        (Counts(finished=3), 0.5, ExitCode.DONE),
        (Counts(finished=3), None, ExitCode.SOME_FAILED),
        (Counts(failed=3, diverged=3), None, ExitCode.SOME_FAILED),
        (Counts(finished=3, running=1), None, ExitCode.DONE),
    ],
)
def test_a_sweep_that_ended_without_any_objective_is_no_success(
    counts: Counts, best: float | None, code: ExitCode
) -> None:
    assert exit_code(replace(SWEEP, counts=counts), best) is code


def test_a_table_drops_what_is_least_needed_and_never_a_number_in_half() -> None:
    columns = [Column(title="#", right=True), Column(title="note", keep=1), Column(title="acc")]
    rows = [[Span("12"), Span("a long note"), Span("0.9426")]]
    layout = lay(columns, rows, 12)
    assert plain(layout.row(rows[0])) == "12  0.9426"
    assert plain(lay(columns, rows, 80).row(rows[0])) == "12  a long note  0.9426"


def test_an_event_of_a_newer_version_is_a_line_whatever_its_name() -> None:
    event = Event(id="1-0", what="repainted {0} {color}")
    assert event_line(event, None, SWEEP) == "repainted {0} {color}"


def test_a_line_ends_with_its_last_word_where_nothing_varies() -> None:
    event = Event(id="14000-0", what="claimed", trial=7, attempt=1, fields={"worker": "w1"})
    assert event_line(event, _trial(7, 0.4, 0.94), replace(SWEEP, varying=())) == "#7 started on w1"


def test_a_long_value_goes_on_below_where_it_began_and_nothing_of_it_is_lost() -> None:
    words = " ".join(f"word{i}" for i in range(12)) + " " + "x" * 50
    line = [Span("failed  "), Span(words)]
    folded = [plain(part) for part in fold(line, 30)]
    assert folded[:2] == ["failed  word0 word1 word2 ", "        word3 word4 word5 "]
    assert all(len(part) <= 30 and part[:8].isspace() for part in folded[1:])
    assert "".join(folded).replace(" ", "") == "failed" + words.replace(" ", "")
    assert fold(line, 500) == [line]
