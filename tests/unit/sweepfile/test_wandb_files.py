"""The same sweep files are taken and refused as by W&B's own package, but for what is listed here.

The answers lie in tests/data/oracle (`make oracle` asks again).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpq.errors import SweepFileError
from tests.oracle.files import read
from tests.support.constants import ROOT
from tests.support.sweep_files import spec_of

Config = dict[str, Any]
BASE = {"method": "random", "metric": {"name": "loss"}}


def entries(parameters: object) -> list[Config]:
    """All parameters' mappings, nested ones too."""
    if not isinstance(parameters, dict):
        return []
    held = [entry for entry in parameters.values() if isinstance(entry, dict)]
    return held + [inner for entry in held for inner in entries(entry.get("parameters"))]


def some(test: Callable[[Config], bool]) -> Callable[[Config], bool]:
    return lambda config: any(map(test, entries(config.get("parameters"))))


def is_weighted(entry: Config) -> bool:
    return "probabilities" in entry


# Why, and for which files: W&B takes them and hpq refuses, or the other way round.
HPQ_REFUSES: dict[str, Callable[[Config], bool]] = {
    "an empty name names nothing": lambda c: (
        "" in (c.get("program"), c.get("name")) or c.get("metric") == {"name": ""}
    ),
    "a command is words; W&B passes null as None, and takes no words as its default": lambda c: (
        c.get("command") in ([], [None])
    ),
    "W&B drops an unknown macro without a word": lambda c: c.get("command") == ["${nothing}"],
    "5.0 is no number of runs": lambda c: isinstance(c.get("run_cap"), float),
    "no cloud, no Launch and no scheduler of W&B's is here": lambda c: (
        bool({"job", "image_uri", "scheduler"} & c.keys())
        or c.get("controller") == {"type": "cloud"}
    ),
    "W&B looks at the sum of probabilities at the top only": lambda c: any(
        sum(entry["probabilities"]) != 1
        for entry in entries(c["parameters"].get("o", {}).get("parameters"))
        if is_weighted(entry)
    ),
    "there is no beta distribution of a = 0; scipy draws NaN": some(lambda e: e.get("a") == 0),
}  # fmt: skip
W_AND_B_REFUSES: dict[str, Callable[[Config], bool]] = {
    "deprecated distributions are drawn rightly, with a hint": some(
        lambda e: str(e.get("distribution")).endswith("log_uniform")
    ),
    "an unquoted false is what W&B's documents write": lambda c: (
        c.get("metric", {}).get("impute_while_running") is False
    ),
    "W&B's bayes breaks on probabilities": lambda c: (
        c["method"] == "bayes" and some(is_weighted)(c)
    ),
    "a bayes sweep of constants is one set": lambda c: (
        c["method"] == "bayes" and all("value" in e for e in entries(c["parameters"]))
    ),
}


def refusal(folder: Path, config: Config) -> str:
    try:
        spec_of(folder, json.dumps(config))
    except SweepFileError as error:
        return str(error)
    return ""


def test_the_same_files_are_taken_and_refused_but_for_what_is_listed(tmp_path: Path) -> None:
    cases = read("configs")["cases"]
    assert len(cases) > 700
    used: set[str] = set()
    for case in cases:
        ours, theirs = refusal(tmp_path, case["config"]), case["problem"] or case["unusable"]
        if bool(ours) == bool(theirs):
            continue
        listed = HPQ_REFUSES if ours else W_AND_B_REFUSES
        why = [reason for reason, applies in listed.items() if applies(case["config"])]
        assert why, (case["config"], ours or theirs)
        used.update(why)
    assert used == HPQ_REFUSES.keys() | W_AND_B_REFUSES.keys(), "a difference that is none"


@pytest.mark.parametrize("name", ["configs", "grids", "hyperband", "samples"])
def test_all_answers_are_of_one_version(name: str) -> None:
    wanted = (ROOT / "tests" / "oracle" / "requirements.txt").read_text()
    assert f"sweeps=={read(name)['sweeps']}\n" in wanted
