"""Read the options of an argparse parser from the add_argument calls in a script. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from hpq_producer.scaffold.script_contents import (
    TYPES,
    UNKNOWN,
    Kind,
    Literals,
    Option,
    Value,
    called,
    keywords,
)

_ONE = frozenset({None, "?"})  # nargs of an option that takes one value
_IGNORED = frozenset({"help", "version"})
# Methods and arguments of a parser that gets options elsewhere, or accepts unknown ones.
_MAKES = ("ArgumentParser", ".add_argument_group", ".add_mutually_exclusive_group")
_OPEN = frozenset({"parse_known_args", "add_subparsers", "parents"})


def read(tree: ast.Module, literals: Literals) -> tuple[list[Option], list[str]]:
    """Return the options, and the names of the positional arguments."""
    options: dict[str, Option] = {}
    bare: list[str] = []
    for node in added(tree):
        given = keywords(node)
        flags = [f for f in map(literals.value, node.args) if isinstance(f, str)]
        if not flags or literals.value(given.get("action")) in _IGNORED:
            continue
        if not flags[0].startswith("-"):
            if literals.value(given.get("nargs")) not in ("?", "*"):
                bare.append(flags[0])
            continue
        option = _option(node, flags, given, literals)
        options[option.name] = option
    return list(options.values()), bare


def accepted(tree: ast.Module, literals: Literals) -> dict[str, Option] | None:
    """Return the option of each flag; None if the parser may accept flags not read here."""
    nodes = list(ast.walk(tree))
    made = _parsers(nodes)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    given = [one for node in calls for one in (*node.args, *keywords(node).values())]
    passed = {one.id for one in given if isinstance(one, ast.Name)}
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {key.arg or "" for key in nodes if isinstance(key, ast.keyword)}
    if not made or made & passed or used & _OPEN:
        return None
    found: dict[str, Option] = {}
    for node in added(tree):
        flags = [flag for flag in map(literals.value, node.args) if isinstance(flag, str)]
        if len(flags) < len(node.args) or not flags:
            return None
        option = _option(node, flags, keywords(node), literals)
        found |= {flag: option for flag in (*flags, *([f"--{option.off}"] if option.off else []))}
    return found or None


def reads_argv(tree: ast.Module) -> bool:
    """True if argparse itself surely parses the command line, as it was passed to the script."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    modules = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    parsers = {
        getattr(node, "module", None) or alias.name
        for node in modules
        for alias in node.names
        if alias.name in ("argparse", "ArgumentParser")
    }
    parses = [n for n in nodes if isinstance(n, ast.Call) and called(n).endswith(".parse_args")]
    whole = bool(parses) and not any(node.args or node.keywords for node in parses)
    loads = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    used = [n.value for n in nodes if isinstance(n, ast.Attribute)]
    hidden = {n.id for n in loads if n not in used} & _parsers(nodes)  # returned, or in a list
    return parsers == {"argparse"} and whole and not hidden and "argv" not in names


def _parsers(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of the variables that hold a parser, or a group of one."""
    return {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and called(node.value).endswith(_MAKES)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def added(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of add_argument in the order of the lines."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [node for node in calls if getattr(node.func, "attr", "") == "add_argument"]
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _option(
    node: ast.Call, flags: list[str], given: dict[str, ast.expr], literals: Literals
) -> Option:
    long = [flag for flag in flags if flag.startswith("--")]
    name = (long or flags)[0].lstrip("-")
    default = literals.value(given["default"]) if "default" in given else None
    action = literals.value(given.get("action"))
    kind, why_not = _kind(given, action, default, literals)
    if not long:
        why_not = f"only a short name, -{name}; a sweep needs a long one, --{name}"
    if action == "store_false":
        default = False  # an absent flag
    choices = literals.value(given.get("choices"))
    off = f"no-{name}" if "BooleanOptionalAction" in called(given.get("action") or node) else ""
    return Option(
        name=name,
        kind=kind,
        default=None if default is UNKNOWN else default,
        choices=tuple(c for c in choices if isinstance(c, Value))
        if isinstance(choices, list)
        else (),
        required=literals.value(given.get("required")) is True,
        off=off,
        why_not=why_not,
    )


def _kind(
    given: dict[str, ast.expr], action: object, default: object, literals: Literals
) -> tuple[Kind, str]:
    """Return the kind of its value, and why a sweep cannot set it, "" if a sweep can."""
    if action in ("store_true", "store_false"):
        return Kind.FLAG, ""
    if "action" in given and "BooleanOptionalAction" in called(given["action"]):
        return Kind.FLAG, ""
    if action not in (UNKNOWN, None, "store"):
        return Kind.OTHER, f"action={action} takes no single value"
    if "nargs" in given and literals.value(given["nargs"]) not in _ONE:
        return Kind.OTHER, "it takes several values"
    if "type" not in given:
        # Without a type argparse passes text; the number of the default is most likely meant.
        return Kind.TEXT, ""
    called_name = called(given["type"]).rpartition(".")[2]
    if called_name == "bool":
        return Kind.OTHER, "type=bool reads any text as true; use argparse.BooleanOptionalAction"
    if called_name in TYPES:
        return TYPES[called_name], ""
    if "bool" in called_name.lower():
        return Kind.WORDS_OF_TRUTH, ""
    return _like(default), ""


def _like(default: object) -> Kind:
    """Return the kind of an option whose type is a function: the kind of its default."""
    if isinstance(default, bool):
        return Kind.WORDS_OF_TRUTH
    return {int: Kind.INT, float: Kind.FLOAT}.get(type(default), Kind.TEXT)
