"""Print the table of docs/results/evidence.md from the output of `ours` and `wandb_bayes`.

`python -m benchmarks.search.table TRIALS FILE…`: the gap between the best of the first TRIALS
values and the minimum, median over the seeds; beside other methods, the p-value that hpq's auto is
no worse (Mann–Whitney, one-sided: below 0.05 it is worse).
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import NormalDist, median

from benchmarks.search.functions import FUNCTIONS

_METHODS = ("random", "optuna", "wandb", "tpe", "auto")
Gaps = dict[tuple[str, int, str], dict[int, float]]


def gaps(trials: int, files: list[Path]) -> Gaps:
    """Return {(function, workers, method): {seed: gap}}."""
    least = {function.name: function.least for function in FUNCTIONS}
    found: Gaps = defaultdict(dict)
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            if len(row["values"]) >= trials:
                key = (row["function"], row["workers"], row["method"])
                found[key][row["seed"]] = min(row["values"][:trials]) - least[row["function"]]
    return found


def no_worse(ours: list[float], theirs: list[float]) -> float:
    """Return the one-sided p-value that ours are larger, by the normal approximation."""
    n, m = len(ours), len(theirs)
    wins = sum((a > b) + 0.5 * (a == b) for a in ours for b in theirs)
    spread = (n * m * (n + m + 1) / 12) ** 0.5
    return 1 - NormalDist().cdf((wins - n * m / 2 - 0.5) / spread)


def main() -> None:
    """Print it."""
    found = gaps(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    print("| | workers | " + " | ".join(_METHODS) + " |")
    print("|---|---:|" + "---:|" * len(_METHODS))
    for function in FUNCTIONS:
        for workers in sorted({key[1] for key in found if key[0] == function.name}):
            ours = list(found.get((function.name, workers, "auto"), {}).values())
            cells = []
            for method in _METHODS:
                values = list(found.get((function.name, workers, method), {}).values())
                cell = f"{median(values):.3g}" if values else ""
                cell += f" of {len(values)}" if values and len(values) != 20 else ""
                if values and ours and method != "auto":
                    cell += f" ({no_worse(ours, values):.2f})"
                cells.append(cell)
            print(f"| {function.name} | {workers} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
