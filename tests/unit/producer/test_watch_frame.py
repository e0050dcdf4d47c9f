"""One frame of watch: never wider or taller than the terminal, the verdict first, inert text."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpq.codes import Notice
from hpq.domain.snapshot import DurationStats, ServerMemory, Snapshot, Worker
from hpq.domain.sweep import Counts, Goal, Launch, Metric, Sweep
from hpq.domain.trial import Failure, FailureKind, Params, TrialId, TrialState, TrialView
from hpq_producer.diagnosis.verdict import needed_actions
from hpq_producer.diagnosis.waiting import explain_waiting
from hpq_producer.terminal.style import TerminalInfo, paint, plain
from hpq_producer.terminal.text import width
from hpq_producer.watch.frame import LEAST_COLUMNS, LEAST_ROWS, Scene, frame, share

NOW = 1_000_000
VARYING = ("max_learning_rate", "batch_size", "optimizer")


def _trial(number: int, state: TrialState = TrialState.RUNNING, **fields: object) -> TrialView:
    params: Params = {"max_learning_rate": 0.1, "batch_size": 512, "optimizer": "adam", "epochs": 9}
    base: dict[str, object] = {
        "id": TrialId(sweep="demo-00000", number=number),
        "state": state,
        "params": params,
        "claimed_ms": NOW - 30_000,
        "beat_ms": NOW - 1_000,
        "ended_ms": NOW if state.is_terminal else 0,
        "step": 3,
        "objective": 0.5,
    }
    return TrialView(**{**base, **fields})  # type: ignore[arg-type]


def _scene(running: int = 2, **sweep: object) -> Scene:
    counts = Counts(queued=10, running=running, finished=4)
    base: dict[str, object] = {
        "id": "demo-00000",
        "name": "demo",
        "digest": "",
        "launch": Launch(trainer="digits"),
        "metric": Metric(name="test/acc", goal=Goal.MAXIMIZE),
        "varying": VARYING,
        "counts": counts,
        "created_ms": NOW - 120_000,
    }
    ended = [_trial(n, TrialState.FINISHED, objective=0.9) for n in range(101, 105)]
    worker = Worker(name="w1", worker_class="default", state="busy", seen_ms=NOW, device="GPU")
    shot = Snapshot(
        sweep=Sweep(**{**base, **sweep}),  # type: ignore[arg-type]
        at_ms=NOW,
        running=tuple(_trial(n) for n in range(1, running + 1)),
        best=tuple(ended),
        recent=tuple(ended),
        workers=(worker,) * 3,
        durations=DurationStats(ended=4, mean_ms=60_000, sd_ms=5_000),
        last_event="1-0",
    )
    return Scene(snapshot=shot, curves={n: [0.1, 0.5, 0.9] for n in range(1, running + 1)})


def _text(scene: Scene, columns: int = 80, rows: int = 24) -> list[str]:
    look = TerminalInfo(columns=columns, rows=rows)
    return [paint(line, look) for line in frame(scene, columns, rows)]


@given(
    st.integers(1, 250),
    st.integers(1, 80),
    st.integers(0, 30),
    st.text(max_size=60),
    st.sampled_from(["", "paused", "stopped", "cancelled"]),
)
def test_a_frame_never_exceeds_the_terminal_whatever_is_in_it(
    columns: int, rows: int, running: int, text: str, flag: str
) -> None:
    scene = _scene(running, held=text, flag=flag, varying=("max_learning_rate", text))
    broken = _trial(
        50,
        TrialState.FAILED,
        params={text: text, "max_learning_rate": text},
        failure=Failure(kind=FailureKind.USER_ERROR, message=text),
    )
    counts = Counts(queued=3, running=running, finished=4, failed=2)
    shot = replace(
        scene.snapshot,
        recent=(broken,),
        sweep=replace(scene.snapshot.sweep, counts=counts),
        workers=(Worker(name=text, device=text, state="idle"),),
    )
    notice = Notice("no-worker", text)
    lines = _text(replace(scene, snapshot=shot, not_taken=notice), columns, rows)
    assert len(lines) <= rows
    assert all(width(line) <= columns for line in lines)
    assert all(unicodedata.category(char) != "Cc" for line in lines for char in line)


@pytest.mark.parametrize("size", [(44, 10), (80, 24), (200, 50)])
def test_the_verdict_comes_first_and_running_trials_are_shown(size: tuple[int, int]) -> None:
    lines = _text(_scene(), *size)
    assert lines[0].startswith("demo-00000  running")
    head = " ".join(lines[:4])
    for words in ("4/16", "10 queued", "2 running", "4 finished", "2m00s", "left", "best test/acc"):
        assert words in head
    assert any(line.split()[:1] == ["1"] and "0.5000" in line for line in lines)


def test_a_terminal_that_is_too_small_gets_one_line_that_says_so() -> None:
    lines = frame(_scene(), LEAST_COLUMNS - 1, 24)
    assert [plain(line) for line in lines] == [f"too small: needs {LEAST_COLUMNS}x{LEAST_ROWS}"]


def test_what_needs_the_user_stands_above_the_trials() -> None:
    held, paused = _scene(held="5 of 5 KeyError train.py:31"), _scene(flag="paused")
    stuck = replace(_scene(running=0), not_taken=Notice("no-worker", "start one"))
    for scene, codes in (
        (held, ["sweep-held", "sweep-held-remedy"]),
        (paused, ["sweep-paused"]),
        (stuck, ["no-worker"]),
    ):
        needs = needed_actions(scene.snapshot, scene.not_taken)
        assert [notice.code for notice in needs] == codes
        above = _text(scene)[:6]
        assert all(any(f"! {notice.text}" in line for line in above) for notice in needs)


@pytest.mark.parametrize("size", [(80, 24), (44, 10)])
def test_what_helps_a_held_sweep_is_not_cut_off(size: tuple[int, int]) -> None:
    why = "canary #1 failed, user_error: exit status 1: KeyError: 'gpu' " + "and so on, " * 9
    bound = Launch(program="train.py", code_dir="/code", code="abc")
    scene = _scene(running=0, held=why, canary=2, launch=bound)
    said = " ".join(line.strip("! ") for line in _text(scene, *size))
    # Edited code is another sweep: a retry of this one would fail as before, or wait for ever.
    assert "hpq retry --failed demo-00000" in said and "enqueue" in said
    assert "canary #1 failed, user_error: exit" in said
    if size[1] > 10:
        assert "hpq resume demo-00000" in said


def test_the_command_that_starts_a_worker_is_shown_on_a_small_terminal(size=(44, 10)) -> None:
    why = "the one live worker of class 'default' is there for another sweep only (HPQ_SWEEP:"
    why += " other-11111); start one: hpq worker"
    said = " ".join(
        line.strip("! ")
        for line in _text(replace(_scene(0), not_taken=Notice("workers-pinned", why)), *size)
    )
    assert why in said


def test_a_failure_names_the_log_to_read() -> None:
    failure = Failure(kind=FailureKind.USER_ERROR, message="KeyError: 'lr'")
    scene = _scene(counts=Counts(queued=1, running=1, failed=1))
    recent = (_trial(7, TrialState.FAILED, failure=failure),)
    lines = _text(replace(scene, snapshot=replace(scene.snapshot, recent=recent)), columns=120)
    assert any("hpq logs demo-00000/7  user_error: KeyError: 'lr'" in line for line in lines)


def test_trials_that_diverged_do_not_ask_for_the_user() -> None:
    scene = _scene(counts=Counts(queued=1, running=1, failed=3, diverged=3))
    lines = _text(scene)
    assert any("3 failed (3 diverged)" in line for line in lines)
    assert not any(line.startswith("!") for line in lines)


def test_parameters_that_do_not_vary_are_not_shown() -> None:
    assert not any("epochs" in line for line in _text(_scene(), columns=200))


def test_a_scrolled_list_says_where_it_is() -> None:
    scene = _scene(running=30)
    shot = replace(scene.snapshot, running=scene.snapshot.running[10:])
    assert "running 11–30 of 30" in _text(replace(scene, snapshot=shot, skip=10))[-1]


def test_old_numbers_are_marked_as_old() -> None:
    lines = _text(replace(_scene(), stale="stale for 12s"))
    assert any("! stale for 12s" in line for line in lines[:5])


def test_a_trial_whose_worker_is_silent_says_so_and_has_no_estimate() -> None:
    shot = _scene(running=2).snapshot
    silent = replace(shot.running[0], beat_ms=NOW - 29_000)
    shot = replace(shot, running=(silent, shot.running[1]), silent_ms=15_000.0)
    lines = _text(Scene(snapshot=shot), columns=100)
    (one,) = [line for line in lines if "worker silent 29s" in line]
    assert "left" not in one
    (other,) = [line for line in lines if line.split()[:1] == ["2"]]
    assert "s left" in other
    assert any("silent 29s" in line for line in _text(Scene(snapshot=shot), columns=44))


def test_while_redis_is_away_nothing_is_estimated() -> None:
    shot = replace(_scene().snapshot, at_ms=NOW + 40_000, silent_ms=15_000.0, is_stale=True)
    lines = _text(Scene(snapshot=shot, stale="Connection refused: no answer for 40s"))
    assert not any("left" in line or "silent" in line for line in lines)
    assert any("1m10s" in line for line in lines), "ages go on"


def test_a_full_server_is_what_needs_the_user() -> None:
    shot = replace(
        _scene().snapshot, memory=ServerMemory(used=65 << 20, limit=64 << 20, policy="noeviction")
    )
    (why,) = (
        one for one in needed_actions(shot, explain_waiting(shot)) if one.code == "redis-memory"
    )
    assert "65.0 MiB of 64.0 MiB" in why.text
    roomy = replace(shot, memory=ServerMemory(used=65 << 20, limit=0, policy="noeviction"))
    codes = [one.code for one in needed_actions(roomy, explain_waiting(roomy))]
    assert "redis-memory" not in codes


def test_colour_adds_to_the_words_and_replaces_none() -> None:
    lines = frame(_scene(), 80, 24)
    coloured = [paint(line, TerminalInfo(colour=True)) for line in lines]
    assert any("\x1b[" in line for line in coloured)
    assert [plain(line).rstrip() for line in lines] == _text(_scene())


def test_without_unicode_a_frame_is_ascii_of_the_same_width() -> None:
    for line in frame(_scene(), 80, 24):
        shown = paint(line, TerminalInfo(unicode=False))
        assert shown.isascii()
        assert len(shown) == len(paint(line, TerminalInfo()))


def test_rows_are_shared_by_need_then_in_order() -> None:
    assert share(9, [20, 5, 5, 4], [5, 3, 3, 1], [2, 2, 2, 1]) == [5, 3, 0, 1]
    assert share(30, [3, 4, 4, 4], [5, 3, 3, 1], [2, 2, 2, 1]) == [3, 4, 4, 4]


def _headings(lines: list[str]) -> list[str]:
    return [line.split(" ─")[0] for line in lines if "─" in line]


def test_each_group_keeps_its_heading_when_nothing_runs() -> None:
    scene = _scene(running=0, counts=Counts(finished=4))
    for current in (_scene(), scene):
        lines = _text(current)
        (titles,) = [i for i, line in enumerate(lines) if line.lstrip().startswith("#  m")]
        assert [h for h in _headings(lines) if "workers" not in h] == ["last ended", "best"]
        assert titles < min(i for i, line in enumerate(lines) if "─" in line)


@pytest.mark.parametrize("size", [(80, 24), (44, 10), (100, 30)])
@pytest.mark.parametrize("running", [0, 2, 9])
def test_no_heading_stands_without_rows(size: tuple[int, int], running: int) -> None:
    lines = [line for line in _text(_scene(running), *size) if line and "q quits" not in line]
    for above, below in zip(lines, [*lines[1:], "─"], strict=True):
        assert not ("─" in above and "─" in below), lines


def test_a_page_that_is_printed_once_has_no_keys_and_no_blank_end() -> None:
    lines = _text(replace(_scene(), is_live=False), rows=200)
    assert lines[-1] and not any("q quits" in line for line in lines)
    assert len(_text(_scene(), rows=200)) == 200


@pytest.mark.parametrize("columns", [60, 70, 80])
def test_long_values_shrink_before_short_titles(columns: int) -> None:
    long = {"max_learning_rate": 0.1, "optimizer": "a-name-of-forty-characters-or-thereabouts"}
    trials = tuple(_trial(n, params=long) for n in (1, 2))
    scene = _scene(varying=("max_learning_rate", "optimizer"))
    lines = _text(replace(scene, snapshot=replace(scene.snapshot, running=trials)), columns)
    (header,) = [line for line in lines if line.lstrip().startswith("# ")]
    assert {"step", "time", "state"} <= set(header.split()), header


def test_a_sweep_whose_sets_are_yet_to_be_made_says_how_many() -> None:
    few = Counts(queued=1, running=2, finished=4, to_come=13)
    text = "\n".join(plain(line) for line in frame(_scene(counts=few), 120, 30))
    assert "4/20" in text and "left" in text


def test_an_open_ended_sweep_says_so_and_has_no_end_in_sight() -> None:
    endless = Counts(queued=1, running=2, finished=4, to_come=float("inf"))
    head = plain(frame(_scene(counts=endless), 120, 30)[0])
    assert "4/∞" in head and "open-ended" in head and " left" not in head


@pytest.mark.parametrize("is_live", [True, False])
def test_parameters_whose_names_had_to_be_shortened_are_named_in_full(is_live: bool) -> None:
    long = "model.optimizer.learning_rate"
    scene = replace(_scene(varying=(long, "batch_size")), is_live=is_live)
    wide = _text(scene, columns=160)
    assert any(long in line for line in wide) and not any(" = " in line for line in wide)
    *_, last = narrow = _text(scene)
    titles = next(line for line in narrow if line.strip().startswith("#"))
    short = titles.split()[1]  # after #
    assert f"{short} = {long}" in last and last.startswith("q quits" if is_live else short)


_MANY = ("optimizer.lr", "weight_decay", "warmup", "dropout", "scheduler.gamma", "beta", "eps")
_RATES = (1.613e-5, 0.0008731, 0.0001234, -3.25e-12, 0.00016180339)


def _crowded(
    columns: int, varying: tuple[str, ...] = _MANY, is_live: bool = True, **more: object
) -> list[str]:
    trials = tuple(
        _trial(n, params=dict.fromkeys(varying, rate), step=1200, objective=0.94216)
        for n, rate in enumerate(_RATES, 1)
    )
    scene = replace(_scene(varying=varying, **more), is_live=is_live)
    shot = replace(scene.snapshot, running=trials, best=(), recent=())
    curve = [0.1 * (i % 5) for i in range(30)]
    return _text(replace(scene, snapshot=shot, curves=dict.fromkeys(range(6), curve)), columns)


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 160])
def test_a_number_is_rounded_to_its_column_and_never_cut(columns: int) -> None:
    for line in _crowded(columns):
        if line.endswith("30s left") and line.lstrip()[:2] in ("1 ", "2 ", "3 ", "4 ", "5 "):
            shown = line.split()
            assert "…" not in line, line
            rate = _RATES[int(shown[0]) - 1]
            # What is left of it tells its size: never 0.000 of 0.0001234, or 1.613 of 1.613e-5.
            assert float(shown[1]) == pytest.approx(rate, rel=0.06), line


def test_the_curve_gives_room_before_a_number_is_rounded() -> None:
    roomy, narrow = _crowded(100, ("beta", "eps")), _crowded(74, ("beta", "eps", "lr"))
    for lines in (roomy, narrow):
        assert any("-3.25e-12" in line for line in lines)

    def curve(lines: list[str]) -> int:
        (line,) = [line for line in lines if line.lstrip().startswith("1 ")]
        return sum(char in "▁▂▃▄▅▆▇█" for char in line)

    assert curve(roomy) == 12 and 6 <= curve(narrow) < 12


def test_parameters_that_do_not_fit_are_counted_in_the_footer() -> None:
    lines = _crowded(80)
    (row,) = [line for line in lines if line.lstrip().startswith("1  ")]
    shown = row.count("e-5")
    assert 3 < shown < len(_MANY)
    assert lines[-2] == f"q quits  +{len(_MANY) - shown} parameters"
    assert not any(" parameters" in line for line in _crowded(200))


def test_a_legend_that_does_not_fit_has_a_line_of_its_own_with_the_metric_first() -> None:
    long = tuple(f"model.encoder.{word}_of_the_layer" for word in ("width", "depth"))
    name = "validation/epoch/mean_accuracy_top5"
    lines = _crowded(80, long, metric=Metric(name=name, goal=Goal.MAXIMIZE))
    assert lines[-2].startswith("q quits") and f" = {name}" in lines[-1].split(",")[0]
    assert len(lines) == 24


def test_titles_are_shortened_only_as_far_as_they_must_be() -> None:
    (titles,) = [
        line
        for line in _crowded(80, ("max_learning_rate", "momentum_of_sgd"))
        if line.lstrip().startswith("#")
    ]
    assert len(titles) >= 70 and ("learning_rate" in titles or "momentum_of" in titles), titles


def test_a_page_that_is_printed_once_has_the_whole_legend() -> None:
    long = tuple(f"model.encoder.{word}_of_the_layer" for word in ("width", "depth", "heads"))
    page = " ".join(" ".join(_crowded(60, long, is_live=False)).split())
    assert all(f" = {name}" in page for name in long)
