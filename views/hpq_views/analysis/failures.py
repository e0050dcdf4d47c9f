"""Find what the failed trials of a sweep have in common. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hpq.domain.trial import Json
from hpq_views.analysis.space import are_numbers
from hpq_views.text.text import clean, value

_MOST_KEPT = 1_000  # failed trials of a kind whose parameters are kept
_CHANCE = 0.05  # of so common a value if failures had no cause among the parameters

Params = Mapping[str, Json]


@dataclass(slots=True, kw_only=True)
class FailureGroup:
    """Trials that failed with the same kind of error.

    `common` says which parameters they share, as `all 6 have boosting=rf`.
    """

    kind: str
    example: str
    message: str
    count: int = 0
    common: Sequence[str] = ()
    _sets: list[Params] = field(default_factory=list)

    def add(self, params: Params) -> None:
        """Count a trial with these parameters."""
        self.count += 1
        if len(self._sets) < _MOST_KEPT:
            self._sets.append(params)

    def compare(self, names: Sequence[str], others: Sequence[Params]) -> None:
        """Set what the trials have in common, but not with others, which have results."""
        words = (_common(name, self._sets, others, len(names)) for name in names)
        self.common = [text for text in words if text]


def _common(name: str, failed: Sequence[Params], others: Sequence[Params], of: int) -> str:
    """Return what failed trials share of one of `of` parameters; "" if it may be by chance."""
    if len(failed) < 2 or not all(name in params for params in failed):
        return ""
    values = [params[name] for params in failed]
    rest = [params.get(name) for params in others]
    tests: list[tuple[str, Callable[[Json], bool]]] = []
    first = json.dumps(values[0], sort_keys=True)
    if all(json.dumps(one, sort_keys=True) == first for one in values):
        tests = [(f"={value(values[0])}", lambda one: json.dumps(one, sort_keys=True) == first)]
    elif are_numbers(values):
        numbers = [float(one) for one in values if isinstance(one, int | float)]
        low, high = min(numbers), max(numbers)
        tests = [
            (f" >= {value(low)}", lambda one: isinstance(one, int | float) and one >= low),
            (f" <= {value(high)}", lambda one: isinstance(one, int | float) and one <= high),
        ]
    for text, has in tests:
        alike = sum(map(has, rest))
        share = (alike + len(failed)) / (len(rest) + len(failed))
        if share ** len(failed) * of < _CHANCE:
            compared = f", as {alike} of {len(rest):,} trials with a result" if alike else ""
            return f"all {len(failed)} have {clean(name)}{text}{compared}"
    return ""
