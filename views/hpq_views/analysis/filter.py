"""Filter expressions, `--where 'lr > 0.1 and state == queued'`; Python parses, never runs them.

Names are parameters, metrics and fields of every trial. They may contain dots, '/' and '-', as in
val/loss and batch-size, since there is no arithmetic. A missing value is unknown: neither a
comparison with it nor its negation holds. `base in tags` asks for a text in a list.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpq.domain.trial import Json
from hpq.errors import UserError
from hpq.search.expressions import COMPARISONS, depth

Lookup = Callable[[str], Json]  # the value of a name; None if missing
_Truth = bool | None

_SIGNS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    **COMPARISONS,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None, "none": None}
_JOINS: Mapping[type[ast.operator], str] = {ast.Div: "/", ast.Sub: "-"}
_MAX_LENGTH = 2_000  # characters: a longer text may exceed the depth of Python's parser
_MAX_DEPTH = 200
_ASSIGNS = re.compile(r"(?<![=<>!])=(?!=)")
_HELP = "example: 'lr > 0.1 and optimizer in [adam, sgd]'"


@dataclass(slots=True)
class Filter:
    """An expression, its names that had a value so far, and all names that a trial may have."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    seen_names: set[str] = field(default_factory=set)
    known_names: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Filter:
        """Parse an expression.

        Raises:
            UserError: the text is invalid; the message names the invalid part.
        """
        if len(text) > _MAX_LENGTH:
            line = f"--where: longer than {_MAX_LENGTH:,} characters; shorten it"
            raise UserError(line, code="filter-invalid")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            if depth(tree) > _MAX_DEPTH:  # `matches` recurses as deep for every trial
                line = f"--where: nested more than {_MAX_DEPTH} levels; simplify it"
                raise UserError(line, code="filter-invalid")
            names: set[str] = set()
            _check(tree, text, names)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            help_ = "write == to compare" if _ASSIGNS.search(text) else _HELP
            line = f"--where {text!r}: not a complete expression; {help_}"
            raise UserError(line, code="filter-invalid") from None
        return cls(text, tree, frozenset(names))

    def matches(self, lookup: Lookup) -> bool:
        """Return True if the expression holds for these values."""

        def recorded(name: str) -> Json:
            value = lookup(name)
            if value is not None:
                self.seen_names.add(name)
            return value

        return _truth(self.tree, recorded) is True

    def check_names(self, known: Iterable[str] = ()) -> None:
        """Check the names after the last trial, against `known_names` and these.

        Raises:
            UserError: no trial has a value of one name; the message lists known names.
        """
        self.known_names |= dict.fromkeys(known)
        unknown = sorted(self.names - self.seen_names - set(self.known_names))
        if unknown:
            some = ", ".join(list(self.known_names)[:12])
            text = f"--where: no trial has {unknown[0]!r}; known names: {some}"
            raise UserError(text, code="filter-name-unknown")


def _check(node: ast.expr, text: str, names: set[str]) -> None:
    """Check that `_truth` and `_value` support all parts; collect the names that must exist."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check(part, text, names)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check(node.operand, text, names)
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for sign, side in zip(node.ops, sides[1:], strict=True):
            is_many = isinstance(side, ast.List | ast.Tuple | ast.Set)
            is_in = isinstance(sign, ast.In | ast.NotIn)
            if type(sign) not in _SIGNS or is_in != (is_many or _is_list_name(node)):
                raise _unknown_part(node, text)
        named = [name for side in sides if (name := _name(side)) and name not in _WORDS]
        if not named or any(not _is_value(side) for side in sides):
            raise _unknown_part(node, text)
        # Only the first must be a name: in `optimizer == adam`, adam is text, as in `adam in tags`.
        named = named[-1:] if _is_list_name(node) else named
        names.update(named[:1] if _name(node.left) else named)
    elif name := _name(node):
        names.update({name} - set(_WORDS))
    else:
        raise _unknown_part(node, text)


def _unknown_part(node: ast.expr, text: str) -> UserError:
    part = ast.get_source_segment(text.strip(), node) or text
    line = f"--where {text!r}: {part!r} is not supported; {_HELP}"
    return UserError(line, code="filter-invalid")


def _is_list_name(node: ast.Compare) -> bool:
    """Return True for `base in tags`, whose right side is the name of a list."""
    is_in = len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn)
    return is_in and bool(_name(node.comparators[0]))


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(_is_value(item) and not isinstance(item, ast.List) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | int | float | None)
    return bool(_name(node))


def _name(node: ast.expr) -> str:
    """Return the name of an expression, "" if it is none; `params["lambda"]` quotes any name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = _name(node.value)
        return f"{above}.{node.attr}" if above else ""
    if isinstance(node, ast.BinOp) and type(node.op) in _JOINS:
        left, right = _name(node.left), _name(node.right)
        return f"{left}{_JOINS[type(node.op)]}{right}" if left and right else ""
    if isinstance(node, ast.Subscript) and _name(node.value) in ("params", "metrics"):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
        return key if isinstance(key, str) else ""
    return ""


def _truth(node: ast.expr, lookup: Lookup) -> _Truth:
    if isinstance(node, ast.BoolOp):
        parts = [_truth(part, lookup) for part in node.values]
        decides = isinstance(node.op, ast.Or)
        if decides in parts:
            return decides
        return None if None in parts else not decides
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand, lookup)
        return None if inner is None else not inner
    if isinstance(node, ast.Compare):
        return _compare(node, lookup)
    value = _value(node, lookup)
    return None if value is None else bool(value)


def _compare(node: ast.Compare, lookup: Lookup) -> _Truth:
    if _is_list_name(node):
        found = lookup(_name(node.comparators[0]))
        if not isinstance(found, list):
            return None
        text = _name(node.left) or _value(node.left, lookup)
        return (text in found) == isinstance(node.ops[0], ast.In)
    left: Any = _value(node.left, lookup)
    # Sweeps have counts named like states: `state == running` means the text "running".
    named: Lookup = (lambda _: None) if _name(node.left) == "state" else lookup
    for sign, side in zip(node.ops, node.comparators, strict=True):
        right: Any = _value(side, named, or_word=True)
        about_nothing = isinstance(sign, ast.Eq | ast.NotEq) and _is_null(side)
        if (left is None or right is None or left != left) and not about_nothing:
            return None
        try:
            if not _SIGNS[type(sign)](left, right):
                return False
        except TypeError:  # a number and text have no order
            return None
        left = right
    return True


def _is_null(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return _WORDS.get(_name(node).lower(), "") is None


def _value(node: ast.expr, lookup: Lookup, *, or_word: bool = False) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        number: Any = node.operand.value
        if not isinstance(number, int | float):
            return None
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_value(item, lookup, or_word=True) for item in node.elts]
    name = _name(node)
    found = lookup(name)
    if found is None and name.lower() in _WORDS:
        return _WORDS[name.lower()]
    if found is None and name.lower() in ("nan", "inf"):
        return math.nan if name.lower() == "nan" else math.inf
    return name if found is None and or_word else found
