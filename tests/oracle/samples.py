"""Record the samples that W&B draws from each distribution.

tests/data/oracle/samples.json is

    {"sweeps": "0.3.0",
     "cases": [{"entry": {…}, "quantiles": [999 numbers]} |
               {"entry": {…}, "chances": [[value, probability], …]}]}

`quantiles` are those at 0.001, 0.002, …, of a continuous distribution; W&B draws by its quantile
function. `chances` of one that takes few values are counted over 200,000 even quantiles; values
with less than one in 100,000 are left out.
"""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import Any

EVEN = 200_000
ENTRIES: list[dict[str, Any]] = [
    {"value": 3},
    {"distribution": "constant", "value": "x"},
    {"values": ["a", "b", "c"]},
    {"distribution": "categorical", "values": [1, 2.5, None, False]},
    {"values": ["a", "b", "c"], "probabilities": [0.5, 0.2, 0.3]},
    {"distribution": "categorical_w_probabilities", "values": [1, 2], "probabilities": [0.0, 1.0]},
    {"min": 1, "max": 6},
    {"distribution": "int_uniform", "min": -2, "max": 2},
    {"min": 0, "max": 0.1},
    {"distribution": "uniform", "min": -3, "max": 5},
    {"distribution": "q_uniform", "min": 0, "max": 10},
    {"distribution": "q_uniform", "min": 0.05, "max": 1, "q": 0.1},
    {"distribution": "q_uniform", "min": 1, "max": 9, "q": 2},
    {"distribution": "q_uniform", "min": 1, "max": 10, "q": 3},
    {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
    {"distribution": "log_uniform_values", "min": 2, "max": 2000},
    {"distribution": "q_log_uniform_values", "min": 1, "max": 40},
    {"distribution": "q_log_uniform_values", "min": 8, "max": 256, "q": 8},
    {"distribution": "q_log_uniform_values", "min": 0.1, "max": 3, "q": 0.5},
    {"distribution": "inv_log_uniform_values", "min": 0.001, "max": 0.5},
    {"distribution": "inv_log_uniform_values", "min": 2, "max": 7},
    {"distribution": "log_uniform", "min": -7, "max": 0},
    {"distribution": "q_log_uniform", "min": 0, "max": 3},
    {"distribution": "q_log_uniform", "min": 0, "max": 4, "q": 4},
    {"distribution": "inv_log_uniform", "min": 1, "max": 6},
    {"distribution": "inv_log_uniform", "min": -2, "max": 3.5},
    {"distribution": "normal"},
    {"distribution": "normal", "mu": 3, "sigma": 0.2},
    {"distribution": "q_normal", "mu": 10, "sigma": 3},
    {"distribution": "q_normal", "sigma": 1, "q": 0.5},
    {"distribution": "log_normal"},
    {"distribution": "log_normal", "mu": -5, "sigma": 2},
    {"distribution": "q_log_normal", "mu": 1, "sigma": 0.5},
    {"distribution": "q_log_normal", "mu": 2, "sigma": 0.5, "q": 4},
    {"distribution": "beta"},
    {"distribution": "beta", "a": 2, "b": 0.5},
    {"distribution": "q_beta", "a": 2, "b": 5, "q": 0.1},
    {"distribution": "q_beta", "a": 0.5, "b": 0.5},
]


def answers() -> dict[str, Any]:
    """Return the contents of the file."""
    return {"sweeps": version("sweeps"), "cases": [_case(entry) for entry in ENTRIES]}


def _case(entry: dict[str, Any]) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415
    from sweeps.params import HyperParameter  # noqa: PLC0415

    parameter = HyperParameter("p", entry)
    if parameter.type == HyperParameter.CONSTANT:
        return {"entry": entry, "chances": [[parameter.sample(), 1.0]]}
    name = entry.get("distribution", "")
    if not name.startswith("q_") and "values" not in entry and "int" not in parameter.type:
        drawn = parameter.ppf(np.arange(1, 1000) / 1000)
        return {"entry": entry, "quantiles": [float(f"{value:.7g}") for value in drawn]}
    even = (np.arange(EVEN) + 0.5) / EVEN
    # One by one, as W&B's agent draws: for an array, the weighted choice returns the first value.
    weighted = parameter.type == HyperParameter.CATEGORICAL_PROB
    drawn = [parameter.ppf(x) for x in even] if weighted else parameter.ppf(even)
    counts = Counter(_plain(value) for value in drawn)
    chances = [[value, n / EVEN] for value, n in counts.items() if n / EVEN >= 1e-5]
    return {"entry": entry, "chances": chances}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    return float(f"{float(value):.9g}") + 0.0
