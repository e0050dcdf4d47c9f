"""The JSON Schema (draft 2020-12) of sweep files, for editors; `hpq schema` prints it.

It is made of the tables in schema, distributions and early_termination, with a line about each key.
It refuses nothing that hpq takes. It cannot check what only a whole file shows: ends in the wrong
order, names that do not exist, macros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpq_producer.sweepfile import distributions, early_termination, explicit_sets, schema
from hpq_producer.sweepfile.values import Check

TOP: Mapping[str, str] = {
    "method": "How sets are chosen: every combination (grid), draws (random), from results (bayes)",
    "parameters": "What is searched: a mapping of names to values, ranges or distributions",
    "program": "The script that trains: from the working directory, else from this file's",
    "command": "How the program is started: words, with macros such as ${program} and ${args}",
    "trainer": "The function that trains instead of a program: digits, or package.module:function",
    "code": "The directory whose files go with the sweep to workers elsewhere",
    "resident": "The trainer's process stays from trial to trial",
    "wandb": "What `import wandb` gives the program: a stand-in, the real one too, or that alone",
    "metric": "What is optimised",
    "early_terminate": "How trials that do badly are ended early",
    "run_cap": "The most trials of the sweep",
    "seed": "Another seed gives other draws, another order and other seeds of trials",
    "order": "Whether a grid is run in its order or shuffled",
    "sampler": "Who chooses the sets of method bayes",
    "replicates": "So many trials of each set, each with a seed of its own; ranked by their mean",
    "when": "Which parameters exist only where others have certain values",
    "exclude": "Sets that are not run: a list of parts of sets",
    "points": "Sets that are run before all others",
    "name": "What the sweep is called; its id begins with it",
    "description": "Kept and shown",
    "project": "Kept and shown; W&B's",
    "entity": "Kept and shown; W&B's",
    "apiVersion": "Kept; W&B's",
    "kind": "Kept; W&B's",
    "controller": "W&B's; only {type: local} can be meant here",
    "queue": "The class of workers that run it",
    "owner": "Who it belongs to; by default who enqueues it",
    "priority": "A higher one is claimed first",
    "max_parallel": "The most trials that run at the same time; 0 for no limit",
    "retries": "How many failures of a trial are forgiven",
    "timeout": "The longest a trial may run: seconds, or 90s, 15m, 2h",
    "stall": "How long a trial may neither report nor print before it is ended",
    "keep": "Whose checkpoints and artifacts stay",
    "pass_env": "Variables of a worker's environment that the program gets in a pod",
}
METRIC: Mapping[str, str] = {
    "name": "The name under which trials report it",
    "goal": "Which way it is better",
    "target": "Once a trial reaches it, no further one starts",
    "impute": "What a failed trial counts as, for method bayes",
    "impute_while_running": "What a running trial counts as, for method bayes",
    "value": "Which of a trial's values is its objective: the last or the best",
}
PARAMETER: Mapping[str, str] = {
    "value": "The one value",
    "values": "The values to choose from",
    "probabilities": "How likely each of the values is",
    "distribution": "How values are drawn; follows from the other keys where it is left out",
    "min": "The lower end (of log_uniform: its natural logarithm)",
    "max": "The upper end (of log_uniform: its natural logarithm)",
    "mu": "The mean (of log_normal: of the logarithm); 0",
    "sigma": "The standard deviation (of log_normal: of the logarithm); 1",
    "q": "Values are rounded to multiples of it; 1",
    "a": "The first shape of a beta distribution; 1",
    "b": "The second shape of a beta distribution; 1",
    "parameters": "Parameters below this one; a set then has a mapping here",
}


Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTHING: Mapping[str, str] = {}
_PARTIAL: Schema = {"$ref": "#/$defs/partial"}


def json_schema() -> Schema:
    """The schema of a sweep file."""
    return {
        "$schema": _DIALECT,
        "title": "hpq sweep file",
        "description": "W&B's sweep file with keys of hpq's own, or a list of hyperparameter sets",
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
            "anyOf": [_rule(kind, keys) for kind, keys in early_termination.RULES.items()]
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
    """One object for each distribution; where its name may be left out, it may."""
    found = [
        _leaf(name, needs, (), needs_name=False) for name, needs in distributions.LISTED.items()
    ]
    for name, rule in distributions.NUMERIC.items():
        found.append(
            _leaf(name, rule.needs, rule.takes, needs_name=name not in distributions.INFERRED)
        )
    return found


def _leaf(name: str, needs: tuple[str, ...], takes: tuple[str, ...], needs_name: bool) -> Schema:
    table = _table({key: schema.PARAMETER[key] for key in (*needs, *takes)}, PARAMETER)
    table["properties"]["distribution"] = {
        "description": PARAMETER["distribution"],
        "const": name,
    }
    if "values" in needs:
        table["properties"]["values"] |= {"type": "array", "minItems": 1}
    if name == "int_uniform":
        for key in needs:
            table["properties"][key] |= {"type": "integer"}
    table["required"] = [*needs, *(["distribution"] if needs_name else [])]
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
    """A mapping of any names, not empty."""
    return {"type": "object", "minProperties": 1, "additionalProperties": values}


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


def _pattern(rule: str) -> str:
    return "^" + rule.replace(r"\Z", "$")
