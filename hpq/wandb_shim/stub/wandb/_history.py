"""W&B's history as reports of hpq: rows, steps, `commit`, `define_metric`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import _transport
from ._transport import log_once, note_dropped
from .errors import Error

Send = Callable[[Mapping[str, float], int], None]
_MAX_STEP = 2**53  # hpq keeps smaller ones
PLAIN = {float, int, bool, str}  # types of values that a summary keeps as they are
# `summary=` of define_metric: of the value so far and the next one. `mean` is computed apart.
_KINDS: dict[str, Callable[[float, float], float]] = {
    "min": min,
    "max": max,
    "first": lambda first, value: first,
    "last": lambda last, value: value,
}


def number_of(value: Any) -> float | None:
    """Return a value that holds one number (numpy, torch, …) as a float, and None for others."""
    if type(value) is float:
        return value
    if value is None or isinstance(value, (str, bytes, Mapping, list, tuple)):
        return None
    item = getattr(value, "item", None)
    try:
        return float(item() if callable(item) else value)
    except Exception:  # of more than one element, on a meta device, complex, …
        return None


@lru_cache(maxsize=1_000)
def metric_name(name: str) -> str:
    """Return the name with '_' for each character that hpq's metric names may not have."""
    clean = _transport.metric_name(name)
    if clean != name:
        log_once(f"the metric {name!r} is kept as {clean!r}")
    return clean


def split(data: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, float], dict[str, Any]]:
    """Split nested mappings into numbers and other values, with names joined by '.'."""
    numbers: dict[str, float] = {}
    rest: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}" if prefix else key
        if (found := value if type(value) is float else number_of(value)) is not None:
            numbers[name] = found
        elif isinstance(value, Mapping):
            inner, other = split(value, f"{name}.")
            numbers.update(inner)
            rest.update(other)
        elif value is not None:
            rest[name] = value
    return numbers, rest


def drop(names: Iterable[str], why: str, *, of_process: bool = False) -> None:
    """Let hpq name the reason if one of these metrics is never reported."""
    note_dropped(map(_transport.metric_name, names), why, of_process=of_process)


def drop_others(values: Mapping[str, Any]) -> None:
    """Name the values that are not numbers."""
    for name, value in values.items():
        drop([name], _why_no_number(value))


def _why_no_number(value: Any) -> str:
    if value is None:
        return "None is not a number"
    if isinstance(value, (str, bytes)):
        return f"{value[:40]!r} is a text, not a number"
    if isinstance(value, int):
        return f"an integer of {value.bit_length()} bits is too large for a float"
    shape = getattr(value, "shape", None)
    of = f" of shape {tuple(shape)}" if isinstance(shape, (tuple, list)) else ""
    return f"a value of type {type(value).__name__}{of} is not one number"


def same(a: float, b: float) -> bool:
    """Return True for equal numbers, and for two NaNs."""
    return a == b or (math.isnan(a) and math.isnan(b))


@dataclass
class Defined:
    """The rule of one `define_metric` call, for a name or for all names with a prefix."""

    kinds: tuple[str, ...] = ()  # min, max, mean, first: reported beside the values

    @classmethod
    def of(cls, summary: str | None, goal: str | None) -> Defined:
        """Parse the arguments of `define_metric`; `summary` is a comma-separated list.

        Raises:
            Error: W&B has no such summary.
        """
        best = {"minimize": "min", "maximize": "max"}.get(goal or "", "min")
        words = [word.strip().lower() for word in (summary or "").split(",")]
        kinds = [best if word == "best" else word for word in words if word not in ("", "copy")]
        for kind in kinds:
            if kind not in (*_KINDS, "mean", "none"):
                raise Error(f"Unhandled define_metric() arg: summary op: {kind}")
        return cls(tuple(kinds))


_UNDEFINED = Defined()


class Rows:
    """The rows of a run. A row is sent as a whole when W&B would end the row.

    If the script gives a step, W&B ends the row at the next greater step. hpq does not wait for
    that step: a metric's first value is sent at once, and its last value when the row ends.
    """

    def __init__(self, send: Send, before: Rows | None = None) -> None:
        """Create the rows of a run whose steps follow those of an ended run of the same trial."""
        self._send = send
        self.step = 0  # of the row that is not sent yet
        # A resumed script that gives no steps counts on, or its rows would replace earlier ones.
        self._start = 0 if before else int(os.environ.get("HPQ_RESUMED_STEP", -1)) + 1
        self._first = before.following_step if before else 0  # hpq's step of step 0
        self.last_step = 0  # of the values that were sent last
        self.sent: dict[str, float] = {}  # the last value of every name
        self._row: dict[str, float] = {}
        self._shown: dict[str, float] = {}  # values of this row that were sent already
        self._defined: dict[str, Defined] = {}
        self._kinds: dict[str, float] = {}  # name.min and others
        self.groups: set[str] = set()  # the names of which there are kinds
        self._totals: dict[str, tuple[float, int]] = {}  # sum and number, for name.mean
        self._axis = ""  # the metric whose value is the row's step
        self._axes: dict[str, str] = {}  # name, or start with *, → the metric that is its x axis
        self._only_set: set[str] = set()  # names that the script sets and never logs
        self._overridden: set[str] = set()  # names set after their define_metric: it is void

    def define(self, name: str, axis: str | None, defined: Defined) -> None:
        """Add a rule of `define_metric`; `name` may end with *.

        W&B draws a metric against its axis, and `_step` stays. If all metrics share an axis that
        counts steps (Lightning, Hugging Face), it is the row's step: a resumed training goes on.
        """
        self._defined[name] = defined
        if axis:
            self._axes[_pattern(name)] = _transport.metric_name(axis)
        self._overridden = {one for one in self._overridden if not _is_of(name, one)}
        if name == "*" and axis and axis.endswith("step"):
            self._axis = axis

    @property
    def axes(self) -> dict[str, str]:
        """The x axis of each name, or start with *, unless the steps have its values."""
        own = _transport.metric_name(self._axis) if self._axis else ""
        return {name: axis for name, axis in self._axes.items() if axis != own}

    def log(self, values: Mapping[str, float], step: int | None, commit: bool | None) -> bool:
        """Add the values of one `log` call. Return False if W&B would drop them."""
        start, self._start = self._start, 0
        if step is None:
            self.step = max(self.step, start)
        else:
            if why := self._why_not(step):
                drop(values, why)
                log_once(f"{why}: these values are dropped")
                return False
            if step > self.step:
                self.flush()
                self.step = step
        self._row.update(values)
        if commit or (commit is None and step is None):
            self.flush()
            self.step += 1
        elif commit is None:
            new = {n: v for n, v in self._row.items() if n not in self._shown}
            self._shown.update(new)
            self._show(new)
        return True

    def _why_not(self, step: int) -> str:
        if step >= _MAX_STEP:
            return "the step is not below 2**53"
        if step < self.step:
            return (
                f"step {step} is below {self.step}, and steps must rise, as in W&B"
                " (use `define_metric` for another axis)"
            )
        return ""

    def flush(self) -> None:
        """End the row."""
        row, shown = self._row, self._shown
        if shown:
            row = {n: v for n, v in row.items() if n not in shown or not same(shown[n], v)}
        self._row, self._shown = {}, {}
        self._show(row)

    def _show(self, values: dict[str, float]) -> None:
        if not self._defined:
            return self.put(values, self.step)
        self.sent.update(values)  # axes among them
        found = dict(values)
        for name, value in values.items():
            if (rule := self._find(name)).kinds:
                found.update(self._kinds_of(name, value, rule))
        self.put(found, self._row_step())

    def set(self, values: Mapping[str, float]) -> None:
        """Report values that the script set in the summary. Logged metrics wait for `end`."""
        free = {name for name in values if "none" not in self._find(name).kinds}
        self._overridden |= free
        self._only_set.update(name for name in values if name not in self.sent)
        self._put_new({n: v for n, v in values.items() if n in self._only_set})

    def end(self, summary: Mapping[str, float]) -> None:
        """End the run. A summary value that differs from the last logged value replaces it."""
        self.flush()
        self._put_new({n: v for n, v in summary.items() if n in self.sent})

    def _put_new(self, values: Mapping[str, float]) -> None:
        sent = self.sent
        new = {n: v for n, v in values.items() if n not in sent or not same(sent[n], v)}
        self.put(new, self.last_step)

    def put(self, values: Mapping[str, float], step: int) -> None:
        """Send values at a step, under hpq's names."""
        if abs(step) >= _MAX_STEP:  # of a SummaryWriter
            drop(values, "the step is not below 2**53")
        elif values:
            self.sent.update(values)
            self.last_step = step
            found = {metric_name(name): value for name, value in values.items()}
            self._send(found, step + self._first)

    @property
    def following_step(self) -> int:
        """The trial's step after the last one that was sent."""
        return self._first + (max(self.step, self.last_step + 1) if self.sent else 0)

    def add_to_summary(self, items: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Add logged values to a summary's items, or the kinds that `define_metric` names."""
        items.update(values)
        if not any(rule.kinds for rule in self._defined.values()):
            return
        for name in values:
            if self._find(name).kinds:
                del items[name]
        items.update(self._kinds)

    def _find(self, name: str) -> Defined:
        if name in self._overridden:
            return _UNDEFINED
        if name in self._defined:
            return self._defined[name]
        return next((rule for key, rule in self._defined.items() if _is_of(key, name)), _UNDEFINED)

    def _row_step(self) -> int:
        """Return the value of the axis of all metrics, if it is a whole number, or W&B's step."""
        at = self.sent.get(self._axis)
        is_count = at is not None and at == at and abs(at) < _MAX_STEP and at == int(at)
        return int(at) if is_count and at is not None else self.step

    def _kinds_of(self, name: str, value: float, rule: Defined) -> dict[str, float]:
        """Return `name.min` and others if `define_metric` asks for them and they changed."""
        found: dict[str, float] = {}
        for kind in rule.kinds:
            key = f"{name}.{kind}"
            if kind == "mean":
                total, count = self._totals.get(name, (0.0, 0))
                total, count = self._totals[name] = total + value, count + 1
                best = total / count
            elif kind == "none" or value != value:
                continue
            else:
                best = _KINDS[kind](self._kinds.get(key, value), value)
            if self._kinds.get(key) != best:
                self._kinds[key] = best
                self.groups.add(name)
                if kind != "last":  # that is the metric itself
                    found[key] = best
        return found


def _pattern(name: str) -> str:
    """Return a name of `define_metric` under hpq's names; it may end with *."""
    if name.endswith("*"):
        return f"{_transport.metric_name(name[:-1])}*" if name[:-1] else "*"
    return _transport.metric_name(name)


def _is_of(rule: str, name: str) -> bool:
    """Return True if a rule of `define_metric`, which may end with *, is one for this name."""
    return name.startswith(rule[:-1]) if rule.endswith("*") else name == rule
