"""Compare hpq's search with plain Optuna on functions of several metrics, by hypervolume.

`python -m benchmarks.search.objectives METHOD…` runs each method (optuna-tpe, optuna-gp,
optuna-nsga2, or a sampler of hpq) in this process, one trial at a time, and prints a table: the
hypervolume, median over the seeds (more is better), and beside Optuna's the p-value that hpq's
sampler of this name is no worse (Mann–Whitney, one-sided: below 0.05 it is worse).
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import optuna
from optuna._hypervolume import compute_hypervolume

from benchmarks.search.functions import Function, Params
from benchmarks.search.ours import space_of, suggest
from benchmarks.search.table import no_worse
from hpq.search.samplers import Sampler, Search
from hpq_worker.suggest.choose_sampler import Chooser

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
Values = tuple[float, ...]


@dataclass(frozen=True)
class Problem(Function):
    """A function of several values; `corner` bounds the hypervolume."""

    corner: Values = ()


def _unit(count: int) -> dict[str, Any]:
    return {f"x{i}": {"min": 0.0, "max": 1.0} for i in range(count)}


def _zdt1(p: Params) -> Values:
    rest = [p[f"x{i}"] for i in range(1, len(p))]
    g = 1 + 9 * sum(rest) / len(rest)
    return p["x0"], g * (1 - math.sqrt(p["x0"] / g))


def _zdt2(p: Params) -> Values:
    rest = [p[f"x{i}"] for i in range(1, len(p))]
    g = 1 + 9 * sum(rest) / len(rest)
    return p["x0"], g * (1 - (p["x0"] / g) ** 2)


def _dtlz2(p: Params) -> Values:
    g = 1 + sum((p[f"x{i}"] - 0.5) ** 2 for i in range(2, len(p)))
    one, other = (p[f"x{i}"] * math.pi / 2 for i in range(2))
    return (
        g * math.cos(one) * math.cos(other),
        g * math.cos(one) * math.sin(other),
        g * math.sin(one),
    )


@cache
def _digits() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits  # noqa: PLC0415

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order] / 16, labels[order]
    return images[:1200], labels[:1200], images[1200:], labels[1200:]


def _error_and_size(p: Params) -> Values:
    """Return the error and the log of the parameters of a network of random features."""
    images, labels, others, truth = _digits()
    rng = np.random.default_rng(0)
    kept = rng.permutation(64)[: p["pixels"]]
    weights = rng.normal(size=(p["pixels"], p["width"])) * p["scale"]
    shift = rng.normal(size=p["width"])

    def hidden(rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(rows[:, kept] @ weights + shift, 0))

    x = hidden(images)
    gram = x.T @ x + p["ridge"] * np.eye(p["width"])
    out = np.linalg.solve(gram, x.T @ np.eye(10)[labels])
    error = float(np.mean((hidden(others) @ out).argmax(1) != truth))
    return error, math.log10(p["width"] * (p["pixels"] + 11))


PROBLEMS = (
    Problem("ZDT1", _unit(5), _zdt1, corner=(1.1, 6.0)),
    Problem("ZDT2", _unit(5), _zdt2, corner=(1.1, 6.0)),
    Problem("DTLZ2", _unit(6), _dtlz2, corner=(1.5, 1.5, 1.5)),
    Problem(
        "digits",
        {
            "width": {"distribution": "int_uniform", "min": 2, "max": 600},
            "pixels": {"distribution": "int_uniform", "min": 4, "max": 64},
            "scale": {"distribution": "log_uniform_values", "min": 0.01, "max": 10.0},
            "ridge": {"distribution": "log_uniform_values", "min": 1e-6, "max": 1e3},
        },
        _error_and_size,
        corner=(1.0, 5.0),
    ),
)
OPTUNA: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "optuna-tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "optuna-gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "optuna-nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
}


def values_of(method: str, problem: Problem, trials: int, seed: int) -> list[Values]:
    """Return the values of N trials, one after the other."""
    found: list[Values] = []
    count = len(problem.corner)
    if method in OPTUNA:
        study = optuna.create_study(directions=["minimize"] * count, sampler=OPTUNA[method](seed))
        for _ in range(trials):
            trial = study.ask()
            found.append(problem.call(suggest(trial, problem)))
            study.tell(trial, found[-1])
        return found
    space = space_of(problem)
    search = Search(space=space, sampler=Sampler(method), seed=seed, maximizes=(False,) * count)
    chooser = Chooser(search)
    for number in range(1, trials + 1):
        params = chooser.ask(number, {})
        assert params is not None
        found.append(problem.call(params))
        chooser.trial_ended(number, found[-1])
    return found


def hypervolume(values: list[Values], corner: Values) -> float:
    """Return the hypervolume of the values below a corner."""
    below = [one for one in values if all(a < b for a, b in zip(one, corner, strict=True))]
    return float(compute_hypervolume(np.array(below), np.array(corner))) if below else 0.0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", nargs="*", default=[one.name for one in PROBLEMS])
    parser.add_argument("methods", nargs="+", help="a sampler of hpq, optuna-tpe, -gp or -nsga2")
    args = parser.parse_args()
    print("| | " + " | ".join(args.methods) + " |\n|---|" + "---:|" * len(args.methods))
    for problem in (one for one in PROBLEMS if one.name in args.problems):
        found, took = dict[str, list[float]](), []
        for method in args.methods:
            began = time.process_time()
            every = (values_of(method, problem, args.trials, seed) for seed in range(args.seeds))
            found[method] = [hypervolume(values, problem.corner) for values in every]
            took.append(f"{method} {time.process_time() - began:.0f} s")
        cells = []
        for method, areas in found.items():
            ours = found.get(method.removeprefix("optuna-"))
            # `no_worse` compares values of which less is better.
            beside = ours and method in OPTUNA and no_worse([-a for a in ours], [-a for a in areas])
            cells.append(f"{median(areas):.4g}" + (f" ({beside:.2f})" if beside else ""))
        print(f"| {problem.name} | " + " | ".join(cells) + " | " + ", ".join(took), flush=True)


if __name__ == "__main__":
    main()
