"""Read `early_terminate` of a sweep file: the rule and its bands.

hyperband equals that of W&B's package `sweeps`; asha and median have Optuna's rules and defaults.
Bands count the finite values of the metric, not steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import takewhile

from hpq.domain.sweep import EarlyTerminate, TerminationRule
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Json
from hpq_producer.sweepfile import schema
from hpq_producer.sweepfile.errors import Problems, shown
from hpq_producer.sweepfile.values import Check, choice, flag, integer, number

_KEY = "early_terminate"
_MAX_BANDS = 100  # min_iter·eta^k for k below it, as in W&B
_MAX_BAND = 2**53  # the largest integer that a double of a Redis script holds exactly
_MAX_MEDIAN_BAND = 2**20
_COUNT = integer(1, 2**31)
_TYPE: Mapping[str, Check] = {"type": choice(*(rule.value for rule in TerminationRule))}
RULES: Mapping[str, Mapping[str, Check]] = {
    TerminationRule.HYPERBAND: {
        **_TYPE,
        "min_iter": _COUNT,
        "max_iter": _COUNT,
        "s": integer(1, 100),
        "eta": number(1),
        "strict": flag,
    },
    TerminationRule.ASHA: {**_TYPE, "min_iter": _COUNT, "max_iter": _COUNT, "eta": number(1)},
    TerminationRule.MEDIAN: {**_TYPE, "min_iter": _COUNT, "min_trials": _COUNT},
}


def check(data: Mapping[str, Json], out: Problems) -> None:
    """Report errors of the sweep's `early_terminate`."""
    value = data[_KEY]
    if not isinstance(value, dict):
        out.add((_KEY,), f"{shown(value)} is not a mapping; write {{type: hyperband, min_iter: 3}}")
        return
    if "type" not in value:
        out.add_missing((_KEY,), "needs type: hyperband, asha or median")
        return
    kind = value["type"]
    errors = len(out.errors)
    table = RULES.get(kind, RULES[TerminationRule.HYPERBAND]) if isinstance(kind, str) else _TYPE
    schema.check(value, table, (_KEY,), out)
    if len(out.errors) > errors:
        return
    if "metric" not in data and str(data.get("trainer")) not in BUILT_IN:
        out.add_missing((_KEY,), "needs a metric; write metric: {name: …, goal: …}")
    if kind == TerminationRule.HYPERBAND and "max_iter" in value and "s" not in value:
        out.add_missing(
            (_KEY,), "max_iter needs s, the number of bands below it; or write only min_iter"
        )
    elif kind == TerminationRule.HYPERBAND and not {"min_iter", "max_iter"} & value.keys():
        out.add_missing((_KEY,), "needs min_iter, or max_iter with s")
    elif not read(value).bands:
        out.add((_KEY, "max_iter"), "has no band from 1 to below it; raise it")


def read(value: Mapping[str, Json]) -> EarlyTerminate:
    """Read the rule from a checked mapping."""

    def setting(key: str, default: float) -> float:
        number = value.get(key, default)
        return number if isinstance(number, int | float) else default

    rule = TerminationRule(str(value["type"]))
    first, limit = int(setting("min_iter", 1)), int(setting("max_iter", 0))
    if rule is TerminationRule.MEDIAN:
        startup = int(setting("min_trials", 5))
        return EarlyTerminate(rule=rule, bands=tuple(_dense(first)), min_trials=startup)
    eta = float(setting("eta", 3 if rule is TerminationRule.HYPERBAND else 4))
    if rule is TerminationRule.ASHA:
        rungs = _rising(first, eta)
        bands = takewhile(lambda band: band < limit, rungs) if limit else rungs
        return EarlyTerminate(rule=rule, bands=_distinct(bands), eta=eta)
    falling = _falling(limit, eta, int(setting("s", 0)))
    return EarlyTerminate(
        rule=rule,
        bands=_distinct(falling if limit else _rising(first, eta)),
        eta=eta,
        strict=value.get("strict") is not False,
    )


def _rising(first: int, eta: float) -> Iterator[int]:
    band = float(first)
    for _ in range(_MAX_BANDS):
        if band > _MAX_BAND:
            return
        yield int(band)
        band *= eta


def _falling(limit: int, eta: float, count: int) -> Iterator[int]:
    band = float(limit)
    for _ in range(count):
        band /= eta
        if band < 1:
            return
        yield int(band)


def _dense(first: int) -> Iterator[int]:
    """Yield every band up to 16, then eight per doubling: each band is a sorted set in Redis."""
    band = first
    while band <= _MAX_MEDIAN_BAND:
        yield band
        band += max(1, 2 ** int(math.log2(band)) // 8)


def _distinct(bands: Iterator[int]) -> tuple[int, ...]:
    return tuple(sorted(set(bands)))
