"""Read the options of an argparse parser from the add_argument calls in a script.

`findings` yields the values of a sweep that the parser rejects, or reads as other values: a parser
of argparse is built again from the literals of the calls. It parses the words that a trial would
get; nothing of the script is run.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from hpq.code.command import arguments, text
from hpq.domain.trial import Json
from hpq_producer.scaffold.script_contents import (
    TYPES,
    UNKNOWN,
    Kind,
    Literals,
    Option,
    Source,
    Value,
    called,
    keywords,
)

_ONE = frozenset({None, "?"})  # nargs of an option that takes one value
_IGNORED = frozenset({"help", "version"})
# Methods and arguments of a parser that gets options elsewhere, or accepts unknown ones.
_MAKES = ("ArgumentParser", ".add_argument_group", ".add_mutually_exclusive_group")
_OPEN = frozenset({"parse_known_args", "add_subparsers", "parents"})


def read(source: Source) -> tuple[list[Option], list[str]]:
    """Return the options, and the names of the positional arguments."""
    literals = source.literals
    options: dict[str, Option] = {}
    bare: list[str] = []
    for node in added(source):
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


def accepted(source: Source) -> dict[str, Option] | None:
    """Return the option of each flag; None if the parser may accept flags not read here."""
    literals, made = source.literals, _parsers(source.nodes)
    given = [one for node in source.calls for one in (*node.args, *keywords(node).values())]
    passed = {one.id for one in given if isinstance(one, ast.Name)}
    words = {key.arg or "" for key in source.nodes if isinstance(key, ast.keyword)}
    used = source.attributes | words
    if not made or made & passed or used & _OPEN:
        return None
    found: dict[str, Option] = {}
    for node in added(source):
        flags = [flag for flag in map(literals.value, node.args) if isinstance(flag, str)]
        if len(flags) < len(node.args) or not flags:
            return None
        option = _option(node, flags, keywords(node), literals)
        found |= {flag: option for flag in (*flags, *([f"--{option.off}"] if option.off else []))}
    return found or None


def reads_argv(source: Source) -> bool:
    """True if argparse itself surely parses the command line, as it was passed to the script."""
    nodes = source.nodes
    names = source.attributes | {node.id for node in nodes if isinstance(node, ast.Name)}
    modules = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    parsers = {
        getattr(node, "module", None) or alias.name
        for node in modules
        for alias in node.names
        if alias.name in ("argparse", "ArgumentParser")
    }
    parses = [node for node in source.calls if called(node).endswith(".parse_args")]
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


def added(source: Source) -> list[ast.Call]:
    """Return the calls of add_argument in the order of the lines."""
    return [node for node in source.calls if getattr(node.func, "attr", "") == "add_argument"]


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


_TYPES = {"int": int, "float": float, "str": str, "bool": bool, "Path": str}
_ACTIONS = ("store", "store_true", "store_false", "append", "extend", "count")
_MOST = 1_000  # choices, or values of an option: argparse lists the first, and repeats the second
_FALSE = ("", "0", "false", "no", "none", "off")
_FLAGS_ALONE, _NO_EQUALS = "${args_no_boolean_flags}", "${args_no_equals}"
_USE_FLAGS = f"use action=argparse.BooleanOptionalAction, and {_FLAGS_ALONE} in the command"
_SPLIT = "pass a text such as '1,2', and split it in the script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A value of a parameter that the script gets otherwise, by its place in the list of values.

    `is_wrong`: a trial would fail, or would run with another value than its own.
    """

    name: str
    place: int
    why: str
    is_wrong: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """How the parser reads an option; `type` is None if it is a function of the script."""

    dest: str
    action: str
    type: type | None
    default: object


class ScriptParser:
    """The parser of a script, built from the literals of its calls."""

    def __init__(self, source: Source) -> None:
        self._nodes, self._literals = source.nodes, source.literals
        self._parser = _Parser(add_help=False)
        self._options: dict[str, _Option] = {}  # by flag; none whose calls cannot be read
        twice: set[str] = set()
        for number, node in enumerate(added(source)):
            flags = [f for f in map(self._literals.value, node.args) if isinstance(f, str)]
            if flags and not flags[0].startswith("-"):
                self._parser.add_argument(f"o{number}", nargs="?")
            elif flags:
                twice |= self._add(node, flags, f"o{number}")
        for flag in twice:  # by several parsers, or under a condition
            self._options.pop(flag, None)

    def findings(self, name: str, values: Sequence[Json], macro: str) -> Iterator[Finding]:
        """Yield the values of a parameter that are rejected or misread."""
        flags = [flag for flag in self._options if flag.startswith(f"--{name}")]
        flag = f"--{name}" if f"--{name}" in flags else flags[0] if len(flags) == 1 else ""
        option = self._options.get(flag)
        for place, value in enumerate(values if option is not None else ()):
            assert option is not None
            is_rejected, found = False, None
            try:
                words = arguments((macro,), {name: value})
                found = vars(self._parser.parse_args(words))[option.dest]
            except ValueError as error:
                is_rejected, why = True, f"{error}{_hint(option, value, macro)}"
            else:
                why = _misreading(option, value, found)
            if why:
                yield Finding(
                    name=name,
                    place=place,
                    why=why,
                    is_wrong=is_rejected or isinstance(found, bool),
                )

    def _add(self, node: ast.Call, flags: list[str], dest: str) -> set[str]:
        """Add the option of a call; return its flags if another call has one of them."""
        given = keywords(node)
        action = self._action(given)
        default = self._literals.value(given.get("default"))
        default = None if default is UNKNOWN else default
        is_flag = action in ("store_true", "store_false", "BooleanOptionalAction", "count")
        kind = self._type(given)
        nargs = self._literals.value(given["nargs"]) if "nargs" in given else None
        is_short = not isinstance(nargs, int) or nargs <= _MOST
        is_read = action and is_short and nargs is not UNKNOWN and len(given) == len(node.keywords)
        more: dict[str, Any] = {}
        if is_read and action == "BooleanOptionalAction":
            more["action"] = argparse.BooleanOptionalAction
        elif is_read:
            more["action"] = action
        if action == "store_false":
            default = True if default is None else default
        elif action == "store_true":
            default = False if default is None else default
        if is_read and not is_flag:
            more |= {"nargs": nargs, "type": kind or str}
            more["choices"] = self._choices(given.get("choices")) if kind else None
        try:
            self._parser.add_argument(*flags, dest=dest, default=default, **more)
        except (argparse.ArgumentError, TypeError, ValueError):
            return set(flags)
        if is_read:
            option = _Option(dest=dest, action=action, type=kind, default=default)
            self._options |= dict.fromkeys(flags, option)
        return set()

    def _action(self, given: Mapping[str, ast.expr]) -> str:
        """Return the name of an action of argparse; "" for any other."""
        if "action" not in given:
            return "store"
        if called(given["action"]).endswith("BooleanOptionalAction"):
            return "BooleanOptionalAction"
        action = self._literals.value(given["action"])
        return action if action in _ACTIONS else ""

    def _type(self, given: Mapping[str, ast.expr]) -> type | None:
        if "type" not in given:
            return str
        return _TYPES.get(called(given["type"]).rpartition(".")[2])

    def _choices(self, node: ast.expr | None) -> Sequence[object] | None:
        """Return the choices of an option; None if they are not literals."""
        if isinstance(node, ast.Call) and called(node) in ("list", "tuple", "sorted"):
            return self._choices(node.args[0]) if len(node.args) == 1 else None
        if isinstance(node, ast.Call) and called(node) == "range":
            ends = [self._literals.value(one) for one in node.args]
            if all(type(end) is int and abs(end) <= _MOST for end in ends):
                with suppress(TypeError, ValueError):  # too few or many numbers, or a step of 0
                    return range(*ends)
            return None
        if isinstance(node, ast.Set):
            node = ast.List(node.elts)
        if isinstance(node, ast.Name) and not self._is_constant(node.id):
            return None
        found = self._literals.value(node)
        return found if isinstance(found, list) else None

    def _is_constant(self, name: str) -> bool:
        """True if a name is assigned once, and no method of its value is called."""
        nodes = [n for n in self._nodes if called(n) == name and isinstance(n, ast.Name)]
        used = [n for n in self._nodes if isinstance(n, ast.Attribute)]
        stored = [n for n in nodes if not isinstance(n.ctx, ast.Load)]
        return len(stored) == 1 and not any(n.value in nodes for n in used)


def findings(source: Source, passed: Mapping[str, Sequence[Json]], macro: str) -> Iterator[Finding]:
    """Yield the values of parameters, passed by a macro, that the script rejects or misreads."""
    parser = ScriptParser(source)
    known = accepted(source) or {}
    for name, values in passed.items():
        option = known.get(f"--{name}")
        is_flag = option is not None and option.kind is Kind.FLAG
        if not is_flag or macro == _FLAGS_ALONE:  # else each of its values is rejected
            yield from parser.findings(name, values, macro)


def _hint(option: _Option, value: Json, macro: str) -> str:
    """Return what to write in place of a value that is rejected."""
    if isinstance(value, float) and option.type is int:
        whole = f"{value:.0f}" if value.is_integer() else "whole numbers"
        return f"; write {whole}, and for a range distribution: int_uniform, or q: 1"
    if text(value).startswith("-") and macro == _NO_EQUALS:
        return f"; write ${{args}} in place of {_NO_EQUALS}: {text(value)} looks like an option"
    if isinstance(value, list):
        return f"; a list is one word: write values to try each of its items, or {_SPLIT}"
    if isinstance(value, bool) and option.action in ("store_true", "BooleanOptionalAction"):
        return f"; write {_FLAGS_ALONE} in the command"
    return ""


def _misreading(option: _Option, value: Json, found: object) -> str:
    """Return how the script reads a value otherwise; "" if it reads the value."""
    word = text(value)
    if isinstance(found, bool):
        wanted = bool(value) and word.strip().lower() not in _FALSE
        if option.action == "store_false":
            wanted = not wanted
        if found is wanted:
            return ""
        if option.type is bool:
            return f"{word} becomes {found}: type=bool reads any text as true; {_USE_FLAGS}"
        return f"{word} becomes {found}, its default, as no flag is passed for it"
    if option.type is None or isinstance(value, dict):
        return ""
    if isinstance(value, bool) and isinstance(option.default, bool):
        return f"{word} becomes the text {word!r}, which is true; {_USE_FLAGS}"
    if value is None and found == word:
        return f"null becomes the text {word!r}"
    if isinstance(value, list) and isinstance(found, list) and found != value:
        return f"{word} becomes {found}, as it is one word: {_SPLIT}"
    if isinstance(value, int | float) and isinstance(option.default, int | float):
        has_no_type = isinstance(found, str) and not isinstance(option.default, bool)
        return f"{word} becomes the text {word!r}; add type=float" if has_no_type else ""
    return ""
