"""What the viewer of `hpq watch` looks at, and how each key changes it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

ORDERS = ("best", "newest", "number")


class Mode(StrEnum):
    """What the screen shows."""

    LIST = "list"
    TRIAL = "trial"
    FILTER = "filter"
    COLUMNS = "columns"
    CONFIRM = "confirm"
    IMPORTANCE = "importance"
    HELP = "help"
    SWEEPS = "sweeps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A change of the sweep, or of one trial of it, that the user is asked to confirm."""

    verb: str  # pause, resume, cancel, retry
    trial: int = 0  # 0: the sweep; to retry: all its failed trials

    @property
    def question(self) -> str:
        """What the user is asked."""
        everything = {"cancel": "the whole sweep", "retry": "all failed trials"}
        what = f"trial #{self.trial}" if self.trial else everything.get(self.verb, "the sweep")
        return f"{self.verb} {what}? y: yes, any other key: no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the last frame showed: keys mean what the user saw when they pressed them."""

    total: int = 0  # trials in the list
    page: int = 1  # rows of it on the screen
    numbers: tuple[int, ...] = ()  # trials of these rows
    first: int = 0  # place of the first of them
    names: tuple[str, ...] = ()  # parameters and metrics that may be columns
    sweeps: tuple[str, ...] = ()
    is_paused: bool = False  # the sweep, or held


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The viewer's state. `do` is a confirmed act, which the loop carries out and clears."""

    sweep: str = ""
    mode: Mode = Mode.LIST
    cursor: int = 0  # place in the list, from 0
    top: int = 0  # place of the first row on the screen
    order: str = ORDERS[0]
    filter: str = ""
    draft: str = ""
    columns: tuple[str, ...] = ()  # names that come first
    trial: int = 0
    line: int = 0  # first line of a text, or the line that is picked
    act: Act | None = None
    do: Act | None = None
    note: str = ""
    is_over: bool = False
    has_sweeps: bool = False  # Escape leads to the list of sweeps
    seen: Seen = Seen()

    @property
    def picked(self) -> int:
        """The number of the trial under the cursor; 0 if there is none."""
        place = self.cursor - self.seen.first
        return self.seen.numbers[place] if 0 <= place < len(self.seen.numbers) else 0


def reduce(view: View, key: str) -> View:
    """The state after a key."""
    if key == "hangup":
        return replace(view, is_over=True)
    view = replace(view, note="")
    return _MODES[view.mode](view, _ALIASES.get(key, key) if view.mode != Mode.FILTER else key)


_ALIASES = {"k": "up", "j": "down", " ": "page down", "b": "page up", "g": "home", "G": "end"}
_STEPS: Mapping[str, Callable[[int, int], int]] = {
    "up": lambda at, page: at - 1,
    "down": lambda at, page: at + 1,
    "page up": lambda at, page: at - page,
    "page down": lambda at, page: at + page,
    "home": lambda at, page: 0,
    "end": lambda at, page: 10**9,
}


def _moved(key: str, at: int, page: int, total: int) -> int:
    return max(0, min(_STEPS[key](at, max(1, page)), total - 1)) if key in _STEPS else at


def show_from(view: View, total: int, page: int) -> View:
    """The same with the cursor on a trial that is there, and on the screen."""
    cursor = max(0, min(view.cursor, total - 1))
    top = max(cursor - max(1, page) + 1, min(view.top, cursor))
    return replace(view, cursor=cursor, top=max(0, min(top, total - page)))


def _in_list(view: View, key: str) -> View:
    seen = view.seen
    if key in _STEPS:
        moved = replace(view, cursor=_moved(key, view.cursor, seen.page, seen.total))
        return show_from(moved, seen.total, seen.page)
    if key in ("q", "Q"):
        return replace(view, is_over=True)
    if key == "enter" and view.picked:
        return replace(view, mode=Mode.TRIAL, trial=view.picked, line=0)
    if key == "s":
        order = ORDERS[(ORDERS.index(view.order) + 1) % len(ORDERS)]
        return replace(view, order=order, cursor=0, top=0)
    if key == "/":
        return replace(view, mode=Mode.FILTER, draft=view.filter)
    if key == "escape" and view.filter:
        return replace(view, filter="", cursor=0, top=0)
    if key == "escape" and view.has_sweeps:
        return replace(view, mode=Mode.SWEEPS, line=0)
    modes = {"c": Mode.COLUMNS, "?": Mode.HELP, "h": Mode.HELP, "i": Mode.IMPORTANCE}
    if key in modes:
        return replace(view, mode=modes[key], line=0)
    return _asked(view, key, view.picked)


def _asked(view: View, key: str, trial: int) -> View:
    acts = {
        "p": Act(verb="resume" if view.seen.is_paused else "pause"),
        "x": Act(verb="cancel", trial=trial) if trial else None,
        "r": Act(verb="retry", trial=trial) if trial else None,
        "X": Act(verb="cancel"),
        "R": Act(verb="retry"),
    }
    act = acts.get(key)
    return replace(view, mode=Mode.CONFIRM, act=act) if act else view


def _in_text(view: View, key: str) -> View:
    if key in _STEPS:
        return replace(view, line=_moved(key, view.line, view.seen.page, view.seen.total))
    if view.mode is Mode.TRIAL and key == "?":
        return replace(view, mode=Mode.HELP, line=0)
    if view.mode is Mode.TRIAL and (asked := _asked(view, key, view.trial)) is not view:
        return asked
    if key not in ("escape", "q", "enter", "backspace", "?", "i"):
        return view
    back = 0 if view.mode is Mode.TRIAL else view.trial  # help returns to the trial
    return replace(view, mode=Mode.TRIAL if back else Mode.LIST, line=0, trial=back)


def _in_filter(view: View, key: str) -> View:
    if key == "enter":
        return replace(view, mode=Mode.LIST, filter=view.draft.strip(), cursor=0, top=0)
    if key == "escape":
        return replace(view, mode=Mode.LIST)
    if key == "backspace":
        return replace(view, draft=view.draft[:-1])
    return replace(view, draft=view.draft + key) if len(key) == 1 and key.isprintable() else view


def _in_columns(view: View, key: str) -> View:
    names = view.seen.names
    if key in ("page down", "x") and names:  # the space bar
        name = names[min(view.line, len(names) - 1)]
        chosen = tuple(one for one in view.columns if one != name)
        return replace(view, columns=chosen if name in view.columns else (*chosen, name))
    if key in _STEPS:
        return replace(view, line=_moved(key, view.line, view.seen.page, len(names)))
    return replace(view, mode=Mode.LIST) if key in ("enter", "escape", "q", "c") else view


def _in_confirm(view: View, key: str) -> View:
    done = view.act if key in ("y", "Y") else None
    return replace(view, mode=Mode.TRIAL if view.trial else Mode.LIST, act=None, do=done)


def _in_sweeps(view: View, key: str) -> View:
    sweeps = view.seen.sweeps
    if key in _STEPS:
        return replace(view, line=_moved(key, view.line, view.seen.page, len(sweeps)))
    if key == "enter" and view.line < len(sweeps):
        return View(sweep=sweeps[view.line], has_sweeps=True)
    return replace(view, is_over=True) if key in ("q", "Q", "escape") else view


_MODES: Mapping[Mode, Callable[[View, str], View]] = {
    Mode.LIST: _in_list,
    Mode.TRIAL: _in_text,
    Mode.HELP: _in_text,
    Mode.IMPORTANCE: _in_text,
    Mode.FILTER: _in_filter,
    Mode.COLUMNS: _in_columns,
    Mode.CONFIRM: _in_confirm,
    Mode.SWEEPS: _in_sweeps,
}


def position(view: View) -> str:
    """`7 of 10,000 trials`, the place of the cursor."""
    if not view.seen.total:
        return "no trial" + (" matches" if view.filter else "")
    return f"{view.cursor + 1:,} of {view.seen.total:,}"
