"""W&B's history as reports of hpq: rows, their steps, what `commit` and `define_metric` mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ._say import say
from ._values import same

Send = Callable[[Mapping[str, float], int], None]
_EXTREMES = {"min": min, "max": max}


@dataclass
class Defined:
    """What `define_metric` has said of a name, or of all names with a beginning."""

    step_metric: str | None = None
    summary: tuple[str, ...] = ()
    goal: str | None = None

    @classmethod
    def of(cls, axis: str | None, summary: str | None, goal: str | None) -> Defined:
        """What its arguments mean; `summary` is words with commas between them."""
        words = tuple(word.strip() for word in (summary or "").split(",") if word.strip())
        return cls(step_metric=axis, summary=words, goal=goal)

    def kinds(self) -> tuple[str, ...]:
        """min, max: which extremes are kept beside the values."""
        best = {"minimize": "min", "maximize": "max"}.get(self.goal or "", "min")
        return tuple(best if kind == "best" else kind for kind in self.summary)


class Rows:
    """The rows of a run. A row is sent as a whole when W&B would end it.

    Where a step is given, W&B ends the row with the next greater step; so that nobody waits for
    that, a name's first value at a step is sent at once, and its last one when the row ends.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.step = 0  # of the row that is being filled
        self.last_step = 0  # of what was sent last
        self.sent: dict[str, float] = {}  # the last value of every name
        self._row: dict[str, float] = {}
        self._shown: dict[str, float] = {}  # of this row, what was sent already
        self._defined: dict[str, Defined] = {}
        self._extremes: dict[str, float] = {}
        self._axis_names: set[str] = set()
        self._axes: dict[str, float] = {}  # the last values of all metrics
        self._only_set: set[str] = set()  # names that the script sets and never logs

    def define(self, name: str, defined: Defined) -> None:
        """Keep what define_metric says; `name` may end with *."""
        self._defined[name] = defined
        if defined.step_metric:
            self._axis_names.add(defined.step_metric)

    def log(self, values: Mapping[str, float], step: int | None, commit: bool | None) -> bool:
        """One call of `log`, as W&B understands step and commit; False where it is dropped."""
        if step is not None:
            if step < self.step:
                say(
                    f"step {step} is below {self.step}: steps must rise, so this is dropped, as by"
                    " W&B (say `define_metric` for another axis)"
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
            found = by_step.setdefault(self._step_of(name), {})
            found[name] = value
            found.update(self._extremes_of(name, value))
        for step, some in by_step.items():
            self.put(some, step)

    def set(self, values: Mapping[str, float]) -> None:
        """What is set in the summary. A name that is logged, too, waits for `end`."""
        self._only_set.update(name for name in values if name not in self.sent)
        self._put_new({n: v for n, v in values.items() if n in self._only_set})

    def end(self, summary: Mapping[str, float]) -> None:
        """End the run: where its summary has another value than the last one, that one counts."""
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
        return Defined()

    def _step_of(self, name: str) -> int:
        """The step of a value: that of its own axis where that counts, else the row's."""
        axis = name if name in self._axis_names else self._find(name).step_metric
        at = self._axes.get(axis) if axis else None
        is_count = at is not None and at == at and abs(at) < 2**53 and at == int(at)
        return int(at) if is_count and at is not None else self.step

    def _extremes_of(self, name: str, value: float) -> dict[str, float]:
        """`loss.min` and the like, where define_metric asks for them and they have changed."""
        found: dict[str, float] = {}
        for kind in self._find(name).kinds():
            if kind in _EXTREMES and value == value:
                key = f"{name}.{kind}"
                best = _EXTREMES[kind](value, self._extremes.get(key, value))
                if self._extremes.get(key) != best:
                    self._extremes[key] = found[key] = best
        return found
