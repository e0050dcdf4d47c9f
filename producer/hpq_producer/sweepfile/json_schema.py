"""The JSON Schema (draft 2020-12) of sweep files, for editors; `hpq schema` prints it.

It combines the tables of schema, distributions and early_terminate with a line about each key. It
accepts everything that hpq accepts. It cannot check relations between keys: min above max, unknown
names, macros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpq_producer.sweepfile import distributions, early_terminate, explicit_sets, schema
from hpq_producer.sweepfile.values import Check

TOP: Mapping[str, str] = {
    "method": "grid (every combination), random, or bayes (learns from results)",
    "parameters": "The search space: names with values, ranges or distributions",
    "program": "The training script, relative to the working directory, else to this file",
    "command": "The program's command line, with macros such as ${program} and ${args}",
    "trainer": "A training function in place of a program: digits, or package.module:function",
    "code": "The directory of code that hpq sends to workers on other machines",
    "resident": "Keep the trainer's process from trial to trial",
    "wandb": "What `import wandb` loads: stand-in, tee (stand-in and wandb), or real",
    "metric": "The value to optimize",
    "early_terminate": "The rule that prunes bad trials",
    "run_cap": "At most N trials; default: no limit",
    "seed": "Seed of the draws, the order and the trials' seeds; default 0",
    "order": "Order of a grid: grid (as listed, the default) or shuffle",
    "sampler": "The sampler of method bayes",
    "replicates": "N trials of the same parameters, each with its own seed; ranked by mean",
    "when": "Parameters that exist only if others have certain values",
    "exclude": "Combinations of parameters that do not run",
    "points": "Parameters to run first",
    "name": "The sweep's name; its id begins with the name",
    "description": "Text that hpq shows",
    "project": "W&B's project; hpq shows it",
    "entity": "W&B's entity; hpq shows it",
    "apiVersion": "W&B's; no effect",
    "kind": "W&B's; no effect",
    "controller": "W&B's; only {type: local} is supported",
    "queue": "The queue of the trials; workers with --queue NAME serve it",
    "owner": "The owner; default: the user who enqueues",
    "priority": "Sweeps of higher priority are claimed first; default 0",
    "max_parallel": "At most N trials run at once; 0 (the default): no limit",
    "retries": "Retries of a failed trial; default 0",
    "timeout": "Time limit of a trial: seconds, or 90s, 15m, 2h; default: none",
    "stall": "Kill a trial that neither reports nor prints for this long",
    "notify": "Webhook URL (Slack's format) for a notice when the sweep is held, stalled or over",
    "keep": "The trials whose checkpoints and artifacts hpq keeps",
    "pass_env": "Environment variables of a worker's pod that the program receives",
}
METRIC: Mapping[str, str] = {
    "name": "The name that trials report",
    "goal": "maximize or minimize",
    "target": "Start no more trials once one reaches this value",
    "impute": "The value of a failed trial, for method bayes",
    "impute_while_running": "The value of a running trial, for method bayes",
    "value": "The objective of a trial: its last or its best value",
}
PARAMETER: Mapping[str, str] = {
    "value": "One constant value",
    "values": "The list of values",
    "probabilities": "The probability of each value",
    "distribution": "The distribution; default: inferred from the other keys",
    "min": "Lower bound (log_uniform: its natural logarithm)",
    "max": "Upper bound (log_uniform: its natural logarithm)",
    "mu": "Mean (log_normal: of the logarithm); default 0",
    "sigma": "Standard deviation (log_normal: of the logarithm); default 1",
    "q": "Round values to multiples of q; default 1",
    "a": "First shape of a beta distribution; default 1",
    "b": "Second shape of a beta distribution; default 1",
    "parameters": "Nested parameters; the trial receives a mapping",
}


Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTHING: Mapping[str, str] = {}
_PARTIAL: Schema = {"$ref": "#/$defs/partial"}


def json_schema() -> Schema:
    """Return the schema of a sweep file."""
    return {
        "$schema": _DIALECT,
        "title": "hpq sweep file",
        "description": "W&B's sweep file with hpq's keys, or a list of hyperparameter sets",
        "anyOf": [{"$ref": "#/$defs/sweep"}, {"$ref": "#/$defs/list"}],
        "$defs": {
            "sweep": _sweep(),
            "list": _list_of(_object({explicit_sets.KEY: _filled({})}, needs=[explicit_sets.KEY])),
            "parameters": {
                **_filled({"$ref": "#/$defs/parameter"}),
                "propertyNames": {"pattern": _pattern(schema.PARAMETER_NAME.pattern)},
            },
            "parameter": {"anyOf": [*_distributions(), _nested()]},
            "partial": _filled(
                {
                    "anyOf": [
                        {"type": ["string", "number", "boolean", "null"]},
                        _list_of({}),
                        {**_table(schema.RANGE), "minProperties": 1},
                    ]
                }
            ),
        },
    }


def _sweep() -> Schema:
    made: dict[str, Schema] = {
        "parameters": {"$ref": "#/$defs/parameters"},
        "metric": _table(schema.METRIC, METRIC, needs=["name"]),
        "early_terminate": {
            "anyOf": [_rule(kind, keys) for kind, keys in early_terminate.RULES.items()]
        },
        "keep": {**_table(schema.KEEP), "minProperties": 1},
        "when": _filled(_PARTIAL),
        "exclude": _list_of(_PARTIAL),
        "points": _list_of(_filled({})),
    }
    keys = {
        key: {"description": TOP[key], **made.get(key, check.schema)}
        for key, check in schema.TOP.items()
    }
    starts = {"anyOf": [{"required": ["program"]}, {"required": ["command"]}]}
    one_of = [starts, {"required": ["trainer"]}]
    return {**_object(keys, needs=["method", "parameters"]), "oneOf": one_of}


def _rule(kind: str, keys: Mapping[str, Check]) -> Schema:
    table = _table(keys, needs=["type"])
    table["properties"]["type"] = {"const": str(kind)}
    return table


def _distributions() -> list[Schema]:
    """Make one object per distribution; its name is required unless hpq infers it."""
    listed = [
        _leaf(name, keys, (), needs_name=False) for name, keys in distributions.LISTED.items()
    ]
    return listed + [
        _leaf(name, keys.required, keys.optional, needs_name=name not in distributions.INFERRED)
        for name, keys in distributions.NUMERIC.items()
    ]


def _leaf(
    name: str, required: tuple[str, ...], optional: tuple[str, ...], needs_name: bool
) -> Schema:
    table = _table({key: schema.PARAMETER[key] for key in (*required, *optional)}, PARAMETER)
    table["properties"]["distribution"] = {
        "description": PARAMETER["distribution"],
        "const": name,
    }
    if "values" in required:
        table["properties"]["values"] |= {"type": "array", "minItems": 1}
    if name == "int_uniform":
        for key in required:
            table["properties"][key] |= {"type": "integer"}
    table["required"] = [*required, *(["distribution"] if needs_name else [])]
    return table


def _nested() -> Schema:
    about = PARAMETER["parameters"]
    inside = {"parameters": {"description": about, "$ref": "#/$defs/parameters"}}
    return _object(inside, needs=["parameters"])


def _table(
    table: Mapping[str, Check], about: Mapping[str, str] = _NOTHING, needs: Sequence[str] = ()
) -> Schema:
    keys: dict[str, Schema] = {
        key: {**({"description": about[key]} if key in about else {}), **check.schema}
        for key, check in table.items()
    }
    return _object(keys, needs)


def _object(keys: dict[str, Schema], needs: Sequence[str]) -> Schema:
    return {
        "type": "object",
        "properties": keys,
        "required": list(needs),
        "additionalProperties": False,
    }


def _filled(values: Schema) -> Schema:
    """Describe a non-empty mapping of any names."""
    return {"type": "object", "minProperties": 1, "additionalProperties": values}


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


def _pattern(rule: str) -> str:
    return "^" + rule.replace(r"\Z", "$")
