"""W&B's history and summary as reports of hpq: rows, steps, `commit`, `define_metric`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ._transport import log_once

Send = Callable[[Mapping[str, float], int], None]
_EXTREMES = {"min": min, "max": max}
# All but those of hpq.reporting.METRIC_NAME, which a Python without hpq cannot import.
_OTHER = re.compile(r"[^A-Za-z0-9_./ @()%:+-]")
_LONGEST = 64


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
    clean = _OTHER.sub("_", name)[:_LONGEST] or "_"
    if clean != name:
        log_once(f"the metric {name!r} is kept as {clean!r}")
    return clean


def split(data: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, float], dict[str, Any]]:
    """Split nested mappings into numbers and other values, with names joined by '.'."""
    numbers: dict[str, float] = {}
    rest: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if (found := number_of(value)) is not None:
            numbers[metric_name(name)] = found
        elif isinstance(value, Mapping):
            inner, other = split(value, f"{name}.")
            numbers.update(inner)
            rest.update(other)
        elif value is not None:
            rest[name] = value
    return numbers, rest


def same(a: float, b: float) -> bool:
    """Return True for equal numbers, and for two NaNs."""
    return a == b or (math.isnan(a) and math.isnan(b))


@dataclass
class Defined:
    """The rule of one `define_metric` call, for a name or for all names with a prefix."""

    step_metric: str | None = None
    extremes: tuple[str, ...] = ()  # min, max: reported beside the values

    @classmethod
    def of(cls, axis: str | None, summary: str | None, goal: str | None) -> Defined:
        """Parse the arguments of `define_metric`; `summary` is a comma-separated list."""
        best = {"minimize": "min", "maximize": "max"}.get(goal or "", "min")
        words = [word.strip() for word in (summary or "").split(",")]
        kinds = [best if word == "best" else word for word in words]
        return cls(axis, tuple(kind for kind in kinds if kind in _EXTREMES))


_UNDEFINED = Defined()


class Rows:
    """The rows of a run. A row is sent as a whole when W&B would end the row.

    If the script gives a step, W&B ends the row at the next greater step. hpq does not wait for
    that step: a metric's first value is sent at once, and its last value when the row ends.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.step = 0  # of the row that is not sent yet
        self.last_step = 0  # of the values that were sent last
        self.sent: dict[str, float] = {}  # the last value of every name
        self._row: dict[str, float] = {}
        self._shown: dict[str, float] = {}  # values of this row that were sent already
        self._defined: dict[str, Defined] = {}
        self._extremes: dict[str, float] = {}
        self._axis_names: set[str] = set()
        self._axes: dict[str, float] = {}  # the last values of all metrics
        self._only_set: set[str] = set()  # names that the script sets and never logs

    def define(self, name: str, defined: Defined) -> None:
        """Add a rule of `define_metric`; `name` may end with *."""
        self._defined[name] = defined
        if defined.step_metric:
            self._axis_names.add(defined.step_metric)

    def log(self, values: Mapping[str, float], step: int | None, commit: bool | None) -> bool:
        """Add the values of one `log` call. Return False if W&B would drop them."""
        if step is not None:
            if step < self.step:
                log_once(
                    f"step {step} is below {self.step}: steps must rise, so hpq drops these values,"
                    " as W&B does (use `define_metric` for another axis)"
                )
                return False
            if step > self.step:
                self.flush()
                self.step = step
        self._row.update(values)
        if commit or (commit is None and step is None):
            self.flush()
            self.step += 1
        elif commit is None:
            self._show({n: v for n, v in self._row.items() if n not in self._shown})
        return True

    def flush(self) -> None:
        """End the row."""
        shown = self._shown
        self._show({n: v for n, v in self._row.items() if n not in shown or not same(shown[n], v)})
        self._row, self._shown = {}, {}

    def _show(self, values: dict[str, float]) -> None:
        self._shown.update(values)
        self._axes.update(values)
        by_step: dict[int, dict[str, float]] = {}
        for name, value in values.items():
            rule = self._find(name) if self._defined else _UNDEFINED
            found = by_step.setdefault(self._step_of(name, rule), {})
            found[name] = value
            if rule.extremes:
                found.update(self._extremes_of(name, value, rule))
        for step, some in by_step.items():
            self.put(some, step)

    def set(self, values: Mapping[str, float]) -> None:
        """Report values that the script set in the summary. Logged metrics wait for `end`."""
        self._only_set.update(name for name in values if name not in self.sent)
        self._put_new({n: v for n, v in values.items() if n in self._only_set})

    def end(self, summary: Mapping[str, float]) -> None:
        """End the run. A summary value that differs from the last logged value replaces it."""
        self.flush()
        self._put_new({n: v for n, v in summary.items() if n in self.sent})

    def _put_new(self, values: Mapping[str, float]) -> None:
        sent = self.sent
        new = {n: v for n, v in values.items() if n not in sent or not same(sent[n], v)}
        if new:
            self.put(new, self.last_step)

    def put(self, values: Mapping[str, float], step: int) -> None:
        """Send values at a step."""
        self.sent.update(values)
        self.last_step = step
        self._send(values, step)

    def _find(self, name: str) -> Defined:
        if name in self._defined:
            return self._defined[name]
        for rule, defined in self._defined.items():
            if rule.endswith("*") and name.startswith(rule[:-1]):
                return defined
        return _UNDEFINED

    def _step_of(self, name: str, rule: Defined) -> int:
        """Return the value of the metric's own axis, if it is a whole number, or the row's step."""
        axis = name if name in self._axis_names else rule.step_metric
        at = self._axes.get(axis) if axis else None
        is_count = at is not None and at == at and abs(at) < 2**53 and at == int(at)
        return int(at) if is_count and at is not None else self.step

    def _extremes_of(self, name: str, value: float, rule: Defined) -> dict[str, float]:
        """Return `name.min` and `name.max` if `define_metric` asks for them and they changed."""
        found: dict[str, float] = {}
        for kind in rule.extremes:
            if value == value:
                key = f"{name}.{kind}"
                best = _EXTREMES[kind](value, self._extremes.get(key, value))
                if self._extremes.get(key) != best:
                    self._extremes[key] = found[key] = best
        return found


class Summary:
    """`run.summary`: the last value of each metric, and values that the script sets.

    Items are attributes, too. `on_set` is called with the items that the script sets.
    """

    def __init__(self, on_set: Callable[[Mapping[str, Any]], None]) -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_on_set", on_set)

    def _note(self, values: Mapping[str, Any]) -> None:
        """Store logged values."""
        self._items.update(values)

    def update(self, d: Mapping[str, Any]) -> None:
        self._items.update(d)
        self._on_set(d)

    def keys(self) -> list[str]:
        return list(self._items)

    def items(self) -> list[tuple[str, Any]]:
        return list(self._items.items())

    def get(self, key: str, default: Any = None) -> Any:
        return self._items.get(key, default)

    def _as_dict(self) -> dict[str, Any]:
        return dict(self._items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["_items"][key]
        except KeyError:
            raise AttributeError(f"the summary has no {key!r} yet") from None

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    __setattr__ = __setitem__

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __repr__(self) -> str:
        return str(self._items)
