"""Record which sweep files W&B accepts: hand-written, systematic and random ones.

tests/data/oracle/configs.json is

    {"sweeps": "0.3.0",
     "cases": [{"config": {…}, "problem": "" | text, "unusable": "" | text}]}

`problem` is one violation that W&B's validator reports (its client only warns), or the validator's
exception; `unusable` is the exception of its search for the first run.
"""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from random import Random, seed
from typing import Any

NAMES = (
    "constant", "categorical", "categorical_w_probabilities", "int_uniform", "uniform",
    "q_uniform", "log_uniform_values", "q_log_uniform_values", "inv_log_uniform_values",
    "log_uniform", "q_log_uniform", "inv_log_uniform", "normal", "q_normal", "log_normal",
    "q_log_normal", "beta", "q_beta",
)  # fmt: skip
# The keys of each distribution, then values that replace each.
GOOD: dict[str, dict[str, Any]] = {
    "constant": {"value": 3},
    "categorical": {"values": ["a", "b"]},
    "categorical_w_probabilities": {"values": ["a", "b"], "probabilities": [0.25, 0.75]},
    **{n: {"min": 1, "max": 4} for n in NAMES if "uniform" in n},
    **{n: {"mu": 0.5, "sigma": 2} for n in NAMES if "normal" in n},
    **{n: {"a": 2, "b": 0.5} for n in NAMES if "beta" in n},
}
POOL: dict[str, list[Any]] = {
    "value": [None, 0, "x", [1, 2], {"a": 1}, False, ""],
    "values": [[], [1], [0, False, ""], [[1], {"a": 2}, None], "ab", None, {"a": 1}, [1, 1]],
    "probabilities": [[1], [0.5, 0.5], [0.5, 0.6], [-0.5, 1.5], [], [0, 1], ["a", "b"], 1,
                      [1.0, 0.0], [0.3333333, 0.6666667]],
    "min": [0, -3, 1.5, 4, 7, "1", None, True, 0.0001, 1.0],
    "max": [0, 5, 2.5, 4.0, "1", None, False, 1],
    "mu": [-1, 0, 2.5, "0", None],
    "sigma": [0, 1, 0.1, -1, "1", None],
    "q": [1, 2, 0.5, 0, -1, "1", None, 1.0],
    "a": [1, 0.5, -1, "1", 0],
    "b": [1, 0.5, -1, None],
    "distribution": [None, "Uniform", "loguniform", 3, ""],
}  # fmt: skip
TOPS: list[dict[str, Any]] = [
    *({"method": m} for m in ("grid", "random", "bayes", "custom", "Grid", "", None, ["grid"], 1)),
    *({"parameters": p} for p in ({}, [], None, "lr", {"a": 1}, {"a": [1, 2]}, {"a": None})),
    *({"parameters": {name: {"value": 1}}}
      for name in ("a", "a.b-c", "_x", "1a", "a b", "-a", "ä", "", "a" * 100, "$x", "A_9")),
    *({"program": p} for p in ("train.py", "a b.py", 3, None, ["train.py"], "")),
    *({"command": c} for c in (
        ["${env}", "${interpreter}", "${program}", "${args}"], "python train.py", [], {}, None,
        ["python3", "${program}", "${args_no_hyphens}"], ["a", 1], ["${args_json_file}"],
        ["torchrun", "--nproc=2", "${program}", "${args_no_boolean_flags}"], ["${nothing}"],
        ["${program}", "--home=${envvar:HOME}"], ["${args_append_hydra}"], [None],
        ["${args_override_hydra}"], ["${args_json}"], ["${args_no_equals}"], ["x", "${a}"], [0.5],
    )),
    *({"metric": m} for m in (
        {"name": "loss"}, {"name": "loss", "goal": "maximize"}, {"name": "val/loss"},
        {"name": "loss", "goal": "maximise"}, {"goal": "minimize"}, {}, "loss", None, ["loss"],
        {"name": 3}, {"name": ""}, {"name": "a.b"}, {"name": "val loss (top 1)"},
        {"name": "loss", "target": 0}, {"name": "loss", "target": "0"},
        {"name": "l", "target": None},
        {"name": "loss", "target": 0.5, "goal": "maximize", "impute": "latest"},
        {"name": "loss", "impute": "best"}, {"name": "loss", "impute": "worst"},
        {"name": "loss", "impute": "mean"}, {"name": "loss", "impute": None},
        {"name": "loss", "impute_while_running": "false"},
        {"name": "loss", "impute_while_running": "latest"},
        {"name": "loss", "impute_while_running": "best"},
        {"name": "loss", "impute_while_running": False}, {"name": "loss", "goal": None},
        {"name": "loss", "impute_while_running": True}, {"name": "loss", "direction": "min"},
    )),
    *({"run_cap": c} for c in (1, 10, 0, -1, 1.5, 5.0, "3", True, None)),
    *({key: text} for key in ("name", "description", "project", "entity")
      for text in ("x", "a name", 3, None, "", "é ö")),
    *({"apiVersion": v} for v in ("v1", 1)),
    *({"kind": k} for k in ("sweep", "Sweep", "experiment")),
    *({"controller": {"type": t}} for t in ("cloud", "local", "x")), {"controller": {}},
    {"controller": "local"},
    {"job": "a/b:latest"}, {"image_uri": "img:1"}, {"scheduler": {"engine": "wandb"}},
    {"scheduler": {"engine": "optuna"}, "method": "custom"},
    {"metrics": [{"name": "a"}, {"name": "b"}]},
    {"metrics": [{"name": "a"}, {"name": "b"}], "method": "custom"},
    *({key: 1} for key in ("methd", "parameter", "program_args", "wandb", "early_stopping")),
    *({"method": "bayes", "parameters": {"a": p}} for p in (
        {"values": [1, 2], "probabilities": [0.5, 0.5]}, {"distribution": "beta"}, {"value": 1},
        {"distribution": "q_normal"}, {"parameters": {"b": {"min": 0.0, "max": 1.0}}},
    )),
]  # fmt: skip
NESTED: list[dict[str, Any]] = [
    {"parameters": {"a": {"value": 1}}}, {"parameters": {}}, {"parameters": None},
    {"parameters": {"a": {"value": 1}}, "value": 2}, {"parameters": {"a": 1}},
    {"parameters": {"a": {"value": 1}}, "distribution": "constant"},
    {"parameters": {"a": {"parameters": {"b": {"values": [1, 2]}}}}},
    {"parameters": {"a": {"min": 4, "max": 1}}}, {"parameters": {"a": {"min": 1}}},
    {"parameters": {"1a": {"value": 1}}}, {"parameters": {"a": {"values": []}}},
    {"parameters": {"a": {"values": [1], "probabilities": [0.5]}}},
    {"parameters": {"a": {"distribution": "log_uniform", "min": -2, "max": 0}}},
]  # fmt: skip


def answers() -> dict[str, Any]:
    """Return the contents of the file."""
    warnings.simplefilter("ignore")
    seen: dict[str, dict[str, Any]] = {}
    for config in [*_tops(), *_parameters(), *_random(160)]:
        seen.setdefault(json.dumps(config, sort_keys=True), config)
    return {"sweeps": version("sweeps"), "cases": [_ask(config) for config in seen.values()]}


def _whole(change: dict[str, Any]) -> dict[str, Any]:
    base = {"program": "t.py", "method": "random", "metric": {"name": "loss"},
            "parameters": {"a": {"values": [1, 2]}}}  # fmt: skip
    return {**base, **change}


def _tops() -> list[dict[str, Any]]:
    less = [{k: v for k, v in _whole({}).items() if k != key} for key in _whole({})]
    less += [{**config, "method": "bayes"} for config in less if "metric" not in config]
    less = [config for config in less if "program" in config]
    nested = [_whole({"parameters": {"o": entry}}) for entry in NESTED]
    return [*map(_whole, TOPS), *less, *nested]


def _parameters() -> list[dict[str, Any]]:
    """Yield each distribution, explicit and implied, with each key missing, invalid or extra."""
    entries: list[dict[str, Any]] = [{}, {"min": 1}, {"q": 1}, {"mu": 0}, {"a": 1}, {"x": 1}]
    for name, good in GOOD.items():
        entries += [good, {**good, "distribution": name}, {"distribution": name}]
        entries += [{"distribution": name, **_without(good, key)} for key in good]
        if name.startswith("q_"):
            entries += [{"distribution": name, **good, "q": q} for q in POOL["q"]]
        for key in good:
            odd = POOL[key] if name in ("uniform", "beta", "normal", *NAMES[:3]) else POOL[key][:5]
            entries += [{"distribution": name, **good, key: value} for value in odd]
    for low in POOL["min"]:
        entries += [{"min": low, "max": high} for high in POOL["max"]]
    for extra in ("q", "mu", "values", "value", "probabilities", "min", "a"):
        entries += [{**GOOD[n], "distribution": n, extra: POOL[extra][1]} for n in NAMES[::3]]
        entries += [
            {**GOOD[n], extra: POOL[extra][1]} for n in ("constant", "categorical", "uniform")
        ]
    entries += [{**GOOD["uniform"], "distribution": value} for value in POOL["distribution"]]
    entries += [{"values": v} for v in POOL["values"]] + [{"value": v} for v in POOL["value"]]
    entries += [{"values": [1, 2], "probabilities": p} for p in POOL["probabilities"]]
    return [_whole({"parameters": {"p": entry}}) for entry in entries]


def _without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if k != key}


def _random(number: int) -> list[dict[str, Any]]:
    """Yield typical files; about half have one key changed or removed."""
    rng = Random("configs")
    configs = []
    for _ in range(number):
        space = {
            name: _entry(rng) for name in rng.sample(["lr", "bs", "opt", "z.x"], rng.randint(1, 3))
        }
        if rng.random() < 0.3:
            space["nest"] = {"parameters": {"in": _entry(rng), "other": _entry(rng)}}
        config = _whole({"parameters": space, "method": rng.choice(["grid", "random", "bayes"])})
        if rng.random() < 0.5:
            config["run_cap"] = rng.randint(1, 20)
        configs.append(config)
    return configs


def _entry(rng: Random) -> dict[str, Any]:
    name = rng.choice(NAMES)
    entry = dict(GOOD[name])
    if rng.random() < 0.7:
        entry["distribution"] = name
    if name.startswith("q_") and rng.random() < 0.5:
        entry["q"] = rng.choice([1, 2, 0.5])
    if rng.random() < 0.15:
        key = rng.choice(sorted(entry))
        entry[key] = rng.choice(POOL[key])
    if rng.random() < 0.05:
        entry.pop(rng.choice(sorted(entry)))
    return entry


def _ask(config: dict[str, Any]) -> dict[str, Any]:
    from sweeps import next_run  # noqa: PLC0415
    from sweeps.config import schema_violations_from_proposed_config  # noqa: PLC0415

    try:
        problem = min(schema_violations_from_proposed_config(config), default="")
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".split("\n")[0]
    seed(0)  # W&B draws from the global generator
    try:
        next_run(config, [])
        unusable = ""
    except Exception as error:
        unusable = f"{type(error).__name__}: {error}".split("\n")[0]
    return {"config": config, "problem": problem[:120], "unusable": unusable[:120]}
