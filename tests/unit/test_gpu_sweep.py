"""What the GPU's benchmark says of trials in runners: of sets that are cut, fail or diverge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.figures import Figure
from benchmarks.gpu import sections, steps, sweep
from benchmarks.gpu.__main__ import FULL, plan
from benchmarks.gpu.runners import Ran, runners
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, Rows, Timed
from worker.trainers import step
from worker.trainers.device import Plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
LAB = Lab(data=Path(), cache=Path(), place=torch.device("cpu"), size=FULL)


@dataclass(kw_only=True)
class Runners:
    """Runners in a time of their own; `fails` says why a trial of so many at once does."""

    takes_s: float = 10.0
    silent: tuple[int, ...] = ()  # trials that diverge before they report
    fails: Callable[[int], str] = lambda count: ""
    now: float = 0.0
    trials: int = 0

    @contextmanager
    def started(self, lab: Lab, count: int) -> Iterator[list[SimpleNamespace]]:
        yield [SimpleNamespace(started=self.now) for _ in range(count)]

    def together(self, some: list[object], params: dict[str, int], clock: Clock) -> list[Ran]:
        if why := self.fails(len(some)):
            raise RuntimeError(why)
        ran = Ran(sent=self.now, first_s=self.takes_s / 24, accuracy=0.9)
        if self.trials not in self.silent:
            # The first epoch begins a second after it is sent, and all of them are alike.
            ran.at = [self.now + 1 + self.takes_s * i / 24 for i in range(1, 1 + params["epochs"])]
        self.now = ran.ended = ran.at[-1] if ran.at else self.now + 2
        if self.now > clock.until:
            raise OutOfTime
        self.trials += 1
        return [ran for _ in some]


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Runners:
    found = Runners()
    monkeypatch.setattr(sweep, "runners", found.started)
    monkeypatch.setattr(sweep, "together", found.together)
    return found


def cut(rows: Rows) -> tuple[list[Figure], list[str], bool]:
    """Figures, lines, and whether time ran out."""
    found: list[Figure | str] = []
    ended = False
    try:
        for row in rows:
            found.append(row)
    except OutOfTime:
        ended = True
    figures = [row for row in found if isinstance(row, Figure)]
    return figures, [row for row in found if isinstance(row, str)], ended


def share() -> Clock:
    """What the whole run gives to G3, from a moment that is called 0."""
    return Clock(until=plan({})["G3"].most_s)


def test_sixteen_sets_within_the_target_are_said_with_it_alone(there: Runners) -> None:
    figures, said, _ = cut(sweep.in_a_runner(LAB, share()))
    whole = [figure for figure in figures if figure.what.startswith("G3 ")]
    assert [(f.what[:20], f.median, f.target, f.is_over) for f in whole] == [
        ("G3 16 of the 16 sets", 176, 200, False)
    ]
    assert said == []


def test_sixteen_sets_may_take_longer_than_their_target_and_are_marked(there: Runners) -> None:
    there.takes_s = 11.7
    (whole, *_), _, _ = cut(sweep.in_a_runner(LAB, share()))
    assert whole.what.startswith("G3 16 of the 16 sets")
    assert whole.median == pytest.approx(203.2) and whole.is_over


def test_sets_that_are_cut_are_held_to_the_target_scaled_up(there: Runners) -> None:
    there.takes_s = 25.0
    figures, said, ended = cut(sweep.in_a_runner(LAB, share()))
    assert said == ["cut short after 7 sets"] and not ended
    some, scaled, *_ = figures
    assert some.what.startswith("G3 7 of the 16 sets, from a runner's start, ")
    assert some.median == 7 * 26 and some.target is None
    assert scaled.what == "G3 16 sets, scaled up from these 7"
    assert scaled.median == pytest.approx(16 * 26) and scaled.is_over


@pytest.mark.parametrize("takes_s", [10.0, 25.0])
def test_both_starts_are_measured_whether_the_sets_were_cut_or_not(
    there: Runners, takes_s: float
) -> None:
    there.takes_s = takes_s
    figures, _, ended = cut(sweep.in_a_runner(LAB, share()))
    assert not ended
    assert [(f.what, f.median) for f in figures if f.what.startswith("G5 ")] == [
        ("G5 process start to first epoch, the first of this run", pytest.approx(1)),
        ("G5 process start to first epoch, data decoded", pytest.approx(1)),
    ]


def test_a_set_that_fails_ends_the_sweep_and_fails_the_run(there: Runners) -> None:
    there.fails = lambda count: "CUDA error: x" if there.trials == 3 else ""
    rows = sweep.in_a_runner(LAB, share())
    assert next(rows) == "failed: after 3 sets: RuntimeError: CUDA error: x"
    there.fails = lambda count: ""
    figures, said, _ = cut(rows)
    assert figures[0].target is None and said == []
    assert [f.what[:2] for f in figures] == ["G3", "G3", "G4", "G4", "G5", "G5"]


def test_a_set_without_a_report_makes_no_gap_and_no_start(there: Runners) -> None:
    there.silent = (0, 5)  # of batch 128 both
    figures, said, _ = cut(sweep.in_a_runner(LAB, share()))
    gaps = {f.what.rpartition(", ")[2]: f.values for f in figures if f.what.startswith("G4 ")}
    # Of 15: to the second, and those about the sixth, are left out.
    assert {what: len(values) for what, values in gaps.items()} == {
        "a shape that is kept": 11, "a new shape": 1,
    }  # fmt: skip
    assert all(values == pytest.approx([1000] * len(values)) for values in gaps.values())
    assert [f.what for f in figures if f.what.startswith("G5 ")] == [
        "G5 process start to first epoch, data decoded"
    ]
    assert said == ["2 of these sets diverged and took less time"]


def test_sets_that_all_diverge_at_once_are_a_sweep_still(there: Runners) -> None:
    there.silent = tuple(range(100))
    figures, said, _ = cut(sweep.in_a_runner(LAB, share()))
    assert [f.what[:2] for f in figures] == ["G3"]
    assert said == ["16 of these sets diverged and took less time"]
    assert list(sweep.sharing(LAB, Clock())) == [
        f"failed: batch {size}, {count} at once: RuntimeError: it diverged"
        for count in (1, 2, 4) for size in (128, 512)
    ]  # fmt: skip


def test_trials_at_once_are_measured_against_one_alone(there: Runners) -> None:
    figures, said, _ = cut(sweep.sharing(LAB, Clock()))
    assert [f.what.partition(" × ")[0] for f in figures] == [
        f"G6 batch {size}, {count} at once: {count}.00"
        for count in (1, 2, 4) for size in (128, 512)
    ]  # fmt: skip
    assert said == []


def test_where_one_alone_failed_no_ratio_is_said(there: Runners) -> None:
    there.fails = lambda count: "CUDA error: x" if count == 1 else ""
    figures, said, _ = cut(sweep.sharing(LAB, Clock()))
    assert said == [
        f"failed: batch {size}, 1 at once: RuntimeError: CUDA error: x" for size in (128, 512)
    ]
    assert [f.what for f in figures] == [
        f"G6 batch {size}, {count} at once: MFU unknown" for count in (2, 4) for size in (128, 512)
    ]


def test_runners_that_share_a_gpu_share_its_cores_as_a_workers_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with runners(LAB, 2) as some:
        for runner in some:
            environ = Path(f"/proc/{runner._child._process.pid}/environ").read_text().split("\0")
            assert f"OMP_NUM_THREADS={max(1, len(os.sched_getaffinity(0)) // 2)}" in environ
            assert "HPQ_TRIALS_PER_GPU=2" in environ


def test_the_memory_of_trials_at_once_is_what_the_gpu_has_less(
    there: Runners, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = iter((3.0, *(3 + 2.0 * n for n in (1, 1.5, 2, 3, 4, 6))))  # before, and after each
    monkeypatch.setattr(sweep, "_used", lambda lab: next(reads))
    figures, _, _ = cut(sweep.sharing(LAB, Clock()))
    assert [(f.what, f.median) for f in figures if f.unit == "GiB"] == [
        (f"G6 batch {size}, {count} at once: memory they hold{also}", gib)
        for count, size, also, gib in (
            (1, 128, "", 2), (1, 512, ", with batch 128's", 3),
            (2, 128, "", 4), (2, 512, ", with batch 128's", 6),
            (4, 128, "", 8), (4, 512, ", with batch 128's", 12),
        )
    ]  # fmt: skip


def test_a_technique_after_one_that_failed_has_no_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ladder = [what for what, _ in sections.ladder(LAB)]
    tried = iter(ladder)

    def few(*given: object) -> Timed:
        if next(tried) == ladder[1]:
            raise RuntimeError("CUDA error: x")
        return Timed(whole_s=1.0, epochs_s=[1.0], accuracy=0.9)

    monkeypatch.setattr(sections, "_few", few)
    figures, said, _ = cut(sections.ablation(LAB, Clock(), 512))
    assert said == [f"failed: batch 512, {ladder[1]}: RuntimeError: CUDA error: x"]  # exit code 1
    assert [f.what.endswith("the one before") for f in figures] == [False, False, True, True, True]


def test_a_graph_that_was_none_is_said_beside_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Timed(whole_s=1.0, epochs_s=[1.0], accuracy=0.9)
    shipped = Plan(dtype=torch.half, graph=True, whole_epoch=True, fill=8)
    monkeypatch.setattr(step, "_kept", type(step._kept)())
    monkeypatch.setattr(sections, "_few", lambda *_: usual)
    monkeypatch.setattr(sections.device, "plan", lambda _: shipped)
    monkeypatch.setattr(sections, "utilisation", lambda *_: "MFU unknown")
    lab = replace(LAB, place=torch.device("cuda"))
    _, said, _ = cut(sections.ablation(lab, Clock(), 512))
    assert said == ["failed: batch 512, + the step as a CUDA graph: it is none: no step is kept"]


@pytest.mark.parametrize(
    ("calls", "values"),
    [(3 + 9, [3, 3, 3]), (3 + 7, [3, 2, 2]), (3 + 1, [1]), (3, []), (2, [])],
)
def test_a_step_that_is_not_taken_apart_to_its_end_leaves_the_rounds_that_were(
    calls: int, values: list[int]
) -> None:
    left = iter(range(calls))

    def call() -> float:
        if next(left, None) is None:
            raise OutOfTime
        return 1.0

    figures, _, ended = cut(steps._beside("a step, ", dict.fromkeys("abc", call)))
    assert [len(figure.values) for figure in figures] == values
    assert ended == (calls < 12)
    assert all(figure.beside is figures[0] for figure in figures[1:])
