"""Read the options of a Typer or click command from decorators and annotations. Pure."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

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

_OF_TRAINING = ("train", "main", "fit", "run")
_KINDS = {bool: Kind.WORDS_OF_TRUTH, int: Kind.INT, float: Kind.FLOAT}


@dataclass(slots=True)
class Command:
    """A command: its options, its arguments, and its name within a group."""

    name: str
    options: list[Option] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


def read(tree: ast.Module, literals: Literals) -> list[Command]:
    """Return the commands of a script; the one that most likely trains is first."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    ran = {called(call.args[0]) for call in calls if called(call) == "typer.run" and call.args}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [called(decorator) for decorator in node.decorator_list]
            if node.name in ran or any(name.endswith(".command") for name in decorators):
                found.append(_command(node, literals))
    rank = {name: place for place, name in enumerate(_OF_TRAINING)}
    return sorted(found, key=lambda command: rank.get(command.name, len(rank)))


def _command(node: ast.FunctionDef, literals: Literals) -> Command:
    command = Command(node.name.replace("_", "-"))
    is_click = False
    for decorator in node.decorator_list:
        name = called(decorator)
        is_click = is_click or name.startswith("click.")
        if not isinstance(decorator, ast.Call):
            continue
        words = [w for w in map(literals.value, decorator.args) if isinstance(w, str)]
        if name.endswith(".command") and words:
            command.name = words[0]
        elif name.endswith("click.option"):
            command.options.append(_of_click(decorator, words, literals))
        elif name.endswith("click.argument") and words:
            command.arguments.append(words[0])
    if not is_click:
        _add_parameters(command, node.args, literals)
    return command


def _of_click(node: ast.Call, words: list[str], literals: Literals) -> Option:
    given = keywords(node)
    yes, _, no = next((w for w in words if w.startswith("--")), "--").partition("/")
    name, kind_node = yes.strip().lstrip("-"), given.get("type")
    default = literals.value(given.get("default"))
    kind = _KINDS.get(type(default), Kind.TEXT)
    choices: tuple[Value, ...] = ()
    if isinstance(kind_node, ast.Call) and called(kind_node).endswith("Choice"):
        kind, choices = Kind.TEXT, _values(literals, *kind_node.args[:1])
    elif kind_node is not None:
        type_name = called(kind_node).rpartition(".")[2].lower().removesuffix("range")
        kind = Kind.WORDS_OF_TRUTH if type_name == "bool" else TYPES.get(type_name, Kind.TEXT)
    if no or literals.value(given.get("is_flag")) is True:
        kind = Kind.FLAG
    why_not = "" if name else "only a short name; a sweep needs a long one, --name"
    if literals.value(given.get("multiple")) is True or "nargs" in given:
        why_not = "it takes several values"
    return Option(
        name=name,
        line=node.lineno,
        kind=kind,
        default=None if default is UNKNOWN else default,
        choices=choices,
        required=literals.value(given.get("required")) is True,
        off=no.strip().lstrip("-"),
        why_not=why_not,
    )


def _values(literals: Literals, *nodes: ast.expr) -> tuple[Value, ...]:
    """Return the literal values of some expressions, or of the one list."""
    found = [literals.value(node) for node in nodes]
    if len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    return tuple(value for value in found if isinstance(value, Value))


def _add_parameters(command: Command, args: ast.arguments, literals: Literals) -> None:
    """Add the parameters of a Typer command."""
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    pairs = [
        *zip(plain, defaults, strict=True),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    for arg, default in pairs:
        _add_parameter(command, arg, default, literals)


def _add_parameter(
    command: Command, arg: ast.arg, default: ast.expr | None, literals: Literals
) -> None:
    annotation, about = arg.annotation, None
    if isinstance(annotation, ast.Subscript) and called(annotation.value).endswith("Annotated"):
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [None]
        about = next((node for node in inner[1:] if isinstance(node, ast.Call)), None)
        annotation = inner[0]
    words = about.args if about else []
    if isinstance(default, ast.Call) and called(default).endswith((".Option", ".Argument")):
        about, words = default, default.args[1:]
        default = default.args[0] if default.args else None
    if annotation is not None and called(annotation).endswith("Context"):
        return
    is_missing = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    if called(about).endswith(".Argument") if about else is_missing:
        command.arguments += [arg.arg] if is_missing else []
        return
    flags = [w for w in map(literals.value, words) if isinstance(w, str) and w.startswith("--")]
    yes, _, no = (flags[0] if flags else f"--{arg.arg.replace('_', '-')}").partition("/")
    value = literals.value(default)
    kind, choices = _of_typer(annotation, literals)
    yes = yes.lstrip("-")
    command.options.append(
        Option(
            name=yes,
            line=arg.lineno,
            kind=kind,
            default=None if value is UNKNOWN else value,
            choices=choices,
            required=is_missing,
            off=no.strip().lstrip("-") or (f"no-{yes}" if kind is Kind.FLAG and not flags else ""),
            why_not="it takes several values" if kind is Kind.OTHER else "",
        )
    )


def _of_typer(node: ast.expr | None, literals: Literals) -> tuple[Kind, tuple[Value, ...]]:
    if isinstance(node, ast.BinOp):  # float | None
        node = node.left
    if isinstance(node, ast.Subscript):
        name = called(node.value).rpartition(".")[2]
        if name == "Optional":
            return _of_typer(node.slice, literals)
        if name == "Literal":
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return Kind.TEXT, _values(literals, *inner)
        return Kind.OTHER, ()
    name = called(node).rpartition(".")[2] if node is not None else "str"
    kind = Kind.FLAG if name == "bool" else TYPES.get(name, Kind.TEXT)
    return kind, literals.words_of(name)
