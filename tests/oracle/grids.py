"""Record W&B's grids: every set, in order.

tests/data/oracle/grids.json is

    {"sweeps": "0.3.0", "cases": [{"parameters": {…}, "sets": [{…}, …]}]}
"""

from __future__ import annotations

from importlib.metadata import version
from random import Random
from typing import Any

MOST = 400  # sets per case
HAND: list[dict[str, Any]] = [
    {"a": {"values": [1, 2, 3]}},
    {"b": {"values": [1, 2]}, "a": {"values": ["x", "y"]}},
    {"b": {"values": [1, 2]}, "B": {"values": [3, 4]}, "_a": {"values": [5, 6]}},
    {"a.b": {"values": [1, 2]}, "a-b": {"values": [3, 4]}, "a_b": {"values": [5, 6]}},
    {"a": {"value": 1}, "b": {"values": [1, 2]}, "c": {"value": None}},
    {"a": {"value": {"deep": [1, {"er": 2}]}}},
    {"a": {"values": [3, 3.0, 3, 4]}},
    {"a": {"values": [True, 1, "1", None, False, 0]}},
    {"a": {"values": [[1, 2], [2, 1], {"x": 1}, {"x": 2}, [], {}]}},
    {"a": {"min": 1, "max": 5}},
    {"a": {"min": -2, "max": 2}, "b": {"values": ["x", "y"]}},
    {"a": {"distribution": "q_uniform", "min": 0, "max": 5}},
    {"a": {"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.25}},
    {"a": {"distribution": "q_uniform", "min": 0.1, "max": 1.0, "q": 0.2}},
    {"a": {"distribution": "q_uniform", "min": -1.5, "max": 3, "q": 2}},
    {"a": {"distribution": "q_uniform", "min": 8, "max": 64, "q": 8}},
    {"o": {"parameters": {"z": {"values": [1, 2]}, "a": {"values": [3, 4]}}}},
    {"o": {"parameters": {"in": {"parameters": {"x": {"values": [1, 2]}}}}},
     "a": {"min": 1, "max": 2}},
    {"b": {"parameters": {"x": {"values": [1, 2]}}},
     "a": {"values": [1, 2]}, "c": {"values": [1, 2]}},
    {"z": {"values": list(range(20))}, "y": {"values": list("abcdefghij")}},
]  # fmt: skip


def answers() -> dict[str, Any]:
    """Return the contents of the file."""
    rng = Random("grids")
    return {
        "sweeps": version("sweeps"),
        "cases": [_case(parameters) for parameters in [*HAND, *(_space(rng) for _ in range(30))]],
    }


def _space(rng: Random) -> dict[str, Any]:
    names = rng.sample(["lr", "batch_size", "Opt", "layers", "x.y", "_w"], rng.randint(1, 4))
    space = {name: _entry(rng) for name in names}
    if rng.random() < 0.4:
        space["nest"] = {"parameters": {n: _entry(rng) for n in rng.sample("pqr", 2)}}
    return space


def _entry(rng: Random) -> dict[str, Any]:
    kind = rng.randrange(4)
    if kind == 0:
        return {"min": (low := rng.randint(-5, 5)), "max": low + rng.randint(1, 3)}
    if kind == 1:
        q = rng.choice([1, 2, 0.5])
        return {"distribution": "q_uniform", "min": 0, "max": q * rng.randint(1, 3), "q": q}
    if kind == 2:
        return {"value": rng.choice([0, "x", 1.5])}
    return {"values": rng.sample(["b", "a", 1, 2.5, None, True, [1]], rng.randint(1, 3))}


def _case(parameters: dict[str, Any]) -> dict[str, Any]:
    from sweeps import next_runs  # noqa: PLC0415

    runs = next_runs({"method": "grid", "parameters": parameters}, [], n=MOST + 1)
    sets = [{name: held["value"] for name, held in run.config.items()} for run in runs if run]
    return {"parameters": parameters, "sets": sets[:MOST]}
