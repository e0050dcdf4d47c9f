"""Define a constraint: a bound on a metric, as a sweep file writes it.

A constraint is no expression (expression.py). Samplers learn from how far a value exceeds the
bound, not from whether it does. A metric's name may hold `@`, `%` or `(`, which Python's parser
would read as operators. The pattern is part of the sweep file's schema, by which an editor checks
the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# A bound of 200 characters with two digits of exponent is finite.
CONSTRAINT_RULE = re.compile(
    r"""(?!.{201}) *(?:"([A-Za-z0-9_./@()%:+ -]{1,64})"|([A-Za-z0-9_./@()%:+-]{1,64})) *(<=|>=) *"""
    r"""([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?) *\Z"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A bound on the last value of a reported metric, such as `peak_memory_gb <= 24`."""

    metric: str
    op: Literal["<=", ">="]
    bound: float

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parse `NAME <= NUMBER` or `NAME >= NUMBER`; a name with spaces is in double quotes.

        Raises:
            ValueError: the text is no constraint.
        """
        found = CONSTRAINT_RULE.match(text)
        if found is None:
            raise ValueError(f"{text!r} is no constraint")
        quoted, name, op, bound = found.groups()
        return cls(metric=quoted or name, op="<=" if op == "<=" else ">=", bound=float(bound))

    def __str__(self) -> str:
        name = f'"{self.metric}"' if " " in self.metric else self.metric
        return f"{name} {self.op} {self.bound!r}".removesuffix(".0")

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Return how far a trial's last values exceed the bound: at most 0 if they meet it.

        A metric that was not reported, or is not a number, is infinitely far.
        """
        value = metrics.get(self.metric, math.nan)
        found = value - self.bound if self.op == "<=" else self.bound - value
        return math.inf if found != found else found
