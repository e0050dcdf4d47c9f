"""Run W&B's bayes, `sweeps` from PyPI (needs numpy < 2), on the same functions.

`python benchmarks/search/wandb_bayes.py TRIALS SEEDS WORKERS NAME…` in an environment with `sweeps`
prints one line of JSON for each seed. Imports functions.py beside it, but not hpq.
"""

from __future__ import annotations

import heapq
import json
import random
import sys
import time
from typing import Any

import numpy as np
from functions import FUNCTIONS, Function
from sweeps import RunState
from sweeps.bayes_search import bayes_search_next_run


def search(function: Function, trials: int, seed: int, workers: int) -> list[float]:
    """Return the values in the order of their start; `workers` trials run at once."""
    np.random.seed(seed)
    clock = random.Random(seed)
    config = {
        "method": "bayes",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": function.parameters,
    }
    runs: list[Any] = []
    values: list[float] = []
    busy: list[tuple[float, int]] = []
    now = 0.0
    while len(values) < trials:
        if len(busy) == workers:
            now, done = heapq.heappop(busy)
            runs[done].state = RunState.finished
            runs[done].history = [{"loss": values[done]}]
            runs[done].summary_metrics = {"loss": values[done]}
        run: Any = bayes_search_next_run(runs, config)
        run.state = RunState.running
        values.append(function.call({k: v["value"] for k, v in run.config.items()}))
        runs.append(run)
        heapq.heappush(busy, (now + clock.uniform(0.8, 1.2), len(runs) - 1))
    return values


def main() -> None:
    """Run the command line."""
    trials, seeds, workers = map(int, sys.argv[1:4])
    for name in sys.argv[4:]:
        function = next(f for f in FUNCTIONS if f.name == name)
        for seed in range(seeds):
            start = time.perf_counter()
            values = search(function, trials, seed, workers)
            took = time.perf_counter() - start
            row = {"method": "wandb", "function": name, "seed": seed, "workers": workers}
            print(json.dumps({**row, "values": values, "s": took}), flush=True)


if __name__ == "__main__":
    main()
