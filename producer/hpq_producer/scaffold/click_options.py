"""Read the options of a Typer or click command from decorators and annotations. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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

_RANGES = {"IntRange": Kind.INT, "FloatRange": Kind.FLOAT}
_OF_TRAINING = ("train", "main", "fit", "run")


@dataclass(slots=True)
class Command:
    """A command: its options, its arguments, and its name within a group."""

    name: str
    options: list[Option] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


def read(tree: ast.Module, literals: Literals) -> list[Command]:
    """Return the commands of a script; the one that most likely trains is first."""
    found = []
    ran = {called(n.args[0]) for n in ast.walk(tree)
           if isinstance(n, ast.Call) and called(n) == "typer.run" and n.args}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [called(d) for d in node.decorator_list]
            if node.name in ran or any(d.endswith(".command") for d in decorators):
                found.append(_command(node, literals))
    return sorted(found, key=_rank)


def _rank(command: Command) -> int:
    name = command.name
    return _OF_TRAINING.index(name) if name in _OF_TRAINING else len(_OF_TRAINING)


def _command(node: ast.FunctionDef, literals: Literals) -> Command:
    command = Command(node.name.replace("_", "-"))
    is_click = False
    for decorator in node.decorator_list:
        called_name = called(decorator)
        if not isinstance(decorator, ast.Call):
            continue
        words = [w for w in map(literals.value, decorator.args) if isinstance(w, str)]
        if called_name.endswith(".command") and words:
            command.name = words[0]
        elif called_name.endswith("click.option"):
            command.options.append(_of_click(decorator, words, literals))
        elif called_name.endswith("click.argument") and words:
            command.arguments.append(words[0])
        is_click = is_click or called_name.startswith("click.")
    if not is_click:
        for name, annotation, default in _parameters(node):
            _add_typers(command, name, annotation, default, literals)
    return command


# --- click ------------------------------------------------------------------------------------


def _of_click(node: ast.Call, words: list[str], literals: Literals) -> Option:
    given = keywords(node)
    yes, _, no = next((w for w in words if w.startswith("--")), "--").partition("/")
    name = yes.strip().lstrip("-")
    default = literals.value(given["default"]) if "default" in given else None
    default = None if default is UNKNOWN else default
    is_flag = bool(no) or literals.value(given.get("is_flag")) is True
    kind, choices, low, high = _click_type(given.get("type"), default, literals)
    several = literals.value(given.get("multiple")) is True or "nargs" in given
    return Option(
        name=name,
        line=node.lineno,
        kind=Kind.FLAG if is_flag else kind,
        default=default,
        choices=choices,
        low=low,
        high=high,
        required=literals.value(given.get("required")) is True,
        off=no.strip().lstrip("-"),
        why_not=_why_not(name, several),
    )


def _why_not(name: str, several: bool) -> str:
    if not name:
        return "only a short name; a sweep needs a long one, --name"
    return "it takes several values" if several else ""


def _click_type(
    node: ast.expr | None, default: Any, literals: Literals
) -> tuple[Kind, tuple[Value, ...], float | None, float | None]:
    called_name = called(node).rpartition(".")[2] if node is not None else ""
    if isinstance(node, ast.Call) and called_name == "Choice" and node.args:
        words = literals.value(node.args[0])
        return Kind.TEXT, tuple(words) if isinstance(words, list) else (), None, None
    if isinstance(node, ast.Call) and called_name in _RANGES:
        given = keywords(node)
        ends = [*map(literals.value, node.args), UNKNOWN, UNKNOWN][:2]
        low = literals.value(given["min"]) if "min" in given else ends[0]
        high = literals.value(given["max"]) if "max" in given else ends[1]
        return _RANGES[called_name], (), _real(low), _real(high)
    if called_name in ("BOOL", "bool"):
        return Kind.WORDS_OF_TRUTH, (), None, None
    if called_name.lower() in TYPES:
        return TYPES[called_name.lower()], (), None, None
    if node is None:
        kinds = {bool: Kind.WORDS_OF_TRUTH, int: Kind.INT, float: Kind.FLOAT}
        return kinds.get(type(default), Kind.TEXT), (), None, None
    return Kind.TEXT, (), None, None


def _real(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# --- typer ------------------------------------------------------------------------------------


def _parameters(
    node: ast.FunctionDef,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Return name, annotation and default of each parameter."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    blanks: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults))
    pairs = [*zip(plain, [*blanks, *args.defaults], strict=True),
             *zip(args.kwonlyargs, args.kw_defaults, strict=True)]  # fmt: skip
    for arg, default in pairs:
        yield arg.arg, arg.annotation, default


def _add_typers(
    command: Command,
    name: str,
    annotation: ast.expr | None,
    default: ast.expr | None,
    literals: Literals,
) -> None:
    said: ast.Call | None = None
    if isinstance(annotation, ast.Subscript) and called(annotation.value).endswith("Annotated"):
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        said = next((e for e in inner[1:] if isinstance(e, ast.Call)), None)
        annotation = inner[0] if inner else None
    if isinstance(default, ast.Call) and called(default).endswith((".Option", ".Argument")):
        said, default = default, default.args[0] if default.args else None
        words = [literals.value(w) for w in said.args[1:]]
    else:
        words = [literals.value(w) for w in (said.args if said else [])]
    if called(annotation or ast.Name("")).endswith("Context"):
        return
    is_missing = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    is_argument = said is not None and called(said).endswith(".Argument")
    if is_argument or (said is None and is_missing):
        if is_missing:
            command.arguments.append(name)
        return
    flags = [w for w in words if isinstance(w, str) and w.startswith("--")]
    yes, _, no = (flags[0] if flags else f"--{name.replace('_', '-')}").partition("/")
    value = literals.value(default) if default is not None else None
    kind, choices = _typers_kind(annotation, literals)
    yes = yes.lstrip("-")
    given = keywords(said) if said else {}
    command.options.append(
        Option(
            name=yes,
            line=(annotation or default or ast.Constant(0, lineno=0)).lineno,
            kind=kind,
            default=None if value is UNKNOWN else value,
            choices=choices,
            low=_real(literals.value(given.get("min"))),
            high=_real(literals.value(given.get("max"))),
            required=is_missing,
            off=no.strip().lstrip("-") or ("" if kind is not Kind.FLAG or flags else f"no-{yes}"),
            why_not="it takes several values" if kind is Kind.OTHER else "",
        )
    )


def _typers_kind(node: ast.expr | None, literals: Literals) -> tuple[Kind, tuple[Value, ...]]:
    if isinstance(node, ast.BinOp):  # float | None
        node = node.left
    if isinstance(node, ast.Subscript):
        called_name = called(node.value).rpartition(".")[2]
        if called_name == "Optional":
            return _typers_kind(node.slice, literals)
        if called_name == "Literal":
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            words = map(literals.value, inner)
            return Kind.TEXT, tuple(w for w in words if isinstance(w, Value))
        return Kind.OTHER, ()
    called_name = called(node).rpartition(".")[2] if node is not None else "str"
    if called_name == "bool":
        return Kind.FLAG, ()
    if called_name in TYPES:
        return TYPES[called_name], ()
    return Kind.TEXT, literals.words_of(called_name)
