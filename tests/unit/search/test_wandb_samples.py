"""Grids and draws are those of W&B's own package (tests/data/oracle)."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any

import pytest

from hpq_producer.sweepfile.spec import parameter_sets
from tests.oracle.files import read
from tests.support.sweep_files import spec_of

DRAWS = 10_000
ALPHA = 0.001  # seeds are fixed, so a test that passes once passes always
GRIDS = read("grids")["cases"]
SAMPLES = read("samples")["cases"]


def read_as(folder: Path, parameters: dict[str, Any], method: str) -> Any:
    file = {"program": "t.py", "method": method, "parameters": parameters}
    return spec_of(folder, json.dumps(file))


def rounded(value: Any) -> Any:
    """Floats to ten digits: numpy's steps are 0.1 + 0.1 + 0.1, ours are tidied."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return value


@pytest.mark.parametrize("case", GRIDS, ids=lambda case: ",".join(case["parameters"]))
def test_a_grid_has_the_same_sets_in_the_same_order(tmp_path: Path, case: dict[str, Any]) -> None:
    spec = read_as(tmp_path, case["parameters"], "grid")
    ours = [rounded(params) for params in parameter_sets(spec)]
    assert json.dumps(ours, sort_keys=True).replace(".0", "") == json.dumps(
        [rounded(params) for params in case["sets"]], sort_keys=True
    ).replace(".0", "")
    assert spec.trials == len(case["sets"])


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: json.dumps(case["entry"]))
def test_draws_have_the_same_distribution(tmp_path: Path, case: dict[str, Any]) -> None:
    space = read_as(tmp_path, {"p": case["entry"]}, "random").space
    drawn = [space.draw(Random(f"draws/{i}"))["p"] for i in range(DRAWS)]
    if "quantiles" in case:
        assert kolmogorov_smirnov(drawn, case["quantiles"]) < limit_of_ks(DRAWS)
    else:
        statistic, freedom = chi_squared(drawn, case["chances"])
        assert statistic < limit_of_chi_squared(freedom)


def kolmogorov_smirnov(drawn: list[float], quantiles: list[float]) -> float:
    """The largest distance of the draws' share below a quantile from that quantile's own."""
    drawn = sorted(drawn)
    return max(
        abs(bisect_right(drawn, value) / len(drawn) - rank / (len(quantiles) + 1))
        for rank, value in enumerate(quantiles, 1)
    )


def limit_of_ks(n: int) -> float:
    return math.sqrt(-math.log(ALPHA / 2) / (2 * n))


def chi_squared(drawn: list[Any], chances: list[Any]) -> tuple[float, int]:
    """The statistic and its degrees of freedom; values expected less than five times are one."""

    def key(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return (float(f"{value:.9g}") + 0.0,) if is_number else value

    counts = Counter(map(key, drawn))
    usual = {key(value): chance for value, chance in chances if chance * DRAWS >= 5}
    cells = [(counts.pop(value, 0), chance * DRAWS) for value, chance in usual.items()]
    rest = (sum(counts.values()), DRAWS - sum(expected for _, expected in cells))
    if rest[1] >= 5:
        cells.append(rest)
    else:
        assert rest[0] <= 25, f"{counts} are drawn, but not by W&B"
    return sum((n - expected) ** 2 / expected for n, expected in cells), len(cells) - 1


def limit_of_chi_squared(freedom: int) -> float:
    """By Wilson and Hilferty."""
    if freedom == 0:
        return 1e-9
    share = 2 / (9 * freedom)
    return freedom * (1 - share + NormalDist().inv_cdf(1 - ALPHA) * math.sqrt(share)) ** 3
