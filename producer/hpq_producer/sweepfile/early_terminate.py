"""The rules of `early_terminate` and their bands.

Bands are counts of finite values of the metric, not steps. hyperband equals that of W&B's package
`sweeps`; asha and median have Optuna's rules and defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from hpq.domain.sweep import EarlyTerminate, TerminationRule
from hpq.yamlfile.strict_model import Absent, Flag, Keys, Number, Whole, problem
from hpq_producer.sweepfile.key_types import Count, MetricName

_MAX_BANDS = 100  # min_iter·eta^k for k below it, as in W&B
_MAX_BAND = 2**53  # the largest integer that a double of a Redis script holds exactly
_MAX_MEDIAN_BAND = 2**20


class _Rule(Keys):
    """A rule of early termination."""

    metric: Absent[MetricName] = Field(
        None, description="The one of `metrics` by which trials are compared."
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if missing := self._missing():
            raise problem("missing-key", missing)
        if not self.rule().bands:
            text = "has no band from 1 to below it; raise it"
            raise problem("invalid-value", text, "max_iter")
        return self

    def _missing(self) -> str:
        return ""

    def rule(self) -> EarlyTerminate:
        """Return the rule with its bands."""
        raise NotImplementedError


class Hyperband(_Rule):
    """W&B's rule: a trial stops if it is worse than the value at rank n/eta of all trials."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["min_iter"]}, {"required": ["max_iter", "s"]}]}
    )
    type: Literal["hyperband"]
    min_iter: Absent[Count] = Field(None, description="The first band; the next are eta times it.")
    max_iter: Absent[Count] = Field(None, description="The number of values of a whole trial.")
    s: Absent[Annotated[Whole, Field(ge=1, le=100)]] = Field(
        None, description="Number of bands below max_iter."
    )
    eta: Number = Field(3.0, gt=1, description="A band keeps the best 1/eta of the trials.")
    strict: Flag = Field(
        True, description="Compare the value at the band, instead of the best one so far."
    )

    def _missing(self) -> str:
        if self.max_iter and not self.s:
            return "max_iter needs s, the number of bands below it; or write only min_iter"
        return "" if self.min_iter or self.max_iter else "needs min_iter, or max_iter with s"

    def unused(self) -> tuple[str, str] | None:
        """Return the key that changes no band, and why; None if each has an effect."""
        if self.max_iter and self.min_iter:
            bands = ", ".join(map(str, self.rule().bands))
            return "min_iter", f"beside max_iter and s, whose bands are {bands}"
        if self.s and not self.max_iter:
            return "s", "without max_iter"
        return None

    def rule(self) -> EarlyTerminate:
        """Return the rule with its bands."""
        if self.max_iter:
            bands = _falling(self.max_iter, self.eta, self.s or 0)
        else:
            bands = _rising(self.min_iter or 1, self.eta)
        return EarlyTerminate(
            rule=TerminationRule.HYPERBAND, bands=bands, eta=self.eta, strict=self.strict
        )


class Asha(_Rule):
    """Optuna's successive halving."""

    type: Literal["asha"]
    min_iter: Count = Field(1, description="The first band; the next are eta times it.")
    max_iter: Absent[Count] = Field(None, description="Bands are below this number of values.")
    eta: Number = Field(4.0, gt=1, description="A band keeps the best 1/eta of the trials.")

    def rule(self) -> EarlyTerminate:
        """Return the rule with its bands."""
        bands = _rising(self.min_iter, self.eta, self.max_iter)
        return EarlyTerminate(rule=TerminationRule.ASHA, bands=bands, eta=self.eta)


class Median(_Rule):
    """Optuna's median rule."""

    type: Literal["median"]
    min_iter: Count = Field(1, description="The first band.")
    min_trials: Count = Field(5, description="Other trials that reached a band before it counts.")

    def rule(self) -> EarlyTerminate:
        """Return the rule with its bands."""
        return EarlyTerminate(
            rule=TerminationRule.MEDIAN,
            bands=_dense(self.min_iter),
            min_trials=self.min_trials,
        )


def _rising(first: int, eta: float, limit: int | None = None) -> tuple[int, ...]:
    """Return first, first·eta, first·eta², … below the limit."""
    bands = _multiples(first, eta)
    return _distinct(takewhile(lambda band: band < limit, bands) if limit else bands)


def _falling(limit: int, eta: float, count: int) -> tuple[int, ...]:
    """Return the bands limit/eta, limit/eta², …, at most `count` and none below 1."""
    bands: list[int] = []
    band = limit / eta
    while len(bands) < count and band >= 1:
        bands.append(int(band))
        band /= eta
    return _distinct(bands)


def _dense(first: int) -> tuple[int, ...]:
    """Return every band up to 16, then eight per doubling: each is a sorted set in Redis."""
    bands, band = [], first
    while band <= _MAX_MEDIAN_BAND:
        bands.append(band)
        band += max(1, 2 ** int(math.log2(band)) // 8)
    return tuple(bands)


def _multiples(first: int, eta: float) -> Iterator[int]:
    band = float(first)
    for _ in range(_MAX_BANDS):
        if band > _MAX_BAND:
            return
        yield int(band)
        band *= eta


def _distinct(bands: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(bands)))
