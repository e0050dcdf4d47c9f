"""A search space with all of W&B's distributions, nested names and values of every kind."""

from __future__ import annotations

from hpq.search.space import Space
from hpq.yamlfile.problems import Problems, SourceMap
from hpq_producer.sweepfile import parameters

LIMITS = {"min": 2, "max": 50}
SMALL = {"min": 0.5, "max": 30.0}
EXPONENTS = {"min": -3, "max": 2.5}
PARAMETERS = {
    "constant": {"value": None},
    "choice": {"values": [1, "a", 2.5, None, True, [1, 2], {"deep": [1]}]},
    "weighted": {"values": ["x", "y", "z"], "probabilities": [0.2, 0.8, 0]},
    "int_uniform": {"min": -3, "max": 9},
    "uniform": {"min": 0.1, "max": 5},
    "q_uniform": {"distribution": "q_uniform", **LIMITS, "q": 3},
    "q_fraction": {"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 0.05},
    "log_uniform_values": {"distribution": "log_uniform_values", **SMALL},
    "q_log_uniform_values": {"distribution": "q_log_uniform_values", **SMALL, "q": 2},
    "inv_log_uniform_values": {"distribution": "inv_log_uniform_values", **SMALL},
    "log_uniform": {"distribution": "log_uniform", **EXPONENTS},
    "q_log_uniform": {"distribution": "q_log_uniform", **EXPONENTS, "q": 0.5},
    "inv_log_uniform": {"distribution": "inv_log_uniform", **EXPONENTS},
    "normal": {"distribution": "normal", "mu": 3, "sigma": 0.5},
    "q_normal": {"distribution": "q_normal", "mu": -2.0, "sigma": 4.0, "q": 1},
    "log_normal": {"distribution": "log_normal", "mu": 0.5},
    "q_log_normal": {"distribution": "q_log_normal", "sigma": 1.5, "q": 1},
    "beta": {"distribution": "beta", "a": 2, "b": 5},
    "q_beta": {"distribution": "q_beta", "a": 0.5, "b": 0.5, "q": 0.1},
    "fixed": {"distribution": "normal", "mu": 1.0, "sigma": 0},
    "nested": {"parameters": {"deep": {"parameters": {"lr": {"min": 0.0, "max": 1.0}}}}},
}


def _space():
    out = Problems(SourceMap(file="every.yaml"))
    space = Space.of(parameters.read_leaves(PARAMETERS, ("parameters",), out))
    out.raise_errors()
    return space


SPACE = _space()
