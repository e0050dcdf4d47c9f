"""Early termination in words: rules, reasons, and what was saved."""

from __future__ import annotations

import pytest

from hpq.domain.status import Event
from hpq.domain.stored_state import StoredState, TargetReached
from hpq.domain.sweep import Goal, Metric
from hpq.domain.trial import Pruning, TrialState, TrialView
from hpq.yamlfile.strict_model import value_of
from hpq_producer.sweepfile.model import CommonKeys
from hpq_views.analysis.early_termination import (
    describe_early_end,
    describe_pruning,
    describe_rule,
    describe_target,
)
from hpq_views.analysis.history import attempts_of
from hpq_views.analysis.summary import SweepSummary
from hpq_views.command_output.summary_page import saved_lines
from hpq_views.text.style import plain
from hpq_views.watch.event_log import event_line
from tests.support.views import sweep_view, trial_view

SWEEP = sweep_view(
    metric=Metric(name="acc", goal=Goal.MAXIMIZE, target=0.9),
    stored=StoredState.STOPPED,
    why=TargetReached(trial=7, value=0.95, target=0.9),
)
TOLD = Pruning(rule="asha", band=4, rank=8, n=12, threshold=0.50001, value=0.5)


def trial(state: TrialState, minutes: float = 0, **fields: object) -> TrialView:
    return trial_view(7, state=state, ran_ms=round(60_000 * minutes), **fields)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"type": "hyperband", "min_iter": 3},
         ("hyperband, eta 3, strict,", "3, 9, 27, 81, …")),
        ({"type": "hyperband", "max_iter": 27, "s": 2, "eta": 2, "strict": False},
         ("hyperband, eta 2, not strict,", "6, 13")),
        ({"type": "asha", "max_iter": 16}, ("asha, eta 4,", "1, 4")),
        ({"type": "median"}, ("median, of 5", "1, 2, 3, 4, …")),
    ],
)  # fmt: skip
def test_a_rule_is_told_with_its_first_bands(
    file: dict[str, object], words: tuple[str, str]
) -> None:
    line = describe_rule(value_of(CommonKeys, "early_terminate", file).rule())  # type: ignore[arg-type]
    assert line.startswith(words[0]) and line.endswith(words[1])


def test_numbers_that_are_compared_are_told_apart() -> None:
    line = describe_pruning(TOLD, SWEEP)
    assert line.startswith("asha ") and "8 of 12" in line
    assert "acc 0.5 " in line and line.endswith(" 0.50001")
    assert describe_early_end(trial(TrialState.PRUNED, pruning=TOLD), SWEEP) == line
    finished = trial(TrialState.FINISHED, pruning=TOLD)
    assert describe_early_end(finished, SWEEP).startswith(f"{line}; ")


def test_what_a_target_ended_says_so() -> None:
    assert "#7 has acc 0.9500 >= 0.9" in describe_target(SWEEP)
    cancelled = describe_early_end(trial(TrialState.CANCELLED), SWEEP)
    assert "target" in cancelled and "#7" in cancelled
    event = Event(id="1-0", what="target", trial=7, attempt=1, fields={"touched": "24"})
    line = event_line(event, trial(TrialState.RUNNING), SWEEP)
    assert line.startswith("#7 ") and "24" in line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"rule":"asha","band":1,"rank":2,"n":3,"threshold":0.5,"value":0.25}',
         "2 of 3"),
        ('{"rule":"asha"}', ""),
        ("[", ""),
    ],
)  # fmt: skip
def test_the_order_to_stop_is_a_line_with_its_reason(text: str, reason: str) -> None:
    event = Event(id="1-0", what="prune", trial=7, attempt=1, fields={"why": text})
    line = event_line(event, trial(TrialState.RUNNING), SWEEP)
    assert line.startswith("#7 ") and reason in line and ("asha" in line) == bool(reason)


@pytest.mark.parametrize(
    ("finished", "stopped", "words"),
    [
        ([], [], ()),
        ([10], [], ()),
        ([], [1], ("1 trial ",)),
        ([9, 10, 30], [1, 4, 20], ("3 trials ", "15m", "17%", "10m", "median of 3")),
        ([10], [5], ("1 trial ", "5m", "25%", "10m", "median of 1")),
    ],
)
def test_what_was_saved_is_told_with_what_it_is_measured_against(
    finished: list[float], stopped: list[float], words: tuple[str, ...]
) -> None:
    tally = SweepSummary(SWEEP).add(
        trial(TrialState.FINISHED, minutes, step=9) for minutes in finished
    )
    tally.add(trial(TrialState.PRUNED, minutes, step=3) for minutes in stopped)
    line = "".join(plain(text) for text in saved_lines(tally))
    assert bool(line) == bool(words) and all(word in line for word in words), line
    assert ("%" in line) == bool(finished and stopped)


def test_a_trial_pruned_at_the_last_step_saved_nothing() -> None:
    done = [trial(state, 10, step=9) for state in (TrialState.FINISHED, TrialState.PRUNED)]
    assert SweepSummary(SWEEP).add(done).saved is None


def test_a_queued_retry_that_was_cancelled_leaves_the_last_attempt_as_it_ended() -> None:
    def event(at_ms: int, what: str, **fields: str) -> Event:
        return Event(id=f"{at_ms}-0", what=what, trial=7, attempt=1, fields=fields)

    story = [event(1000, "claimed"), event(3000, "failed", kind="out_of_memory")]
    story += [event(4000, "retried"), event(9000, "cancelled")]
    (one,) = attempts_of(story, trial(TrialState.CANCELLED, 0.2, attempt=1))
    assert (one.end, one.kind, one.ran_ms) == ("failed", "out_of_memory", 2000)
