"""Read a script's use of W&B: defaults and reads of wandb.config, and the call of wandb.sweep."""

from __future__ import annotations

import ast
from typing import Any

from hpq.domain.trial import Json
from hpq_producer.scaffold.script_contents import UNKNOWN, Kind, Literals, Option, called, keywords

_METHODS = frozenset({"get", "update", "setdefaults", "items", "keys", "values", "as_dict"})


def read_config(tree: ast.Module, literals: Literals) -> tuple[list[Option], list[tuple[str, int]]]:
    """Return options from literal defaults, and the names (with lines) read without a default."""
    found: dict[str, tuple[Any, int]] = {}
    reads: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            pairs = literals.entries(_defaults(node)).items()
            found = {**{k: (_value(v, literals), v.lineno) for k, v in pairs}, **found}
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (name := _read(node.targets[0], aliases)):
            found.setdefault(name, (literals.value(node.value), node.lineno))
        elif isinstance(node, ast.expr) and (name := _read(node, aliases)):
            reads.setdefault(name, node.lineno)
    options = [_option(name, value, line) for name, (value, line) in found.items()]
    return options, [(name, line) for name, line in reads.items() if name not in found]


def _value(node: ast.expr, literals: Literals) -> Any:
    """Return a default, or a dict of defaults."""
    inner = literals.entries(node)
    return {k: _value(v, literals) for k, v in inner.items()} or literals.value(node)


def _defaults(node: ast.Call) -> ast.expr | None:
    """Return the argument of a call that sets defaults of wandb.config."""
    called_name = called(node)
    if called_name.endswith("wandb.init") or called_name == "init":
        return keywords(node).get("config")
    if called_name.endswith(("config.setdefaults", "wandb.config.update")) and node.args:
        return node.args[0]
    return None


def _aliases(tree: ast.Module) -> set[str]:
    """Return the names that the script assigns wandb.config to."""
    out = {"wandb.config", "run.config"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and called(node.value) in out:
            out |= {called(target) for target in node.targets} - {""}
    return out


def _read(node: ast.AST, aliases: set[str]) -> str:
    """Return the name that an expression reads from wandb.config; "" if it reads none."""
    if isinstance(node, ast.Attribute) and called(node.value) in aliases:
        return "" if node.attr in _METHODS or node.attr.startswith("_") else node.attr
    if isinstance(node, ast.Subscript) and called(node.value) in aliases:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
        return key if isinstance(key, str) else ""
    return ""


def _option(name: str, value: Any, line: int) -> Option:
    kinds = {bool: Kind.TRUTH, int: Kind.INT, float: Kind.FLOAT}
    if isinstance(value, dict):
        nested = tuple(_option(inner, one, line) for inner, one in value.items())
        return Option(name=name, line=line, nested=nested)
    is_plain = value is None or isinstance(value, str | int | float)
    return Option(
        name=name,
        line=line,
        kind=kinds.get(type(value), Kind.TEXT),
        default=value if is_plain else None,
        why_not="" if is_plain else "its default is not a single value",
    )


def read_sweep(tree: ast.Module, literals: Literals) -> dict[str, Json] | None:
    """Return the mapping passed to wandb.sweep, with wandb.agent's count as run_cap.

    None if the script does not call wandb.sweep with one literal, or with a name that one literal
    is assigned to: `hpq exec` runs any other script.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    sweeps = [call for call in calls if _is(call, "sweep")]
    if len(sweeps) != 1:
        return None
    given = sweeps[0].args[0] if sweeps[0].args else keywords(sweeps[0]).get("sweep")
    if isinstance(given, ast.Name):
        stores = [node for node in ast.walk(tree) if _changes(node, given.id)]
        given = stores[0].value if len(stores) == 1 and isinstance(stores[0], ast.Assign) else None
    sweep = _tree(given, literals)
    if not isinstance(sweep, dict) or not isinstance(sweep.get("parameters"), dict):
        return None
    counts = [literals.value(keywords(c).get("count")) for c in calls if _is(c, "agent")]
    if "run_cap" not in sweep and len(counts) == 1 and type(counts[0]) is int and counts[0] > 0:
        sweep["run_cap"] = counts[0]
    return sweep


def _changes(node: ast.AST, name: str) -> bool:
    """Return True for an assignment to a name or to its keys, and for a call of a method of it."""
    if isinstance(node, ast.Assign):
        return any(_root(target) == name for target in node.targets)
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return _root(node.target) == name
    return isinstance(node, ast.Call) and called(node).startswith(f"{name}.")


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return called(node)


def _tree(node: ast.expr | None, literals: Literals) -> Any:
    """Return the value of nested literals, or UNKNOWN."""
    if isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and called(node) == "dict"):
        entries = literals.entries(node)
        size = len(node.keys) if isinstance(node, ast.Dict) else len(node.keywords + node.args)
        found = {name: _tree(value, literals) for name, value in entries.items()}
        return found if len(found) == size and UNKNOWN not in found.values() else UNKNOWN
    if isinstance(node, ast.List | ast.Tuple):
        items = [_tree(item, literals) for item in node.elts]
        return UNKNOWN if UNKNOWN in items else items
    return literals.value(node)


def _is(call: ast.Call, name: str) -> bool:
    return called(call) in (name, f"wandb.{name}")
