"""Arithmetic on parameters: `derive` and `require` of a sweep file; Python parses, never runs it.

`layers * width <= 4096`: numbers, names, + - * / // %, comparison, parentheses, min and max.
Operators are Python's: `/` gives a float, `//` of two integers an integer. A name with other
characters than letters, digits, `_` and dots is in quotes. Length, depth and size are limited.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpq.domain.trial import Json

Values = Mapping[str, Json]  # of a set, by dotted name
_Compute = Callable[[Values], Any]

MAX_LENGTH = 500  # characters
MAX_DEPTH = 100
LARGEST = 2**53  # of integers: floats represent them exactly up to here
_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max}


class InvalidExpression(ValueError):
    """A text is no expression; the message names the invalid part."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression, and the names that it needs, in the order of the text."""

    text: str
    names: tuple[str, ...] = field(compare=False)
    _compute: _Compute = field(compare=False, repr=False)

    @classmethod
    def number(cls, text: str) -> Expression:
        """Parse an expression whose value is a number.

        Raises:
            InvalidExpression: the text is none, or exceeds a limit.
        """
        tree = _parse(text)
        return cls(text, _names(tree), _number(tree, text))

    @classmethod
    def test(cls, text: str) -> Expression:
        """Parse a comparison, or a chain of them such as `1 < a <= b`.

        Raises:
            InvalidExpression: as `number`.
        """
        tree = _parse(text)
        if not isinstance(tree, ast.Compare):
            raise InvalidExpression("not a comparison; write one per item: layers * width <= 4096")
        signs = [COMPARISONS.get(type(sign)) for sign in tree.ops]
        sides = [_number(side, text) for side in (tree.left, *tree.comparators)]
        if None in signs:
            raise InvalidExpression(f"{text!r} is not supported; compare by < <= > >= == !=")

        def compare(values: Values) -> bool:
            found = [side(values) for side in sides]
            pairs = zip(signs, found, found[1:], strict=False)
            return all(sign(a, b) for sign, a, b in pairs if sign)

        return cls(text, _names(tree), compare)

    def of(self, values: Values) -> Any:
        """Compute the number, or whether the comparison holds.

        Raises:
            KeyError: a parameter is absent.
            ArithmeticError: an operand is no number, or the result has no value within limits.
        """
        return self._compute(values)


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise InvalidExpression(f"{len(text):,} characters; write at most {MAX_LENGTH}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InvalidExpression("not an expression; write one such as backbone / 2") from None
    if depth(tree) > MAX_DEPTH:
        raise InvalidExpression(f"nested deeper than {MAX_DEPTH} levels; simplify it")
    return tree


def depth(tree: ast.AST) -> int:
    """Return how deep a tree is; not recursive, since a text may be as deep as it is long."""
    found, level = 0, [tree]
    while level:
        found += 1
        level = [below for node in level for below in ast.iter_child_nodes(node)]
    return found


def _names(tree: ast.expr) -> tuple[str, ...]:
    """Return the names of an expression; the first part of a dotted name is none."""
    name = _name(tree)
    if name:
        return (name,)
    within = tree.args if isinstance(tree, ast.Call) else ast.iter_child_nodes(tree)
    found = (name for node in within if isinstance(node, ast.expr) for name in _names(node))
    return tuple(dict.fromkeys(found))


def _name(node: ast.expr) -> str:
    """Return a name, dotted or in quotes; "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    above = _name(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{above}.{node.attr}" if above and isinstance(node, ast.Attribute) else ""


def _number(node: ast.expr, text: str) -> _Compute:
    """Return the function that computes an expression."""
    if name := _name(node):
        return lambda values: _checked(values[name], name)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        try:
            number = _checked(node.value)
        except ArithmeticError as error:
            raise InvalidExpression(str(error)) from None
        return lambda _: number
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _number(node.operand, text)
        return lambda values: -operand(values)
    if isinstance(node, ast.BinOp) and (apply := _OPERATORS.get(type(node.op))):
        left, right = _number(node.left, text), _number(node.right, text)
        return lambda values: _checked(apply(left(values), right(values)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        function = _FUNCTIONS.get(node.func.id)
        if function and not node.keywords:
            args = [_number(arg, text) for arg in node.args]
            return lambda values: function(*(arg(values) for arg in args))
    part = ast.get_source_segment(text.strip(), node) or text
    raise InvalidExpression(
        f"{part!r} is not supported; write numbers, names, + - * / // %, min(a, b), max(a, b)"
    )


def _checked(value: Any, name: str = "") -> Any:
    """Return a number within the limits."""
    if type(value) is int and abs(value) <= LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) not in (int, float):
        raise ArithmeticError(f"{name} is no number")
    raise ArithmeticError("a number above 2^53, or infinite")
