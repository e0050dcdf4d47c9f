"""Run hpq's search and plain Optuna on the same functions, in this process.

Workers are simulated: N trials of similar duration run at once; hpq generates suggestions ahead as
for trials of a minute. `python -m benchmarks.search.ours` prints one line of JSON for each seed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import optuna

from benchmarks.search.functions import FUNCTIONS, Function
from hpq.domain.trial import Params
from hpq.search.samplers import Sampler, Search
from hpq.search.space import Space
from hpq.yamlfile.problems import Problems, SourceMap
from hpq_producer.sweepfile import parameters
from hpq_worker.suggest.choose_sampler import Chooser

optuna.logging.set_verbosity(optuna.logging.ERROR)


def space_of(function: Function) -> Space:
    """Parse the space of a function as in a sweep file."""
    out = Problems(SourceMap(file=function.name))
    space = Space.of(parameters.read_leaves(dict(function.parameters), ("parameters",), out))
    out.raise_errors()
    return space


def by_hpq(
    function: Function, trials: int, seed: int, workers: int, sampler: Sampler
) -> list[float]:
    """Return hpq's values in the order of their start, suggested as by a worker's child."""
    chooser = Chooser(Search(space=space_of(function), sampler=sampler, seed=seed))
    waiting: list[tuple[int, Params]] = []
    made = 0

    def fill() -> None:
        nonlocal made
        ahead = workers if chooser.is_drawing else 1
        while len(waiting) < ahead and made < trials:
            made += 1
            params = chooser.ask(made, {})
            assert params is not None
            waiting.append((made, params))

    values: list[float] = []
    fill()
    for done in _places(seed, workers):
        if done is not None:
            chooser.trial_ended(done + 1, values[done])
        if len(values) == trials:
            return values
        _, params = waiting.pop(0)
        values.append(function.call(params))
        fill()
    raise AssertionError("unreachable")


def by_hand(function: Function, trials: int, seed: int, workers: int, **kw: Any) -> list[float]:
    """Return Optuna's values by ask and tell, as in its documentation."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, **kw))
    asked: list[optuna.Trial] = []
    values: list[float] = []
    for done in _places(seed, workers):
        if done is not None:
            study.tell(asked[done], values[done])
        if len(values) == trials:
            return values
        trial = study.ask()
        asked.append(trial)
        values.append(function.call(suggest(trial, function)))
    raise AssertionError("unreachable")


def _places(seed: int, workers: int) -> Iterator[int | None]:
    """Yield the trial that has ended whenever a worker is free; None for the first trials."""
    clock, busy = random.Random(seed), list[tuple[float, int]]()
    now, number = 0.0, 0
    while True:
        if len(busy) == workers:
            now, done = heapq.heappop(busy)
            yield done
        else:
            yield None
        heapq.heappush(busy, (now + clock.uniform(0.8, 1.2), number))
        number += 1


def suggest(trial: optuna.Trial, function: Function) -> dict[str, Any]:
    """Suggest a set of a function by Optuna's interface."""
    out: dict[str, Any] = {}
    for name, keys in function.parameters.items():
        if "values" in keys:
            out[name] = trial.suggest_categorical(name, keys["values"])
        elif keys.get("distribution") == "q_uniform":
            out[name] = trial.suggest_int(name, keys["min"], keys["max"], step=keys["q"])
        elif isinstance(keys["min"], int):
            out[name] = trial.suggest_int(name, keys["min"], keys["max"])
        else:
            log = keys.get("distribution") == "log_uniform_values"
            out[name] = trial.suggest_float(name, keys["min"], keys["max"], log=log)
    return out


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--functions", nargs="*", default=[f.name for f in FUNCTIONS])
    parser.add_argument("methods", nargs="+", help="optuna, or a sampler of hpq")
    args = parser.parse_args()
    for method in args.methods:
        for function in (f for f in FUNCTIONS if f.name in args.functions):
            for seed in range(args.first_seed, args.first_seed + args.seeds):
                start = time.perf_counter()
                if method == "optuna":
                    values = by_hand(function, args.trials, seed, args.workers)
                else:
                    values = by_hpq(function, args.trials, seed, args.workers, Sampler(method))
                row = {"method": method, "function": function.name, "seed": seed}
                took = {"workers": args.workers, "s": time.perf_counter() - start}
                print(json.dumps({**row, **took, "values": values}), flush=True)


if __name__ == "__main__":
    main()
