"""The tables of schema, rules and early as one JSON Schema (draft 2020-12), for editors.

`hpq schema` prints it. It refuses nothing that hpq takes; what only a whole file shows (ends in the
wrong order, names that do not exist, macros) it cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from producer.sweepfile import early, listed, meanings, rules, schema
from producer.sweepfile.values import Check

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
            "list": _list_of(_object({listed.KEY: _filled({})}, needs=[listed.KEY])),
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
        "metric": _table(schema.METRIC, meanings.METRIC, needs=["name"]),
        "early_terminate": {"anyOf": [_rule(kind, keys) for kind, keys in early.RULES.items()]},
        "keep": {**_table(schema.KEEP), "minProperties": 1},
        "when": _filled(_PARTIAL),
        "exclude": _list_of(_PARTIAL),
        "points": _list_of(_filled({})),
    }
    keys = {
        key: {"description": meanings.TOP[key], **made.get(key, check.schema)}
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
    found = [_leaf(name, needs, (), needs_name=False) for name, needs in rules.LISTED.items()]
    for name, rule in rules.NUMERIC.items():
        found.append(_leaf(name, rule.needs, rule.takes, needs_name=name not in rules.INFERRED))
    return found


def _leaf(name: str, needs: tuple[str, ...], takes: tuple[str, ...], needs_name: bool) -> Schema:
    table = _table({key: schema.PARAMETER[key] for key in (*needs, *takes)}, meanings.PARAMETER)
    table["properties"]["distribution"] = {
        "description": meanings.PARAMETER["distribution"],
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
    about = meanings.PARAMETER["parameters"]
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
