"""The parameters of a script that reads wandb.config: its defaults, and bare reads. Pure."""

from __future__ import annotations

import ast
from typing import Any

from producer.scaffold.literals import Literals, called, keywords
from producer.scaffold.option import Kind, Option

_METHODS = frozenset({"get", "update", "setdefaults", "items", "keys", "values", "as_dict"})


def read(tree: ast.Module, literals: Literals) -> tuple[list[Option], list[tuple[str, int]]]:
    """Options from defaults that are written down, and names that are read without one (lines)."""
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
    """A default; a dict of them where one is written there."""
    inner = literals.entries(node)
    return {k: _value(v, literals) for k, v in inner.items()} or literals.value(node)


def _defaults(node: ast.Call) -> ast.expr | None:
    """Where a call says what wandb.config is by default."""
    told = called(node)
    if told.endswith("wandb.init") or told == "init":
        return keywords(node).get("config")
    if told.endswith(("config.setdefaults", "wandb.config.update")) and node.args:
        return node.args[0]
    return None


def _aliases(tree: ast.Module) -> set[str]:
    """The names under which the script has wandb.config."""
    out = {"wandb.config", "run.config"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and called(node.value) in out:
            out |= {called(target) for target in node.targets} - {""}
    return out


def _read(node: ast.AST, aliases: set[str]) -> str:
    """The name that an expression means in wandb.config; "" where it means none."""
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
        why_not="" if is_plain else "its default is no single value",
    )
