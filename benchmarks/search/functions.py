"""Test functions for search methods, each with its search space as in a sweep file.

All are minimized; `least` is the minimum (for `mixed`, from a fine grid). Standard library only:
W&B's package runs them in an environment of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Function:
    """One function: its name, `parameters:` of a sweep file, and its value for a set."""

    name: str
    parameters: dict[str, Any]
    call: Callable[[Params], Any]
    least: float = 0.0


def _branin(p: Params) -> float:
    x, y = p["x"], p["y"]
    bend = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return float(bend * bend + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


_ALPHA = (1.0, 1.2, 3.0, 3.2)
_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def _hartmann(p: Params) -> float:
    x = [p[f"x{i}"] for i in range(6)]
    total = 0.0
    for alpha, row, at in zip(_ALPHA, _A, _P, strict=True):
        total += alpha * math.exp(
            -sum(a * (v - c) ** 2 for a, v, c in zip(row, x, at, strict=True))
        )
    return -total


def _rosenbrock(p: Params) -> float:
    x = [p[f"x{i}"] for i in range(4)]
    return float(sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x)))


def _training(p: Params) -> float:
    """Compute a loss with a valley in log lr that moves with batch and optimizer."""
    best = {"sgd": -1.0, "adam": -2.7, "rmsprop": -3.0}[p["optimizer"]]
    best += 0.3 * math.log2(p["batch"] / 128) * 0.5
    off = math.log10(p["lr"]) - best
    depth = {"sgd": 0.10, "adam": 0.08, "rmsprop": 0.13}[p["optimizer"]]
    decay = math.log10(p["decay"]) + 4
    rest = 0.02 * (p["dropout"] - 0.3) ** 2 + 0.01 * decay * decay
    rest += 0.02 * abs(math.log2(p["batch"] / 64))
    return float(depth + 0.05 * off * off + rest)


def _mixed(p: Params) -> float:
    """Compute a function of floats, integers, a rounded number, and a choice that moves it."""
    shift = {"a": 0.2, "b": 0.5, "c": 0.8}[p["kind"]]
    x, n, q = p["x"], p["layers"], p["width"] / 64
    wave = 0.1 * math.sin(12 * x) + 0.1
    steps = 0.05 * (n - 5) ** 2 + 0.02 * (q - 6) ** 2
    return float((x - shift) ** 2 + wave + steps + 0.1 * shift)


FUNCTIONS = (
    Function(
        "Branin",
        {"x": {"min": -5.0, "max": 10.0}, "y": {"min": 0.0, "max": 15.0}},
        _branin,
        0.397887,
    ),
    Function(
        "Hartmann-6", {f"x{i}": {"min": 0.0, "max": 1.0} for i in range(6)}, _hartmann, -3.32237
    ),
    Function("Rosenbrock-4", {f"x{i}": {"min": -2.0, "max": 2.0} for i in range(4)}, _rosenbrock),
    Function(
        "training",
        {
            "lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 1.0},
            "decay": {"distribution": "log_uniform_values", "min": 1e-6, "max": 1e-2},
            "dropout": {"min": 0.0, "max": 0.8},
            "batch": {"values": [32, 64, 128, 256]},
            "optimizer": {"values": ["sgd", "adam", "rmsprop"]},
        },
        _training,
        0.08,
    ),
    Function(
        "mixed",
        {
            "x": {"min": 0.0, "max": 1.0},
            "layers": {"min": 1, "max": 10},
            "width": {"distribution": "q_uniform", "min": 64, "max": 1024, "q": 64},
            "kind": {"values": ["a", "b", "c"]},
        },
        _mixed,
        0.052577,
    ),
)
