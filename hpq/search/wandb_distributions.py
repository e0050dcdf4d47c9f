"""W&B's distributions: their names and keys, and how to build one from the entry of a sweep file.

`log_uniform` and the other names whose min and max are exponents are deprecated in W&B. hpq reads
them as W&B does, and warns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpq.domain.identity import canonical
from hpq.domain.trial import Json
from hpq.search.distributions import (
    Beta,
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    Normal,
    Uniform,
    Weighted,
)

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DistributionKeys:
    """A distribution's required and optional keys, and the function that builds it from them."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    build: Callable[[Numbers], Distribution]


def _logs(k: Numbers) -> Distribution:
    return LogUniform(low=k["min"], high=k["max"], q=k.get("q"))


def _exponents(k: Numbers) -> Distribution:
    return LogUniform(low=math.exp(k["min"]), high=math.exp(k["max"]), q=k.get("q"))


def _uniform(k: Numbers) -> Distribution:
    return Uniform(low=k["min"], high=k["max"], q=k.get("q"))


def _normal(k: Numbers) -> Distribution:
    return Normal(mu=k.get("mu", 0), sigma=k.get("sigma", 1), q=k.get("q"))


def _log_normal(k: Numbers) -> Distribution:
    return Normal(mu=k.get("mu", 0), sigma=k.get("sigma", 1), q=k.get("q"), log=True)


def _beta(k: Numbers) -> Distribution:
    return Beta(a=k.get("a", 1), b=k.get("b", 1), q=k.get("q"))


_RANGE = ("min", "max")
_GAUSS = ("mu", "sigma")
NUMERIC: Mapping[str, DistributionKeys] = {
    "int_uniform": DistributionKeys(_RANGE, (), lambda k: IntUniform(int(k["min"]), int(k["max"]))),
    "uniform": DistributionKeys(_RANGE, (), _uniform),
    "q_uniform": DistributionKeys(_RANGE, ("q",), _uniform),
    "log_uniform_values": DistributionKeys(_RANGE, (), _logs),
    "q_log_uniform_values": DistributionKeys(_RANGE, ("q",), _logs),
    "inv_log_uniform_values": DistributionKeys(_RANGE, (), _logs),
    "log_uniform": DistributionKeys(_RANGE, (), _exponents),
    "q_log_uniform": DistributionKeys(_RANGE, ("q",), _exponents),
    "inv_log_uniform": DistributionKeys(
        _RANGE, (), lambda k: LogUniform(low=math.exp(-k["max"]), high=math.exp(-k["min"]))
    ),
    "normal": DistributionKeys((), _GAUSS, _normal),
    "q_normal": DistributionKeys((), (*_GAUSS, "q"), _normal),
    "log_normal": DistributionKeys((), _GAUSS, _log_normal),
    "q_log_normal": DistributionKeys((), (*_GAUSS, "q"), _log_normal),
    "beta": DistributionKeys((), ("a", "b"), _beta),
    "q_beta": DistributionKeys((), ("a", "b", "q"), _beta),
}
LISTED: Mapping[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values",),
    "categorical_w_probabilities": ("values", "probabilities"),
}
# Names of other libraries. A spelling hint would offer log_uniform, whose ends are exponents.
ALIASES = {
    "loguniform": "log_uniform_values",
    "log": "log_uniform_values",
    "reciprocal": "log_uniform_values",
    "qloguniform": "q_log_uniform_values",
    "choice": "categorical",
    "gaussian": "normal",
}
EXPONENTS = frozenset({"log_uniform", "q_log_uniform", "inv_log_uniform"})


def name_of(entry: Mapping[str, Json]) -> str | None:
    """Return the distribution of a parameter, inferred if no key names it; None if keys lack."""
    if "distribution" in entry:
        return str(entry["distribution"])
    if "value" in entry:
        return "constant"
    if "values" in entry:
        return "categorical_w_probabilities" if "probabilities" in entry else "categorical"
    if "min" in entry and "max" in entry:
        both = isinstance(entry["min"], int) and isinstance(entry["max"], int)
        return "int_uniform" if both else "uniform"
    return None


def numbers_of(name: str, entry: Mapping[str, Json]) -> Numbers:
    """Return the numbers of a parameter, with the default of `q`."""
    numbers = {k: v for k, v in entry.items() if isinstance(v, int | float)}
    return {"q": 1, **numbers} if "q" in NUMERIC[name].optional else numbers


def build(name: str, entry: Mapping[str, Json]) -> Distribution:
    """Build the distribution of a checked parameter."""
    if name in NUMERIC:
        return NUMERIC[name].build(numbers_of(name, entry))
    if name == "constant":
        return Categorical((entry["value"],), constant=True)
    values, weights = entry["values"], entry.get("probabilities", ())
    assert isinstance(values, list)
    if name == "categorical":
        first: dict[bytes, Json] = {}
        for value in values:
            first.setdefault(canonical({"": value}), value)
        return Categorical(tuple(first.values()))
    assert isinstance(weights, list)
    return Weighted(tuple(values), tuple(p for p in weights if isinstance(p, int | float)))
