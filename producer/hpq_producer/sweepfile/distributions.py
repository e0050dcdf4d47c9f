"""W&B's distributions by name: the keys of each, how it is made of them, what makes it impossible.

The names without `_values` that take exponents are W&B's deprecated ones: hpq reads them as W&B
does, and warns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpq.search.continuous import Beta, LogUniform, Normal, Uniform
from hpq.search.discrete import Distribution, IntUniform
from hpq_producer.sweepfile.errors import shown

Num = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """A distribution's required and optional keys, and how it is made of them."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]
    make: Callable[[Num], Distribution]


def _logs(k: Num) -> Distribution:
    return LogUniform(low=k["min"], high=k["max"], q=k.get("q"))


def _exponents(k: Num) -> Distribution:
    return LogUniform(low=math.exp(k["min"]), high=math.exp(k["max"]), q=k.get("q"))


def _inverse(k: Num) -> Distribution:
    return LogUniform(low=math.exp(-k["max"]), high=math.exp(-k["min"]))


def _uniform(k: Num) -> Distribution:
    return Uniform(low=k["min"], high=k["max"], q=k.get("q"))


def _normal(k: Num) -> Distribution:
    return Normal(mu=k.get("mu", 0), sigma=k.get("sigma", 1), q=k.get("q"))


def _log_normal(k: Num) -> Distribution:
    return Normal(mu=k.get("mu", 0), sigma=k.get("sigma", 1), q=k.get("q"), log=True)


def _beta(k: Num) -> Distribution:
    return Beta(a=k.get("a", 1), b=k.get("b", 1), q=k.get("q"))


def _integers(k: Num) -> Distribution:
    return IntUniform(int(k["min"]), int(k["max"]))


_RANGE = ("min", "max")
_GAUSS = ("mu", "sigma")
NUMERIC: Mapping[str, Rule] = {
    "int_uniform": Rule(_RANGE, (), _integers),
    "uniform": Rule(_RANGE, (), _uniform),
    "q_uniform": Rule(_RANGE, ("q",), _uniform),
    "log_uniform_values": Rule(_RANGE, (), _logs),
    "q_log_uniform_values": Rule(_RANGE, ("q",), _logs),
    "inv_log_uniform_values": Rule(_RANGE, (), _logs),
    "log_uniform": Rule(_RANGE, (), _exponents),
    "q_log_uniform": Rule(_RANGE, ("q",), _exponents),
    "inv_log_uniform": Rule(_RANGE, (), _inverse),
    "normal": Rule((), _GAUSS, _normal),
    "q_normal": Rule((), (*_GAUSS, "q"), _normal),
    "log_normal": Rule((), _GAUSS, _log_normal),
    "q_log_normal": Rule((), (*_GAUSS, "q"), _log_normal),
    "beta": Rule((), ("a", "b"), _beta),
    "q_beta": Rule((), ("a", "b", "q"), _beta),
}
LISTED: Mapping[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values",),
    "categorical_w_probabilities": ("values", "probabilities"),
}
# Other libraries' words; `loguniform` is near log_uniform, whose ends are exponents.
MEANT = {
    "loguniform": "log_uniform_values",
    "log": "log_uniform_values",
    "reciprocal": "log_uniform_values",
    "qloguniform": "q_log_uniform_values",
    "choice": "categorical",
    "gaussian": "normal",
}
INFERRED = frozenset({"int_uniform", "uniform"})  # by min and max alone
EXPONENTS = frozenset({"log_uniform", "q_log_uniform", "inv_log_uniform"})
_MAX_EXPONENT = 700.0  # e to the 709 is the largest float


def impossible(name: str, keys: Num) -> tuple[str, str] | None:
    """The key and what is wrong, where the numbers do not describe a distribution."""
    if "min" in keys:
        low, high = keys["min"], keys["max"]
        if name == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
            key = "max" if isinstance(low, int) else "min"
            return key, f"{shown(keys[key])} is not a whole number, which int_uniform wants"
        if low >= high:
            return "min", f"{shown(low)} is not below max {shown(high)}"
        if name.endswith("_values") and low <= 0:
            return "min", f"{shown(low)} is not above 0, which {name} wants"
        if name in EXPONENTS and max(abs(low), abs(high)) > _MAX_EXPONENT:
            key = "min" if abs(low) > abs(high) else "max"
            return (
                key,
                f"{shown(keys[key])} is not an exponent from -700 to 700 (natural logarithm)",
            )
    if name.endswith("log_normal"):
        mu, sigma = keys.get("mu", 0), keys.get("sigma", 1)
        if abs(mu) + 9 * sigma > _MAX_EXPONENT:
            key = "mu" if abs(mu) > 9 * sigma else "sigma"
            return key, f"{shown(keys[key])} is too far: values are e to the power of it"
    return None
