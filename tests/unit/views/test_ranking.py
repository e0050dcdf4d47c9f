"""A ranking and its effects in a narrow terminal: numbers are whole, bars keep their proportion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.sweep import Metric
from hpq.domain.trial import Pruning, TrialState
from hpq_views.analysis.importance import Importance, Share
from hpq_views.analysis.rank_results import progress_of, standings_of
from hpq_views.analysis.summary import SweepSummary
from hpq_views.command_output.comparison import comparison_cells
from hpq_views.command_output.results_table import result_row, show_ranking
from hpq_views.command_output.summary_page import effect_lines, rest_line
from hpq_views.text.charts import scale_of
from hpq_views.text.style import plain
from tests.support.views import sweep_view, trial_view

SWEEP = sweep_view(metric=Metric(name="val_loss"), varying=("learning_rate", "max_depth"))
LOSSES = (0.2, 0.4, 0.8)
TRIALS = [
    trial_view(
        number,
        params={"learning_rate": 0.008123 + number / 1e6, "max_depth": number},
        attempt=1,
        claimed_ms=1_000,
        ran_ms=13_000,
        objective=loss,
    )
    for number, loss in enumerate(LOSSES, 1)
]


@pytest.mark.parametrize(
    ("replicates", "order", "best"),
    [
        (1, [4, 2, 3, 1], [(1, 0.8), (2, 0.2), (4, 0.2)]),
        (2, [3, 1], [(1, 0.7), (2, pytest.approx(0.3))]),
    ],
)
def test_the_best_so_far_follows_the_ends_of_settings_and_not_their_numbers(
    replicates: int, order: list[int], best: list[tuple[int, float]]
) -> None:
    ends = {1: (0.4, 90), 2: (0.2, 50), 3: (0.6, 80), 4: (0.8, 10), 5: (0.1, 5)}
    trials = [
        replace(TRIALS[0], id=replace(TRIALS[0].id, number=n), objective=value, ended_ms=ended)
        for n, (value, ended) in ends.items()
    ]
    trials[-1] = replace(trials[-1], state=TrialState.FAILED)
    sweep = replace(SWEEP, replicates=replicates)
    found = progress_of(standings_of(sweep, trials), trials)
    assert (found.order, found.best) == (order, best)


@pytest.mark.parametrize("columns", [30, 36, 44, 60, 80, 200])
def test_a_ranking_shows_numbers_whole_and_bars_in_proportion(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_ranking([SWEEP], TRIALS, scale_of(LOSSES))
    said = capsys.readouterr().out
    header, *lines = said.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert "0.008124" in said and "0.008126" in said and "…" not in "".join(lines[:3])
    assert columns < 80 or header.split()[:5] == ["rank", "#", *SWEEP.varying, "time"]
    bars = [line.count("█") for line in lines[:3]]
    assert abs(bars[2] - 4 * bars[0]) <= 4 and bool(bars[2]) == (columns >= 44)
    shortened = "learning_rate" not in header
    assert ("= learning_rate" in " ".join(said.split())) == shortened


@pytest.mark.parametrize(("columns", "has_bars"), [(41, False), (48, True), (80, True)])
def test_effects_scale_their_bars_to_the_room_or_leave_them_out(
    columns: int, has_bars: bool
) -> None:
    lines = [plain(line) for line in effect_lines(SweepSummary(SWEEP).add(TRIALS * 2), columns)]
    rows = [line for line in lines if "trial" in line]
    assert rows and all(len(line) <= columns for line in rows)
    assert any("█" in line for line in rows) == has_bars


def test_medians_and_means_are_of_finished_trials_and_say_how_many_they_leave_out() -> None:
    pruned = [replace(t, state=TrialState.PRUNED, objective=1234.0) for t in TRIALS]
    summary = SweepSummary(SWEEP).add([*TRIALS * 2, *pruned])
    _, title, counts, *rows = [plain(line) for line in effect_lines(summary, 80)]
    assert "lower is better" in title, "a long bar reads as a good one"
    assert "6 finished" in counts and "3 pruned" in counts and len(counts) < 80
    assert not any("1234" in row for row in rows)
    assert len({row.index("trial") for row in rows if "trial" in row}) == 1
    cells = comparison_cells(summary, (), "finished", summary.importance)
    assert "of 6 finished" in cells["median"] and "3 pruned" in cells["median"]
    (rest,) = map(plain, rest_line(standings_of(SWEEP, TRIALS), summary, 1))
    assert "of 6 finished" in rest and "3 pruned" in rest


def test_effects_come_in_the_order_of_importance_if_it_is_known() -> None:
    summary = SweepSummary(SWEEP).add(
        replace(one, params={"learning_rate": n // 4, "max_depth": n % 2}, objective=loss)
        for n, (one, loss) in enumerate(zip(TRIALS * 4, range(12), strict=False))
    )
    names = ["max_depth", "learning_rate"]
    shares = [
        Share(param=name, share=s, low=s, high=s) for name, s in zip(names, (1, 0), strict=True)
    ]

    def order(importance: Importance) -> list[str]:
        lines = "\n".join(plain(line) for line in effect_lines(summary, 80, importance))
        return sorted(names, key=lines.index)

    assert order(Importance(sets=12)) == ["learning_rate", "max_depth"]
    assert order(Importance(sets=12, shares=tuple(shares))) == names


def test_replicates_count_once_in_a_median_as_in_the_ranking() -> None:
    losses = (0.1, 0.5, 0.2, 0.2, 0.9)  # the last setting has one of two runs
    trials = [
        replace(TRIALS[0], id=replace(TRIALS[0].id, number=n), objective=loss)
        for n, loss in enumerate(losses, 1)
    ]
    sweep = replace(SWEEP, replicates=2)
    summary = SweepSummary(sweep).add(trials)
    cells = comparison_cells(summary, (), "finished", summary.importance)
    assert cells["median"].startswith("0.3000 of 3 settings")
    ranking = standings_of(sweep, trials)
    assert sorted(summary.typical) == sorted(ranking.groups[n].mean for n in ranking.order)


def test_replicates_count_once_in_effects_with_their_mean() -> None:
    losses = (0.1, 0.5, 0.2, 0.2, 0.9, 0.9, 0.4, 0.6)
    trials = [
        replace(
            TRIALS[0],
            id=replace(TRIALS[0].id, number=n),
            params={"learning_rate": 0.1, "max_depth": 1 + (n > 4)},
            objective=loss,
        )
        for n, loss in enumerate(losses, 1)
    ]
    summary = SweepSummary(replace(SWEEP, replicates=2)).add(trials)
    (found,) = summary.effects
    assert [(x.label, x.count, x.median) for x in found.levels] == [
        ("1", 2, pytest.approx(0.25)),
        ("2", 2, pytest.approx(0.7)),
    ]
    lines = [plain(line) for line in effect_lines(summary, 80)]
    assert "of 4 settings (8 runs)" in lines
    assert sum("2 settings" in line for line in lines) == 2


def test_results_say_why_a_trial_was_pruned() -> None:
    why = Pruning(rule="median", band=3, rank=5, n=6, threshold=0.5, value=0.9)
    one = replace(TRIALS[0], state=TrialState.PRUNED, pruning=why)
    assert result_row(one, SWEEP)[-1].text.startswith("median ")


def test_columns_that_do_not_fit_are_counted_below_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"p{n}" for n in range(9))
    wide = replace(SWEEP, varying=names)
    trials = [replace(t, params=dict.fromkeys(names, 0.0123456)) for t in TRIALS]
    monkeypatch.setenv("COLUMNS", "50")
    show_ranking([wide], trials)
    header, *_, last = capsys.readouterr().out.splitlines()
    shown = sum(name in header.split() for name in names)
    assert 0 < shown < 9 and last == f"(+{9 - shown} columns)"
