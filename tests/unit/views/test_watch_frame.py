"""One frame of watch: never wider or taller than the terminal, the verdict first, inert text.

`tests/golden/watch-frames.txt` holds whole frames; look at them when they change.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpq.domain.constraint import Constraint
from hpq.domain.status import DurationStats, ServerMemory, SweepStatus, Worker
from hpq.domain.stored_state import Cause, Hold, StoredState
from hpq.domain.sweep import Counts, Goal, Launch, Metric
from hpq.domain.trial import Failure, FailureKind, Params, Point, TrialState, TrialView
from hpq.notice import Notice
from hpq_views.analysis.pareto_front import front_of
from hpq_views.analysis.winner_evidence import judge
from hpq_views.command_output.sweep_table import SweepList
from hpq_views.text.charts import Scale
from hpq_views.text.style import TerminalInfo, paint
from hpq_views.text.text import to_ascii, width
from hpq_views.watch.frame import LEAST_COLUMNS, LEAST_ROWS, _scale_title, render
from hpq_views.watch.keys import Act, Mode, View, reduce
from hpq_views.watch.scene import Detail, Scene
from hpq_views.watch.trial_columns import shown_names
from hpq_views.why.verdict import needed_actions
from hpq_views.why.waiting import explain_waiting
from tests.support.golden import Golden
from tests.support.views import held, sweep_view, trial_view

NOW = 1_000_000


@pytest.fixture(autouse=True, scope="module")
def utc() -> Iterator[None]:
    """Times are of this zone, as in the golden file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


VARYING = ("max_learning_rate", "batch_size", "optimizer")


def _trial(number: int, state: TrialState = TrialState.RUNNING, **fields: object) -> TrialView:
    params: Params = {"max_learning_rate": 0.1, "batch_size": 512, "optimizer": "adam", "epochs": 9}
    base: dict[str, object] = {
        "state": state,
        "params": params,
        "claimed_ms": NOW - 30_000,
        "beat_ms": NOW - 1_000,
        "ended_ms": NOW if state.is_terminal else 0,
        "step": 3,
        "objective": 0.5,
    }
    return trial_view(number, **{**base, **fields})


def _scene(running: int = 2, **sweep: object) -> Scene:
    counts = Counts(queued=10, running=running, finished=4)
    base: dict[str, object] = {
        "metric": Metric(name="test/acc", goal=Goal.MAXIMIZE),
        "varying": VARYING,
        "counts": counts,
        "created_ms": NOW - 120_000,
    }
    ended = [_trial(n, TrialState.FINISHED, objective=0.9) for n in range(101, 105)]
    worker = Worker(name="w1", queue="default", state="busy", seen_ms=NOW, device="GPU")
    status = SweepStatus(
        sweep=sweep_view(**{**base, **sweep}),
        at_ms=NOW,
        running=tuple(_trial(n) for n in range(1, running + 1)),
        best=tuple(ended),
        recent=tuple(ended),
        workers=(worker,) * 3,
        durations=DurationStats(ended=4, mean_ms=60_000, sd_ms=5_000),
        last_event="1-0",
    )
    rows = (*ended, *status.running)
    curve = [(1.0, 0.1), (2.0, 0.5), (3.0, 0.9)]
    return Scene(
        status=status,
        rows=rows,
        total=len(rows),
        curves={n: curve for n in range(1, running + 1)},
    )


def _with(scene: Scene, *trials: TrialView, **changes: object) -> Scene:
    """The scene with these trials as its running ones and its list."""
    status = replace(scene.sweep_status, running=trials, **changes)  # type: ignore[arg-type]
    return replace(scene, status=status, rows=trials, total=len(trials))


def _text(
    scene: Scene, columns: int = 80, rows: int = 24, view: View | None = None, **look: bool
) -> list[str]:
    terminal = TerminalInfo(columns=columns, rows=rows, **look)
    return [paint(line, terminal) for line in render(view or View(), scene, terminal)[0]]


@settings(max_examples=60)
@given(
    st.integers(1, 250),
    st.integers(1, 80),
    st.integers(0, 30),
    st.text(max_size=60),
    st.sampled_from(StoredState),
)
def test_a_frame_never_exceeds_the_terminal_whatever_is_in_it(
    columns: int, rows: int, running: int, text: str, state: StoredState
) -> None:
    scene = _scene(running, **{**held(text), "stored": state}, varying=("max_learning_rate", text))
    broken = _trial(
        50,
        TrialState.FAILED,
        params={text: text, "max_learning_rate": text},
        failure=Failure(kind=FailureKind.USER_ERROR, message=text),
    )
    counts = Counts(queued=3, running=running, finished=4, failed=2)
    status = replace(
        scene.sweep_status,
        recent=(broken,),
        sweep=replace(scene.sweep_status.sweep, counts=counts),
        workers=(Worker(name=text, device=text, state="idle"),),
    )
    notice = Notice("no-worker", text)
    detail = Detail(trial=broken, curves={}, attempts=(), log=text)
    scene = replace(
        scene, status=status, not_taken=notice, rows=(broken, *scene.rows), detail=detail
    )
    for mode in Mode:
        view = View(mode=mode, trial=50, draft=text, filter=text, note=text, act=Act(verb="pause"))
        scene = replace(scene, sweeps=SweepList(sweeps=[status.sweep], best={status.sweep.id: 1.0}))
        lines = _text(scene, columns, rows, view)
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
    assert any(line.split()[:2] == ["▶", "101"] and "0.9000" in line for line in lines)
    is_running_seen = any(line.split()[:2] == ["●", "1"] and "0.5000" in line for line in lines)
    assert is_running_seen == (size[1] > 10)


def test_cancelled_trials_are_no_progress_and_counts_have_separators() -> None:
    (head, *_) = _text(_scene(counts=Counts(cancelled=4), stored=StoredState.CANCELLED))
    assert "············ 0/4  4 cancelled" in head
    (head, *_) = _text(_scene(counts=Counts(queued=3, finished=1, pruned=2, cancelled=4)))
    assert "━━━━━━······ 3/6  3 queued" in head
    (head, *_) = _text(_scene(counts=Counts(queued=1145, finished=1855)), 140, 40)
    assert "1,855/3,000  1,145 queued  1,855 finished" in head


def test_a_terminal_that_is_too_small_gets_one_line_that_says_so() -> None:
    lines = _text(_scene(), LEAST_COLUMNS - 1, 24)
    assert lines == [f"too small: needs {LEAST_COLUMNS}x{LEAST_ROWS}"]


def test_what_needs_the_user_stands_above_the_trials() -> None:
    failed = _scene(**held("5 of 5 trials failed: KeyError train.py:31"))
    paused = _scene(stored=StoredState.PAUSED)
    stuck = replace(_scene(running=0), not_taken=Notice("no-worker", "start one"))
    retry, resume = "hpq retry demo-00000", "hpq resume demo-00000"
    cancel = "hpq cancel demo-00000 --where EXPR"
    for scene, codes, words in (
        (
            failed,
            ["sweep-held", "sweep-held-remedy"],
            ["5 of 5 trials failed: KeyError train.py:31", f"{retry}; to drop trials that"],
        ),
        (paused, ["sweep-paused"], [resume]),
        (stuck, ["no-worker"], ["start one"]),
    ):
        needs = needed_actions(scene.sweep_status, scene.not_taken)
        assert [notice.code for notice in needs] == codes
        above = " ".join(line[2:].strip() for line in _text(scene)[:6])
        assert all(notice.text in above for notice in needs)
        assert scene is not failed or cancel in above
        assert all(word in notice.text for word, notice in zip(words, needs, strict=True))


def test_files_that_are_not_kept_and_disks_with_little_space_are_named() -> None:
    why = Notice("checkpoint-not-kept", "#7: cannot store a checkpoint: No space left")
    scene = _scene(unkept=2, unkept_why=why, unstored=1)
    low = [Worker(name=f"w{n}", host="box", low_disk="/tmp has 7 MiB") for n in (1, 2)]
    status = replace(scene.sweep_status, workers=(*scene.sweep_status.workers, *low))
    needs = needed_actions(status, None)
    codes = ["files-not-stored", "checkpoint-not-kept", "disk-low"]
    assert [notice.code for notice in needs] == codes
    assert "2 trials" in needs[1].text and why.text in needs[1].text
    assert "box" in needs[2].text and "/tmp has 7 MiB" in needs[2].text
    assert not needed_actions(_scene(unkept_why=why).sweep_status, None), "all are kept by now"


def test_a_held_sweep_of_local_code_may_have_a_faulty_file() -> None:
    status = _scene(**held("5 of 5 trials failed")).sweep_status
    status = replace(status, sweep=replace(status.sweep, launch=Launch(bundled=True)))
    remedy = next(n for n in needed_actions(status, None) if n.code == "sweep-held-remedy")
    for words in ("the code or the sweep file", "hpq retry demo-00000"):
        assert words in remedy.text


@pytest.mark.parametrize("cause", [Cause.UNREPORTED, Cause.DAMAGED])
def test_a_hold_that_no_retry_ends_is_resumed(cause: Cause) -> None:
    status = _scene(stored=StoredState.HELD, why=Hold(cause=cause, text="why")).sweep_status
    found = needed_actions(status, None)
    assert [notice.code for notice in found] == ["sweep-held", "sweep-held-remedy"]
    assert "why" in found[0].text and found[1].text.endswith("hpq resume demo-00000")


@pytest.mark.parametrize("size", [(80, 24), (44, 10)])
def test_what_helps_a_held_sweep_is_not_cut_off(size: tuple[int, int]) -> None:
    why = "5 of 5 trials failed: exit status 1: KeyError: 'gpu' " + "and so on, " * 9
    bound = Launch(program="train.py", code_dir="/code", code="abc")
    scene = _scene(running=0, launch=bound, **held(why))
    said = " ".join(line.strip("! ") for line in _text(scene, *size))
    # Edited code is another sweep: a retry of this one would fail as before, or wait for ever.
    assert "hpq retry demo-00000" in said and "run the file again" in said
    assert "5 of 5 trials failed: exit" in said
    if size[1] > 10:
        assert "hpq cancel demo-00000" in said


def test_a_sweep_without_workers_waits_and_its_time_stands_still() -> None:
    scene = _scene(0)
    minute_ago = replace(scene.sweep_status, last_event=f"{NOW - 60_000}-0")
    (said, *_) = _text(replace(scene, status=minute_ago, not_taken=Notice("no-worker", "none")))
    assert said.startswith("demo-00000  waiting ") and "1m00s" in said
    (said, *_) = _text(replace(_scene(2), not_taken=Notice("no-worker", "none")))
    assert said.startswith("demo-00000  running ") and "2m00s" in said


def test_the_command_that_starts_a_worker_is_shown_on_a_small_terminal(size=(44, 10)) -> None:
    why = "the one live worker of queue 'default' runs only other-11111, for its `hpq run`;"
    why += " start one: hpq worker"
    said = " ".join(
        line.strip("! ")
        for line in _text(replace(_scene(0), not_taken=Notice("workers-pinned", why)), *size)
    )
    assert why in said


def test_a_failure_names_the_log_to_read() -> None:
    failure = Failure(kind=FailureKind.USER_ERROR, message="KeyError: 'lr'")
    scene = _scene(counts=Counts(queued=1, running=1, failed=1))
    recent = (_trial(7, TrialState.FAILED, failure=failure),)
    lines = _text(replace(scene, status=replace(scene.sweep_status, recent=recent)), columns=120)
    assert any("1 failed; hpq logs demo-00000/7  KeyError: 'lr'" in line for line in lines)


def test_what_needs_the_user_counts_failures_as_the_status_line_does() -> None:
    scene = _scene(counts=Counts(queued=1, running=1, failed=3, diverged=1))
    (status, need) = (one for one in _text(scene, columns=140) if " failed" in one)
    assert "3 failed (1 diverged)" in status and "3 failed (1 diverged)" in need


def test_trials_that_diverged_do_not_ask_for_the_user() -> None:
    scene = _scene(counts=Counts(queued=1, running=1, failed=3, diverged=3))
    lines = _text(scene)
    assert any("3 failed (3 diverged)" in line for line in lines)
    assert not any(line.startswith("!") for line in lines)


def test_parameters_that_do_not_vary_are_not_shown() -> None:
    assert not any("epochs" in line for line in _text(_scene(), columns=200))


def _pressed(scene: Scene, keys: str, columns: int = 80, rows: int = 24) -> View:
    """The view after keys, each of which sees the frame before it."""
    view, terminal = View(), TerminalInfo(columns=columns, rows=rows)
    for key in keys.split():
        view = reduce(render(view, scene, terminal)[1], key)
    return render(view, scene, terminal)[1]


def test_the_cursor_goes_through_all_trials_and_the_frame_says_where_it_is() -> None:
    scene = _scene(running=30)
    assert "1 of 34  best first" in _text(scene)[-2]
    view = _pressed(scene, "down end")
    assert (view.cursor, view.picked) == (33, 30)
    lines = _text(scene, view=view)
    assert "34 of 34" in " ".join(lines[-2:]) and any(
        line.split()[:2] == ["▶●", "30"] for line in lines
    )
    assert _pressed(scene, "end home").cursor == 0


def test_an_open_trial_shows_its_curve_parameters_attempts_and_log() -> None:
    points = [Point(step=n, name="test/acc", value=n / 10) for n in range(1, 10)]
    detail = Detail(trial=_trial(7), curves={"test/acc": points}, attempts=(), log="last words")
    scene = replace(_scene(), detail=detail)
    page = "\n".join(_text(scene, rows=60, view=View(mode=Mode.TRIAL, trial=7)))
    for words in ("demo-00000/7", "0.9000", "step 1", "step 9", "max_learning_rate", "last words"):
        assert words in page
    assert any("\u2800" < char < "\u2900" for char in page)


def test_old_numbers_are_marked_as_old() -> None:
    lines = _text(replace(_scene(), stale="stale for 12s"))
    assert any("! stale for 12s" in line for line in lines[:5])


def test_a_trial_whose_worker_is_silent_says_so_and_has_no_estimate() -> None:
    status = _scene(running=2).sweep_status
    silent = replace(status.running[0], beat_ms=NOW - 29_000)
    status = replace(status, running=(silent, status.running[1]), silent_ms=15_000.0)
    scene = Scene(status=status, rows=status.running, total=2)
    lines = _text(scene, columns=100)
    (one,) = [line for line in lines if "silent 29s" in line]
    assert "left" not in one
    (other,) = [line for line in lines if line.split()[:2] == ["●", "2"]]
    assert "s left" in other
    assert any("silent 29s" in line for line in _text(scene, columns=44))


def test_while_redis_is_away_nothing_is_estimated() -> None:
    status = replace(_scene().sweep_status, at_ms=NOW + 40_000, silent_ms=15_000.0, is_stale=True)
    lines = _text(Scene(status=status, rows=status.running, stale="Refused: no answer for 40s"))
    assert not any("left" in line or "silent" in line for line in lines)
    assert any("1m10s" in line for line in lines), "ages go on"


def test_a_full_server_is_what_needs_the_user() -> None:
    status = replace(
        _scene().sweep_status,
        memory=ServerMemory(used=65 << 20, limit=64 << 20, policy="noeviction"),
    )
    (why,) = (
        one for one in needed_actions(status, explain_waiting(status)) if one.code == "redis-memory"
    )
    assert "65.0 MiB of 64.0 MiB" in why.text
    roomy = replace(status, memory=ServerMemory(used=65 << 20, limit=0, policy="noeviction"))
    codes = [one.code for one in needed_actions(roomy, explain_waiting(roomy))]
    assert "redis-memory" not in codes


def test_color_adds_to_the_words_and_replaces_none() -> None:
    colored = _text(_scene(), color=True)
    assert any("\x1b[" in line for line in colored)
    words = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in colored]
    assert words == _text(_scene())


def test_without_unicode_a_frame_is_ascii_of_the_same_width() -> None:
    for line, shown in zip(_text(_scene()), map(to_ascii, _text(_scene())), strict=True):
        assert shown.isascii() and len(shown) == len(line)


def test_all_curves_share_the_scale_in_the_title_and_nan_is_a_gap() -> None:
    low = [(float(n), 0.1) for n in range(1, 13)]
    mixed = [(float(n), float("nan") if n == 6 else 0.9) for n in range(1, 13)]
    scene = replace(_scene(), curves={1: low, 2: mixed})
    lines = _text(scene)
    assert "▁0.1 █0.9" in next(line for line in lines if line.lstrip().startswith("#"))
    (first,) = [line for line in lines if line.split()[:2] == ["●", "1"]]
    (second,) = [line for line in lines if line.split()[:2] == ["●", "2"]]
    assert "▁" * 12 in first and "█" * 5 + " " + "█" * 6 in second


def test_a_value_beyond_the_scale_is_marked() -> None:
    far = {n: [(1.0, 0.5), (2.0, 0.6)] for n in range(1, 101)} | {1: [(1.0, -9e9), (2.0, 9e9)]}
    lines = _text(replace(_scene(), curves=far))
    (first,) = [line for line in lines if line.split()[:2] == ["●", "1"]]
    assert ("▼" in first, "▲" in first) == (True, True) or "▁" in first


def test_workers_give_room_to_the_list() -> None:
    crowd = tuple(Worker(name=f"w{n}", state="idle") for n in range(40))
    scene = _scene(running=9)
    lines = _text(replace(scene, status=replace(scene.sweep_status, workers=crowd)))
    assert sum("●" in line for line in lines) >= 5
    assert any("more: hpq workers" in line for line in lines)


def test_a_page_that_is_printed_once_has_no_keys_and_no_blank_end() -> None:
    lines = _text(replace(_scene(), is_live=False), rows=200)
    assert lines[-1] and not any("q quit" in line for line in lines)
    assert len(_text(_scene(), rows=200)) == 200


@pytest.mark.parametrize("columns", [60, 70, 80])
def test_long_values_shrink_before_short_titles(columns: int) -> None:
    long = {"max_learning_rate": 0.1, "optimizer": "a-name-of-forty-characters-or-thereabouts"}
    trials = tuple(_trial(n, params=long) for n in (1, 2))
    scene = _scene(varying=("max_learning_rate", "optimizer"))
    lines = _text(_with(scene, *trials), columns)
    (header,) = [line for line in lines if line.lstrip().startswith("# ")]
    assert {"step", "time", "state"} <= set(header.split()), header


def test_a_sweep_whose_sets_are_yet_to_be_made_says_how_many() -> None:
    few = Counts(queued=1, running=2, finished=4, to_come=13)
    text = "\n".join(_text(_scene(counts=few), 120, 30))
    assert "4/20" in text and "left" in text


def test_a_sweep_whose_first_trials_are_being_chosen_says_so_once() -> None:
    scene = _scene(counts=Counts(to_come=12), sampler="gp")
    lines = _text(replace(_with(scene, best=(), recent=()), first=0))
    assert [line for line in lines if "trial" in line] == ["hpq is choosing the first trials"]
    assert " = " not in lines[-1], "a legend without titles"
    unmanned = replace(_with(scene, best=(), recent=()), not_taken=Notice("no-worker", "start one"))
    assert not any("choosing" in line for line in _text(unmanned)), "only a worker chooses"


def test_the_help_says_that_run_asks_about_its_workers_before_it_quits() -> None:
    words = " ".join(" ".join(_text(_scene(), view=View(mode=Mode.HELP))).split())
    assert "quit; the sweep continues, but `hpq run` first asks about its workers" in words


def test_an_open_ended_sweep_says_so_and_has_no_end_in_sight() -> None:
    endless = Counts(queued=1, running=2, finished=4, to_come=float("inf"))
    head = _text(_scene(counts=endless), 120, 30)[0]
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
    assert f"{short} = {long}" in last and any("? help" in line for line in narrow) == is_live


def _titles(lines: list[str]) -> list[str]:
    (header,) = [line for line in lines if line.lstrip().startswith("# ")]
    return header.split()


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_the_titles_of_a_sweep_stay_while_states_and_values_change(columns: int) -> None:
    varying = ("max_learning_rate", "data_aug_cutout_size", "batch_size")
    scene = _scene(varying=varying)
    params: Params = dict.fromkeys(varying, 8)
    queued = _trial(1, TrialState.QUEUED, params=params, claimed_ms=0, objective=None, step=0)
    loading = _trial(1, params=params, phase="loading cifar10: 1,200 files", step=0)
    failure = Failure(kind=FailureKind.USER_ERROR, message="x")
    failed = _trial(1, TrialState.FAILED, params=params, failure=failure)
    small = _trial(1, params={**params, "max_learning_rate": 1.613e-5}, claimed_ms=1)
    frames = [
        _text(_with(replace(scene, curves=curves), trial), columns)
        for trial in (queued, loading, failed, small)
        for curves in ({}, {1: [(1.0, 0.1), (200.0, 0.95)]})
    ]
    kept = [[t for t in _titles(lines) if t[0] not in "▁█"] for lines in frames]
    assert all(titles == kept[0] for titles in kept), kept
    assert len({lines[-1] for lines in frames}) == 1, "the legend"


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
    curve = [(float(i), 0.1 * (i % 5)) for i in range(30)]
    crowded = replace(scene, curves=dict.fromkeys(range(6), curve))
    return _text(_with(crowded, *trials, best=(), recent=()), columns)


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 160])
def test_a_number_is_rounded_to_its_column_and_never_cut(columns: int) -> None:
    for line in _crowded(columns):
        if line.endswith("30s left") and line[0] in "▶●":
            shown = line.split()[1:]
            assert "…" not in line, line
            rate = _RATES[int(shown[0]) - 1]
            # What is left of it tells its size: never 0.000 of 0.0001234, or 1.613 of 1.613e-5.
            assert float(shown[1]) == pytest.approx(rate, rel=0.06), line


def test_the_curve_gives_room_before_a_number_is_rounded() -> None:
    roomy, narrow = _crowded(100, ("beta", "eps")), _crowded(80, ("beta", "eps", "lr"))
    for lines in (roomy, narrow):
        assert any("-3.25e-12" in line for line in lines)

    def curve(lines: list[str]) -> int:
        (line,) = [line for line in lines if line.split()[1:2] == ["1"]]
        return sum(char in "▁▂▃▄▅▆▇█" for char in line)

    assert curve(roomy) == 12 and 6 <= curve(narrow) < 12


def test_parameters_that_do_not_fit_are_counted_in_the_footer() -> None:
    lines = _crowded(80)
    (row,) = [line for line in lines if line.split()[1:2] == ["1"]]
    shown = row.count("e-5")
    assert 2 < shown < len(_MANY)
    assert f"+{len(_MANY) - shown} parameters (c)" in lines[-1]
    assert not any(" parameters" in line for line in _crowded(200))


def test_a_legend_that_does_not_fit_has_a_line_of_its_own_with_the_metric_first() -> None:
    long = tuple(f"model.encoder.{word}_of_the_layer" for word in ("width", "depth"))
    name = "validation/epoch/mean_accuracy_top5"
    lines = _crowded(80, long, metric=Metric(name=name, goal=Goal.MAXIMIZE))
    assert lines[-2].startswith("1 of 5") and f" = {name}" in lines[-1].split(",")[0]
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
    page = " ".join(" ".join(_crowded(66, long, is_live=False)).split())
    assert all(f" = {name}" in page for name in long)


def test_a_chosen_column_stays_at_eighty_columns() -> None:
    many = tuple(f"parameter_{n}" for n in range(200))
    trial = _trial(1, params={name: n for n, name in enumerate(many)})
    scene = _with(_scene(varying=many), trial, best=(), recent=())
    view = _pressed(scene, "c end x enter")
    assert view.columns == ("parameter_199",)
    header = next(line for line in _text(scene, view=view) if line.lstrip().startswith("#"))
    assert header.split()[1].startswith("parameter_199"[:1]), header
    row = next(line for line in _text(scene, view=view) if line.startswith("▶"))
    assert row.split()[2] == "199"


def test_the_name_of_a_run_is_a_column_to_choose() -> None:
    scene = _with(_scene(), _trial(1, run_info={"name": "brisk-1"}), best=(), recent=())
    view = _pressed(scene, "c end x enter")
    assert view.columns == ("name",)
    row = next(line for line in _text(scene, view=view) if line.startswith("▶"))
    assert row.split()[2] == "brisk-1"


@pytest.mark.parametrize("size", [(30, 6), (44, 10), (80, 24), (140, 40), (300, 100)])
def test_whole_frames_are_as_they_were(golden: Golden, size: tuple[int, int]) -> None:
    scene = _scene(running=5)
    best = scene.sweep_status.best
    scene = replace(scene, winner=judge(scene.sweep_status.sweep, best, ()))
    lines = _text(scene, *size)
    golden.check("watch-frames", f"{size[0]}x{size[1]}", "\n".join(lines))


@pytest.mark.parametrize("keys", ["?", "c", "x", "/", "enter"])
def test_whole_frames_of_other_modes_are_as_they_were(golden: Golden, keys: str) -> None:
    points = [Point(step=n, name="test/acc", value=1 - 1 / n) for n in range(1, 30)]
    detail = Detail(trial=_trial(7), curves={"test/acc": points}, attempts=(), log="epoch 1")
    scene = replace(_scene(), detail=detail)
    lines = _text(scene, view=_pressed(scene, keys))
    golden.check("watch-frames", f"after {keys}", "\n".join(lines))


@pytest.mark.parametrize("size", [(44, 10), (80, 24), (140, 40)])
def test_whole_frames_of_several_metrics_are_as_they_were(
    golden: Golden, size: tuple[int, int]
) -> None:
    metrics = (Metric(name="test/acc", goal=Goal.MAXIMIZE), Metric(name="latency_ms"))
    limit = Constraint.parse("peak_gb <= 24")
    scene = _scene(objectives=metrics, constraints=(limit,))
    values = ((0.9, 30.0, 20.0), (0.8, 12.0, 20.0), (0.7, 31.0, 20.0), (0.95, 9.0, 31.0))
    trials = [
        _trial(n, TrialState.FINISHED, metrics={"test/acc": a, "latency_ms": b, "peak_gb": c})
        for n, (a, b, c) in enumerate(values, 101)
    ]
    front = front_of(scene.sweep_status.sweep, trials)
    rows = (*trials, *scene.sweep_status.running)
    status = replace(scene.sweep_status, recent=tuple(trials))
    scene = replace(scene, status=status, rows=rows, front=front)
    golden.check("watch-frames", f"front {size[0]}x{size[1]}", "\n".join(_text(scene, *size)))


HOSTILE = "[red]x[/red] \x1b[31m \u202eabc\u202c שלום 🎉 \ud800"


def test_markup_escapes_and_emoji_are_text() -> None:
    trial = _trial(1, params={"optimizer": HOSTILE})
    detail = Detail(trial=trial, curves={}, attempts=(), log=HOSTILE)
    scene = replace(_with(_scene(varying=("optimizer",)), trial), detail=detail)
    for view in (View(), View(mode=Mode.TRIAL, trial=1)):
        page = "\n".join(_text(scene, 140, 40, view))
        assert "[red]x[/red]" in page and "\x1b" not in page and "\u202e" not in page


@pytest.mark.parametrize(
    "trials",
    [
        (),
        (_trial(1, objective=None, step=0),),
        tuple(_trial(n, TrialState.FAILED, objective=None) for n in range(1, 4)),
        (_trial(1, objective=float("nan")),),
    ],
)
def test_a_sweep_without_any_value_has_a_frame(trials: tuple[TrialView, ...]) -> None:
    scene = replace(_with(_scene(), *trials, best=(), recent=()), curves={})
    for mode in Mode:
        assert _text(scene, view=View(mode=mode))


def test_ends_of_a_scale_that_look_alike_are_one_number() -> None:
    apart, alike = Scale(low=0.1, high=0.9), Scale(low=0.0812, high=0.0843)
    assert _scale_title(apart, 9) == "▁0.1 █0.9" and _scale_title(alike, 9) == "all ≈0.08"
    assert "█0.0843" in _scale_title(alike, 24)


def test_a_short_name_of_the_metric_is_whole_from_80_columns_on() -> None:
    varying = ("lr", "batch_size", "dropout", "weight_decay")
    sweep = sweep_view(metric=Metric(name="val_loss"), varying=varying)
    for columns in range(80, 120):
        assert shown_names(sweep, [], columns)[1]["val_loss"] == "val_loss", columns
