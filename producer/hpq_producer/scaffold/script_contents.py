"""A parsed script: its literal values, its options, and the metrics that it reports.

A script is parsed once, by `Source.read`, and never run: only literals and constants have a value.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from hpq.code.reach import parse_python
from hpq.domain.trial import Json
from hpq.errors import UserError
from hpq.shell import shell_hint

UNKNOWN = object()  # not None, which may be a default
_MOST = 1e18
_MAX_BYTES = 4 * 2**20

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class Literals:
    """The constants of a module by name."""

    def __init__(self, tree: ast.Module) -> None:
        self._named: dict[str, ast.expr] = {}
        self._enums: dict[str, dict[str, Any]] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._named[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if node.value is not None:
                    self._named[node.target.id] = node.value
            elif isinstance(node, ast.ClassDef) and any(
                called(base).endswith("Enum") for base in node.bases
            ):
                self._enums[node.name] = {
                    member.targets[0].id: self.value(member.value)
                    for member in node.body
                    if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name)
                }

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """Return the value of an expression without running it, or UNKNOWN."""
        if node is None or depth > 20:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str | int | float | None) else UNKNOWN
        if isinstance(node, ast.Name) and node.id in self._named:
            return self.value(self._named[node.id], depth + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._arithmetic(lambda _, b: -b, 0, self.value(node.operand, depth + 1))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            return self._arithmetic(_OPERATORS[type(node.op)], left, right)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, depth + 1) for item in node.elts]
            return UNKNOWN if any(item is UNKNOWN for item in items) else items
        if isinstance(node, ast.Attribute):  # a member of an enum: Opt.adam, Opt.adam.value
            return self._member(node)
        return UNKNOWN

    @staticmethod
    def _arithmetic(what: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (a, b))
        if not numbers or max(abs(a), abs(b)) > _MOST:
            return UNKNOWN
        if what is operator.pow and abs(b) > 64:
            return UNKNOWN
        try:
            return what(a, b)
        except (ArithmeticError, ValueError):
            return UNKNOWN

    def _member(self, node: ast.Attribute) -> Any:
        if node.attr == "value" and isinstance(node.value, ast.Attribute):
            node = node.value
        above = node.value.id if isinstance(node.value, ast.Name) else ""
        return self._enums.get(above, {}).get(node.attr, UNKNOWN)

    def entries(self, node: ast.expr | None) -> dict[str, ast.expr]:
        """Return names with expressions of {…}, dict(…) or a constant's name."""
        if isinstance(node, ast.Name) and node.id in self._named:
            node = self._named[node.id]
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {k.value: v for k, v in pairs
                    if isinstance(k, ast.Constant) and isinstance(k.value, str)}  # fmt: skip
        if isinstance(node, ast.Call) and called(node) == "dict":
            return keywords(node)
        return {}


class Source:
    """A script, parsed; each question about it is asked of this tree."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.literals = Literals(tree)
        self._tree = tree

    @classmethod
    def read(cls, path: Path) -> Source:
        """Parse a script.

        Raises:
            UserError: the file is missing, or is not Python.
        """
        if path.suffix in (".yaml", ".yml"):
            line = shell_hint(["hpq", "plan", str(path)])
            raise UserError(f"{path}: no script; as a sweep file: {line}", code="script-invalid")
        if path.suffix == ".ipynb":
            text = f"{path} is a notebook; run `jupyter nbconvert --to script {path}`, then"
            raise UserError(f"{text} `hpq init` on the script", code="script-invalid")
        try:
            return cls(path, parse_python(path.read_bytes()[:_MAX_BYTES], str(path)))
        except FileNotFoundError:
            text = f"{path}: no such file; give the path of a training script"
            raise UserError(text, code="file-not-found") from None
        except IsADirectoryError:
            text = f"{path} is a directory; give the path of a training script"
            raise UserError(text, code="file-not-found") from None
        except OSError as error:
            text = f"{path}: cannot be read: {error.strerror}"
            raise UserError(text, code="file-unreadable") from None
        except SyntaxError as error:
            where = f"{path}:{error.lineno or 1}:{error.offset or 1}"
            text = f"{where}: not Python: {error.msg}; correct the line"
            raise UserError(text, code="script-invalid") from None

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All parts of the tree, outer ones first."""
        return list(ast.walk(self._tree))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the order of the text."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        return sorted(calls, key=lambda node: (node.lineno, node.col_offset))

    @cached_property
    def attributes(self) -> set[str]:
        """The names of all attributes."""
        return {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}


def called(node: ast.AST) -> str:
    """Return the dotted name of a call or a name, e.g. `wandb.log`; "" if it has none."""
    if isinstance(node, ast.Call):
        return called(node.func)
    if isinstance(node, ast.Attribute):
        above = called(node.value)
        return f"{above}.{node.attr}" if above else ""
    return node.id if isinstance(node, ast.Name) else ""


def keywords(node: ast.Call) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call by name."""
    return {k.arg: k.value for k in node.keywords if k.arg}


Value = str | int | float | bool


class Kind(StrEnum):
    """The kind of an option's value."""

    FLOAT = "float"
    INT = "int"
    TEXT = "text"
    FLAG = "flag"  # present or absent: --amp
    TRUTH = "truth"  # true or false, in wandb.config
    WORDS_OF_TRUTH = "words of truth"  # --amp=true, parsed by a function of the script
    OTHER = "other"  # several values, or an unknown type


# How scripts name the types of their options.
TYPES = {"float": Kind.FLOAT, "int": Kind.INT, "str": Kind.TEXT, "Path": Kind.TEXT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: `--name=value`, or `--name` alone for a flag.

    `off` is the negative flag, if any (--no-amp). `why_not` explains why a sweep cannot set the
    option. A default of wandb.config is an option, too, whose value comes through wandb.config.
    """

    name: str
    kind: Kind = Kind.TEXT
    default: Json = None
    choices: tuple[Value, ...] = ()
    required: bool = False
    off: str = ""
    why_not: str = ""
    nested: tuple[Option, ...] = ()  # of a default that is a mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A metric that a script reports: its name, line, and call."""

    name: str
    line: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The facts of a script that a first sweep file needs.

    `arguments` are the names of positional arguments. `sweep` is the mapping that the script passes
    to wandb.sweep. `takes_any` is false if the script's parser rejects unknown options. `unread`
    is a metric that is printed without '='.
    """

    options: tuple[Option, ...]
    reported: tuple[Reported, ...]
    unread: Reported | None = None
    arguments: tuple[str, ...] = ()
    sweep: Mapping[str, Json] | None = None
    takes_any: bool = True


def spelled(name: str) -> str:
    """Normalize a name: batch-size and batch_size are one option."""
    return name.replace("-", "_").lower()
