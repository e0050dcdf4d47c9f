"""Record which runs W&B stops: hyperband's bands, thresholds and decisions.

tests/data/oracle/hyperband.json is

    {"sweeps": "0.3.0",
     "configs": [{"early_terminate": {…}, "bands": [3, 9, 27, …] | null, "problem": "" | text}],
     "cases": [{"early_terminate": {…}, "goal": "minimize" | "maximize", "bands": […],
                "thresholds": [number | null, …], "runs": [{"running": bool, "values": […]}, …],
                "stopped": [indices of runs], "why": [[band, value, threshold] | null, …]}]}

`configs`: which are taken. `bands` are those up to 10,000, counted in logged values of the metric
(band 3 looks at the third); null where W&B refuses, then `problem` says why. A config with neither
is taken by W&B's schema and fails when it is used.
`cases`: `values` are what a run logged for the metric, in order; null stands for NaN and "inf" for
infinity, which W&B does not count. `thresholds` go with `bands`, null where no run got so far. With
the goal maximize they, and the values in `why`, are of the metric itself, not negated as in W&B.
A run is stopped where its value is worse than the threshold of the highest band that it passed;
`strict: true` takes its value at that band, `false` its best so far. Where `strict` is missing W&B
fills in true. `why` has one entry a run: what decided, null where it is not running or passed none.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from random import Random
from typing import Any

MOST_BAND = 10_000
CONFIGS: list[dict[str, Any]] = [
    {"min_iter": 1}, {"min_iter": 3}, {"min_iter": 5, "eta": 2}, {"min_iter": 3, "eta": 1.5},
    {"min_iter": 1, "eta": 1.1}, {"min_iter": 2, "eta": 10}, {"min_iter": 0}, {"min_iter": -1},
    {"min_iter": 1.5}, {"min_iter": "3"}, {"min_iter": True}, {"min_iter": 3, "eta": 1},
    {"min_iter": 3, "eta": 0.5}, {"min_iter": 3, "eta": "2"}, {"min_iter": 3, "s": 2},
    {"max_iter": 27}, {"max_iter": 27, "s": 2}, {"max_iter": 27, "s": 2, "eta": 2},
    {"max_iter": 27, "s": 9}, {"max_iter": 100, "s": 3, "eta": 3}, {"max_iter": 81, "s": 4},
    {"max_iter": 5, "s": 2, "eta": 2}, {"max_iter": 2, "s": 1}, {"max_iter": 0, "s": 2},
    {"max_iter": 27, "s": 0}, {"max_iter": 27, "s": 2.5}, {"max_iter": 27.5, "s": 2},
    {"max_iter": 27, "s": -1}, {"max_iter": 27, "s": 2, "min_iter": 4}, {"s": 2},
    {"max_iter": 50, "s": 3, "eta": 1.7}, {"max_iter": 27, "min_iter": 3},
    {"min_iter": 3, "strict": True}, {"min_iter": 3, "strict": False},
    {"min_iter": 3, "strict": "true"}, {"min_iter": 3, "strict": None}, {"eta": 2}, {},
    {"type": "median", "min_iter": 3}, {"min_iter": 3, "kind": "x"}, {"type": None, "min_iter": 3},
]  # fmt: skip
USED: list[dict[str, Any]] = [
    {"min_iter": 1}, {"min_iter": 3}, {"min_iter": 2, "eta": 2}, {"min_iter": 3, "eta": 1.5},
    {"max_iter": 27, "s": 2}, {"max_iter": 27, "s": 2, "eta": 2},
    {"max_iter": 27, "s": 3, "min_iter": 4}, {"max_iter": 20, "s": 3, "eta": 1.7},
]  # fmt: skip


def answers() -> dict[str, Any]:
    """Return the contents of the file."""
    rng = Random("hyperband")
    cases = []
    for early in USED:
        for strict in (None, True, False):
            for goal in ("minimize", "maximize"):
                for kind in ("plain", "ties", "broken"):
                    full = early if strict is None else {**early, "strict": strict}
                    cases.append(_case({"type": "hyperband", **full}, goal, _runs(rng, kind)))
    configs = [_config({"type": "hyperband", **early}) for early in CONFIGS]
    return {"sweeps": version("sweeps"), "configs": configs, "cases": cases}


def _runs(rng: Random, kind: str) -> list[dict[str, Any]]:
    runs = []
    for _ in range(rng.choice([1, 2, 5, 9])):
        level, slope = rng.uniform(0, 2), rng.uniform(-0.05, 0.05)
        values: list[Any] = [
            round(level + slope * i + rng.uniform(-0.3, 0.3), 1 if kind == "ties" else 3)
            for i in range(rng.choice([0, 1, 3, 4, 10, 30]))
        ]
        if kind == "broken":
            values = [rng.choice([v, v, v, v, None, "inf"]) for v in values]
        runs.append({"running": rng.random() < 0.7, "values": values})
    return runs


def _config(early: dict[str, Any]) -> dict[str, Any]:
    from sweeps import SweepConfig  # noqa: PLC0415

    whole = {"method": "random", "metric": {"name": "m"}, "early_terminate": early,
             "parameters": {"a": {"value": 1}}}  # fmt: skip
    try:
        SweepConfig(whole)
    except Exception as error:
        return {"early_terminate": early, "bands": None, "problem": str(error).split("\n")[0]}
    try:
        bands = _ask(early, "minimize", [{"running": True, "values": [1.0]}])["bands"]
    except Exception:
        bands = None
    return {"early_terminate": early, "bands": bands, "problem": ""}


def _case(early: dict[str, Any], goal: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"early_terminate": early, "goal": goal, **_ask(early, goal, runs)}


def _ask(early: dict[str, Any], goal: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    from sweeps import RunState, SweepRun, stop_runs  # noqa: PLC0415

    config = {"method": "random", "metric": {"name": "m", "goal": goal}, "early_terminate": early,
              "parameters": {"a": {"value": 1}}}  # fmt: skip
    asked = [
        SweepRun(
            name=str(index),
            state=RunState.running if run["running"] else RunState.finished,
            history=[{"m": _number(value)} for value in run["values"]],
        )
        for index, run in enumerate(runs)
    ]
    stopped = [int(run.name) for run in stop_runs(config, asked)]
    sign = -1 if goal == "maximize" else 1
    info = next((r.early_terminate_info for r in asked if r.early_terminate_info), None)
    bands = [b for b in info["bands"] if b <= MOST_BAND] if info else []
    thresholds = [_shown(t * sign) for t in info["thresholds"][: len(bands)]] if info else []
    return {
        "bands": bands,
        "thresholds": thresholds,
        "runs": runs,
        "stopped": stopped,
        "why": [_why(run.early_terminate_info, index, sign) for index, run in enumerate(asked)],
    }


def _why(info: dict[str, Any] | None, index: int, sign: int) -> list[Any] | None:
    """Parse the line that W&B prints for the run."""
    if info is None:
        return None
    line = next(line for line in info["lines"] if line.startswith(f"Run: {index} "))
    if "(Band: " not in line:
        return None
    inside = line.split("(Band: ")[1].split(")")[0]
    band, rest = inside.split(" Metric: ")
    value, threshold = rest.split(" Threshold: ")
    return [int(band), sign * float(value), sign * float(threshold)]


def _number(value: float | str | None) -> float:
    return math.nan if value is None else float(value)


def _shown(value: float) -> float | None:
    return None if math.isinf(value) else value
