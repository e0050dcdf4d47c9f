"""Read a script's use of W&B: defaults and reads of wandb.config, and the call of wandb.sweep."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hpq.domain.trial import Json
from hpq_producer.scaffold.script_contents import (
    UNKNOWN,
    Kind,
    Literals,
    Option,
    Source,
    called,
    keywords,
)

_METHODS = frozenset({"get", "update", "setdefaults", "items", "keys", "values", "as_dict"})


def read_config(source: Source) -> tuple[list[Option], list[str]]:
    """Return options from literal defaults, and the names read without a default."""
    literals = source.literals
    found: dict[str, Any] = {}
    reads: dict[str, None] = {}
    for node in source.nodes:
        if isinstance(node, ast.Call):
            pairs = literals.entries(_defaults(node)).items()
            found = {**{k: _value(v, literals) for k, v in pairs}, **found}
    aliases = _aliases(source)
    for node in source.nodes:
        if isinstance(node, ast.Assign) and (name := _read(node.targets[0], aliases)):
            found.setdefault(name, literals.value(node.value))
        elif isinstance(node, ast.expr) and (name := _read(node, aliases)):
            reads[name] = None
    options = [_option(name, value) for name, value in found.items()]
    return options, [name for name in reads if name not in found]


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


def _aliases(source: Source) -> set[str]:
    """Return the names that the script assigns wandb.config to."""
    out = {"wandb.config", "run.config"}
    for node in source.nodes:
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


def _option(name: str, value: Any) -> Option:
    kinds = {bool: Kind.TRUTH, int: Kind.INT, float: Kind.FLOAT}
    if isinstance(value, dict):
        nested = tuple(_option(inner, one) for inner, one in value.items())
        return Option(name=name, nested=nested)
    is_plain = value is None or isinstance(value, str | int | float)
    return Option(
        name=name,
        kind=kinds.get(type(value), Kind.TEXT),
        default=value if is_plain else None,
        why_not="" if is_plain else "its default is not a single value",
    )


_DEEPEST = 20
_LOADS_YAML = re.compile(r"(?:yaml\.)?(?:safe_|full_)?load")
_IS_YAML = re.compile(r"\.(?:ya?ml|json)$", re.IGNORECASE)


def read_sweep(source: Source, read_yaml: Callable[[str], Any]) -> dict[str, Json] | None:
    """Return the mapping passed to wandb.sweep, with wandb.agent's count as run_cap.

    `read_yaml` reads a file that the script loads. None if the script does not call wandb.sweep, or
    a part of the mapping is neither a literal nor of a file.
    """
    literals = source.literals
    sweeps = [call for call in source.calls if _is(call, "sweep")]
    given = [call.args[0] if call.args else keywords(call).get("sweep") for call in sweeps]
    if len(given) != 1 or given[0] is None:
        return None
    sweep = _Names(literals, _written(source), _opened(source), read_yaml).value(given[0])
    if not isinstance(sweep, dict) or not isinstance(sweep.get("parameters"), dict):
        return None
    agents = [call for call in source.calls if _is(call, "agent")]
    if any(call.args[1:] or "function" in keywords(call) for call in agents):
        for key in ("program", "command"):  # ignored by the agent: this script is the program
            sweep.pop(key, None)
    counts = [literals.value(keywords(call).get("count")) for call in agents]
    if "run_cap" not in sweep and len(counts) == 1 and type(counts[0]) is int and counts[0] > 0:
        sweep["run_cap"] = counts[0]
    return sweep


def _is(call: ast.Call, name: str) -> bool:
    return called(call) in (name, f"wandb.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One assignment to a name: all of it, one key, or an update."""

    value: ast.expr
    key: str | None = None
    is_all: bool = False


def _written(source: Source) -> dict[str, list[Write]]:
    """Return the assignments to each name in the order of the lines; functions share names."""
    out: dict[str, list[Write]] = {}
    nodes = (node for node in source.nodes if isinstance(node, ast.Assign | ast.Expr))
    for node in sorted(nodes, key=lambda n: n.lineno):
        for name, write in _writes(node):
            out.setdefault(name, []).append(write)
    return out


def _writes(node: ast.Assign | ast.Expr) -> Iterator[tuple[str, Write]]:
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Name):
            yield target.id, Write(value=node.value, is_all=True)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            key = str(target.slice.value)
            yield called(target.value), Write(value=node.value, key=key)
    elif isinstance(node.value, ast.Call):
        name, _, method = called(node.value).rpartition(".")
        if method == "update" and node.value.args:
            yield name, Write(value=node.value.args[0])


def _opened(source: Source) -> dict[str, ast.expr]:
    """Return the expressions of `with … as name` by name."""
    items = (item for node in source.nodes if isinstance(node, ast.With) for item in node.items)
    found = ((item.optional_vars, item.context_expr) for item in items)
    return {name.id: value for name, value in found if isinstance(name, ast.Name)}


@dataclass(frozen=True, slots=True)
class _Names:
    """The values of names that are assigned in several steps."""

    literals: Literals
    written: dict[str, list[Write]] = field(default_factory=dict)
    opened: dict[str, ast.expr] = field(default_factory=dict)  # `with` expressions by name
    read_yaml: Callable[[str], Any] = lambda _: UNKNOWN

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of an expression, mappings and lists included, or UNKNOWN."""
        if depth > _DEEPEST:
            return UNKNOWN
        if isinstance(node, ast.Name) and node.id in self.written:
            return self._named(self.written[node.id], depth)
        if isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and called(node) == "dict"):
            return self._mapping(node, depth)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, depth + 1) for item in node.elts]
            return UNKNOWN if any(item is UNKNOWN for item in items) else items
        if isinstance(node, ast.Call) and _LOADS_YAML.fullmatch(called(node)) and node.args:
            file = node.args[0]
            file = self.opened.get(file.id, file) if isinstance(file, ast.Name) else file
            words = [n.value for n in ast.walk(file) if isinstance(n, ast.Constant)]
            names = [w for w in words if isinstance(w, str) and _IS_YAML.search(w)]
            return self.read_yaml(names[0]) if len(names) == 1 else UNKNOWN
        return self.literals.value(node)

    def _mapping(self, node: ast.Dict | ast.Call, depth: int) -> Any:
        entries = self.literals.entries(node)
        there = len(node.keys) if isinstance(node, ast.Dict) else len(node.keywords + node.args)
        pairs = {name: self.value(value, depth + 1) for name, value in entries.items()}
        whole = len(pairs) == there and not any(v is UNKNOWN for v in pairs.values())
        return pairs if whole else UNKNOWN

    def _named(self, writes: list[Write], depth: int) -> Any:
        first, *others = writes
        value = self.value(first.value, depth + 1) if first.is_all else UNKNOWN
        for one in others:
            more = self.value(one.value, depth + 1)
            more = more if one.key is None else {one.key: more}
            if one.is_all or not isinstance(value, dict) or not isinstance(more, dict):
                return UNKNOWN
            if UNKNOWN in more.values():
                return UNKNOWN
            value = {**value, **more}
        return value
