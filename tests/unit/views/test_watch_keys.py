"""What each key of watch does to the viewer's state; no terminal and no Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq_views.text.screen import key_names
from hpq_views.watch.keys import Act, Mode, Seen, View, reduce, show_from

SEEN = Seen(total=1000, page=10, numbers=tuple(range(101, 111)), names=("lr", "width"))
START = View(sweep="demo", seen=SEEN)


def after(*keys: str, view: View = START) -> View:
    for key in keys:
        view = reduce(view, key)
    return view


@pytest.mark.parametrize(
    ("keys", "cursor", "top"),
    [
        (["down", "down", "up"], 1, 0),
        (["up"], 0, 0),
        (["page down"], 10, 1),
        ([" ", "G"], 999, 990),
        (["end", "home"], 0, 0),
        (["j"] * 10, 10, 1),
    ],
)
def test_the_cursor_stays_in_the_list_and_on_the_screen(
    keys: list[str], cursor: int, top: int
) -> None:
    view = after(*keys)
    assert (view.cursor, view.top) == (cursor, top)


def test_a_list_that_shrinks_keeps_the_cursor_in_it() -> None:
    view = show_from(after("end"), total=4, page=10)
    assert (view.cursor, view.top) == (3, 0)
    assert show_from(view, total=0, page=10).cursor == 0


def test_enter_opens_the_trial_under_the_cursor_and_escape_goes_back() -> None:
    view = after("down", "enter")
    assert (view.mode, view.trial) == (Mode.TRIAL, 102)
    assert after("escape", view=view) == replace(after("down"), line=0)


@pytest.mark.parametrize(
    ("key", "act"),
    [
        ("x", Act(verb="cancel", trial=101)),
        ("X", Act(verb="cancel")),
        ("r", Act(verb="retry", trial=101)),
        ("R", Act(verb="retry")),
        ("p", Act(verb="pause")),
    ],
)
def test_a_change_needs_a_yes(key: str, act: Act) -> None:
    assert after(key).do is None
    assert after(key, "y").do == act
    for other in ("n", "enter", "escape", "q", "x"):
        view = after(key, other)
        assert (view.do, view.mode, view.is_over) == (None, Mode.LIST, False)


def test_a_paused_sweep_is_resumed_by_the_same_key() -> None:
    assert after("p", "y", view=replace(START, seen=replace(SEEN, is_paused=True))).do == Act(
        verb="resume"
    )


def test_a_change_of_an_open_trial_stays_with_it() -> None:
    view = after("enter", "x", "n")
    assert (view.mode, view.trial) == (Mode.TRIAL, 101)


def test_a_filter_is_typed_and_any_letter_belongs_to_it() -> None:
    view = after("down", "/", *"lr > q1", "backspace", "enter")
    assert (view.filter, view.mode, view.cursor, view.is_over) == ("lr > q", Mode.LIST, 0, False)
    assert after("escape", view=view).filter == ""
    assert after("/", "x", "escape").filter == ""
    assert after("/", "up", "\x00", "enter").filter == ""


def test_columns_are_chosen_and_given_up() -> None:
    assert after("c", "down", "x", "home", "x", "enter").columns == ("width", "lr")
    assert after("c", " ", " ", "escape").columns == ()
    nothing = replace(START, seen=Seen())
    assert after("c", "x", "down", "escape", view=nothing).columns == ()


def test_the_order_goes_round() -> None:
    assert [after(*["s"] * n).order for n in range(4)] == ["best", "newest", "number", "best"]


def test_a_sweep_of_the_list_is_opened_and_escape_leads_back() -> None:
    sweeps = View(mode=Mode.SWEEPS, seen=Seen(total=2, page=9, sweeps=("a", "b")))
    opened = after("down", "enter", view=sweeps)
    assert (opened.sweep, opened.mode) == ("b", Mode.LIST)
    assert after("escape", view=opened).mode is Mode.SWEEPS
    assert after("escape").mode is Mode.LIST and not after("escape").is_over


@pytest.mark.parametrize("mode", Mode)
def test_no_key_fails_in_any_mode_and_a_closed_terminal_ends_all(mode: Mode) -> None:
    view = View(mode=mode, trial=7, act=Act(verb="pause"))
    for key in ("up", "end", "enter", "escape", "backspace", "\x1b[20~", "é", "🎉", "q", "s", "c"):
        reduce(view, key)
    assert reduce(view, "hangup").is_over


def test_what_a_terminal_sends_has_names() -> None:
    assert key_names("\x1b[A\x1bOB\x1b[5~q\r\x7f\x1b") == [
        "up", "down", "page up", "q", "enter", "backspace", "escape",
    ]  # fmt: skip
    assert key_names("é🎉") == ["é", "🎉"]


def test_help_of_a_trial_returns_to_the_trial() -> None:
    trial = replace(START, mode=Mode.TRIAL, trial=7)
    assert after("?", view=trial).mode is Mode.HELP
    assert after("?", "escape", view=trial) == trial
    assert after("escape", view=trial).mode is Mode.LIST
