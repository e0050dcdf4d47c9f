"""`early_terminate` of a sweep file: the rules, and the values that each looks at.

hyperband is W&B's, to the letter of its package `sweeps`; asha and median have Optuna's rules and
defaults. All count the finite values of the metric, not steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import takewhile

from hpq.domain.sweep import EarlyTerminate, TerminationRule
from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Json
from hpq_producer.sweepfile import schema
from hpq_producer.sweepfile.errors import Problems, shown
from hpq_producer.sweepfile.values import FLAG, Check, number, whole, word

_KEY = "early_terminate"
_ROUNDS = 100  # of min_iter·eta^k; W&B makes so many
_MOST = 2**53  # exact in a double, which is what Redis's scripts count with
_LONGEST = 2**20  # values of one trial that the median looks at
_COUNT = whole(1, 2**31)
_TYPE: Mapping[str, Check] = {"type": word(*(rule.value for rule in TerminationRule))}
RULES: Mapping[str, Mapping[str, Check]] = {
    TerminationRule.HYPERBAND: {
        **_TYPE,
        "min_iter": _COUNT,
        "max_iter": _COUNT,
        "s": whole(1, 100),
        "eta": number(1),
        "strict": FLAG,
    },
    TerminationRule.ASHA: {**_TYPE, "min_iter": _COUNT, "max_iter": _COUNT, "eta": number(1)},
    TerminationRule.MEDIAN: {**_TYPE, "min_iter": _COUNT, "min_trials": _COUNT},
}


def check(data: Mapping[str, Json], out: Problems) -> None:
    """Note what is wrong with the sweep's `early_terminate`."""
    value = data[_KEY]
    if not isinstance(value, dict):
        out.add((_KEY,), f"{shown(value)} is not a mapping; write {{type: hyperband, min_iter: 3}}")
        return
    if "type" not in value:
        out.add((_KEY,), "needs type: hyperband, asha or median", code="missing-key")
        return
    kind = value["type"]
    errors = len(out.errors)
    table = RULES.get(kind, RULES[TerminationRule.HYPERBAND]) if isinstance(kind, str) else _TYPE
    schema.check(value, table, (_KEY,), out)
    if len(out.errors) > errors:
        return
    if "metric" not in data and str(data.get("trainer")) not in SHIPPED:
        out.add((_KEY,), "needs a metric; write metric: {name: …, goal: …}", code="missing-key")
    if kind == TerminationRule.HYPERBAND and "max_iter" in value and "s" not in value:
        out.add(
            (_KEY,),
            "max_iter needs s, the number of bands below it; or write min_iter alone",
            code="missing-key",
        )
    elif kind == TerminationRule.HYPERBAND and not {"min_iter", "max_iter"} & value.keys():
        out.add((_KEY,), "needs min_iter, or max_iter with s", code="missing-key")
    elif not read(value).bands:
        out.add((_KEY, "max_iter"), "no band lies below it and is at least 1; a larger one, please")


def read(value: Mapping[str, Json]) -> EarlyTerminate:
    """The rule that a checked mapping is."""

    def given(key: str, default: float) -> float:
        got = value.get(key, default)
        return got if isinstance(got, int | float) else default

    rule = TerminationRule(str(value["type"]))
    least, most = int(given("min_iter", 1)), int(given("max_iter", 0))
    if rule is TerminationRule.MEDIAN:
        startup = int(given("min_trials", 5))
        return EarlyTerminate(rule=rule, bands=tuple(_dense(least)), min_trials=startup)
    eta = float(given("eta", 3 if rule is TerminationRule.HYPERBAND else 4))
    if rule is TerminationRule.ASHA:
        rungs = _rising(least, eta)
        bands = takewhile(lambda band: band < most, rungs) if most else rungs
        return EarlyTerminate(rule=rule, bands=_distinct(bands), eta=eta)
    falling = _falling(most, eta, int(given("s", 0)))
    return EarlyTerminate(
        rule=rule,
        bands=_distinct(falling if most else _rising(least, eta)),
        eta=eta,
        strict=value.get("strict") is not False,
    )


def _rising(least: int, eta: float) -> Iterator[int]:
    band = float(least)
    for _ in range(_ROUNDS):
        if band > _MOST:
            return
        yield int(band)
        band *= eta


def _falling(most: int, eta: float, count: int) -> Iterator[int]:
    band = float(most)
    for _ in range(count):
        band /= eta
        if band < 1:
            return
        yield int(band)


def _dense(least: int) -> Iterator[int]:
    """Every value up to the sixteenth, then eight to a doubling: few sets for long trials."""
    band = least
    while band <= _LONGEST:
        yield band
        band += max(1, 2 ** int(math.log2(band)) // 8)


def _distinct(bands: Iterator[int]) -> tuple[int, ...]:
    return tuple(sorted(set(bands)))
