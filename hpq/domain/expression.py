"""One language of expressions: `--where`, and `derive` and `require` of a sweep file.

`lr * width > 0.1 and optimizer in [adam, sgd]`: Python parses the text, and never runs it. The
caller passes what names mean: parameters, and for `--where` metrics and fields, too. Missing are a
value that a trial lacks, null, NaN, and a number that cannot be computed. A comparison with one is
unknown, and so is its negation. docs/reference/expressions.md describes the language.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

Lookup = Callable[[str], Any]  # the value of a name; None if missing
_Compute = Callable[[Lookup], Any]
_Apply = Callable[..., Any]

MAX_LENGTH = 2_000  # characters: a longer text may exceed the depth of Python's parser
MAX_DEPTH = 100  # a computation recurses as deep
LARGEST = 2**53  # of computed integers: floats represent them exactly up to here
_ARITHMETIC: Mapping[type[ast.operator], _Apply] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: Mapping[type[ast.unaryop], _Apply] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_FUNCTIONS: Mapping[str, _Apply] = {"min": min, "max": max}
_COMPARISONS: Mapping[type[ast.cmpop], _Apply] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_NUMBERS = frozenset({int, float})  # True is none
_EQUALITY = frozenset({operator.eq, operator.ne})
_CONSTANTS: Mapping[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "nan": None,
    "inf": math.inf,
}
_JOINS: Mapping[type[ast.operator], str] = {ast.Div: "/", ast.Sub: "-"}
_ASSIGNS = re.compile(r"(?<![=<>!])=(?!=)")


class InvalidExpression(ValueError):
    """A text is no expression; the message names the invalid part."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name in an expression, and how the expression uses it.

    If nothing has the name `a-b` or `a/b`, it is computed from its `parts`. A name that
    `may_be_text` is text if nothing has it: adam in `optimizer == adam`.
    """

    text: str
    parts: tuple[Name, ...] = ()
    is_number: bool = False
    may_be_text: bool = False

    def among(self, known: Collection[str]) -> tuple[Name, ...]:
        """Return the names that are meant if these are known: itself, or its parts."""
        is_whole = self.text in known or not all(part.text in known for part in self.parts)
        return self.parts if self.parts and not is_whole else (self,)


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression, and its names in the order of the text: those of `known`, if any."""

    text: str
    names: tuple[Name, ...] = field(compare=False)
    _compute: _Compute = field(compare=False, repr=False)
    equals: tuple[tuple[str, str], ...] = field(default=(), compare=False)  # state == held

    @classmethod
    def number(cls, text: str, known: Collection[str] = ()) -> Expression:
        """Parse an expression whose value is a number; `known` are names, and no text.

        Raises:
            InvalidExpression: the text is none, names nothing, or exceeds a limit.
        """
        parser = _Parser(text, known, "width // heads")
        compute = partial(_computed, operator.pos, [parser.number(parser.tree)])
        return cls(text, parser.checked_names(), compute)

    @classmethod
    def test(cls, text: str, known: Collection[str] = ()) -> Expression:
        """Parse comparisons and names, joined by `and`, `or` and `not`; `known` as in `number`.

        Raises:
            InvalidExpression: as `number`.
        """
        parser = _Parser(text, known, "lr * width > 0.1 and optimizer in [adam, sgd]")
        compute = parser.test(parser.tree)
        return cls(text, parser.checked_names(), compute, tuple(parser.equals))

    def of(self, lookup: Lookup) -> Any:
        """Return the number, or whether the test holds; None if that is missing or unknown."""
        return self._compute(lookup)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A side of a comparison; `word` is its text, if it may be text."""

    of: _Compute
    word: str = ""
    is_quoted: bool = False
    is_null: bool = False


class _Parser:
    """Builds the function that computes a text; collects its names."""

    def __init__(self, text: str, known: Collection[str], example: str) -> None:
        self.names: dict[Name, None] = {}
        self.equals: list[tuple[str, str]] = []  # names, and the words that they are compared with
        self._text, self._known, self._help = text.strip(), known, f"example: {example}"
        if len(text) > MAX_LENGTH:
            raise InvalidExpression(f"{len(text):,} characters; write at most {MAX_LENGTH:,}")
        try:
            self.tree = ast.parse(self._text, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            help_ = "write == to compare" if _ASSIGNS.search(text) else self._help
            raise InvalidExpression(f"not a complete expression; {help_}") from None
        if _depth(self.tree) > MAX_DEPTH:
            raise InvalidExpression(f"nested deeper than {MAX_DEPTH} levels; simplify it")

    def checked_names(self) -> tuple[Name, ...]:
        """Return the names.

        Raises:
            InvalidExpression: there is none.
        """
        if not self.names:
            raise InvalidExpression(f"names nothing; {self._help}")
        return tuple(one for name in self.names for one in name.among(self._known))

    def test(self, node: ast.expr) -> _Compute:
        """Return the function that computes True, False, or None if that is unknown."""
        if isinstance(node, ast.BoolOp):
            parts = [self.test(part) for part in node.values]
            return partial(_joined, isinstance(node.op, ast.Or), parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return partial(_negated, self.test(node.operand))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if not _named(node):
            raise self._unsupported(node)
        return partial(_true, self._operand(node).of)

    def number(self, node: ast.expr) -> _Compute:
        """Return the function that computes a number, or None if it is missing."""
        if name := _quoted(node) or _dotted(node):
            self.names[Name(name, is_number=True)] = None
            return partial(_looked_up, name, partial(_constant, None))
        if isinstance(node, ast.Constant) and type(node.value) in _NUMBERS:
            return partial(_constant, node.value)
        if isinstance(node, ast.UnaryOp) and (sign := _SIGNS.get(type(node.op))):
            return partial(_computed, sign, [self.number(node.operand)])
        if isinstance(node, ast.BinOp) and (apply := _ARITHMETIC.get(type(node.op))):
            return partial(_computed, apply, [self.number(node.left), self.number(node.right)])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            function = _FUNCTIONS.get(node.func.id)
            if function and not node.keywords:
                return partial(_computed, function, [self.number(arg) for arg in node.args])
        raise self._unsupported(node)

    def _comparison(self, node: ast.Compare) -> _Compute:
        if isinstance(node.ops[0], ast.In | ast.NotIn) and len(node.ops) == 1:
            member = self._member(node.left, node.comparators[0])
            return member if isinstance(node.ops[0], ast.In) else partial(_negated, member)
        sides = [node.left, *node.comparators]
        pairs = []
        for sign, left, right in zip(node.ops, sides, sides[1:], strict=False):
            compare = _COMPARISONS.get(type(sign))
            if compare is None:
                raise self._unsupported(node)
            is_number = compare not in _EQUALITY
            one = self._operand(left, is_number=is_number)
            if not is_number:
                self.equals.append((_named(left), _named(right)))
            # In `1 == adam`, adam must be a name.
            other = self._operand(right, is_number=is_number, may_be_text=bool(_named(left)))
            pairs.append(partial(_compared, compare, one, other))
        return partial(_joined, False, pairs) if len(pairs) > 1 else pairs[0]

    def _member(self, left: ast.expr, right: ast.expr) -> _Compute:
        """Return the test of `optimizer in [adam, sgd]`, or of `base in tags`."""
        if isinstance(right, ast.List | ast.Tuple | ast.Set):
            items = [self._operand(item, may_be_text=True) for item in right.elts]
            self.equals += [(_named(left), _named(item)) for item in right.elts]
            return partial(_listed, self._operand(left), items)
        if not _named(right):
            raise self._unsupported(right)
        one, many = self._operand(left, may_be_text=True), self._operand(right)
        return partial(_contained, one, many)

    def _operand(
        self, node: ast.expr, *, is_number: bool = False, may_be_text: bool = False
    ) -> _Operand:
        if text := _named(node):
            return self._name(node, text, is_number, may_be_text and text not in self._known)
        if isinstance(node, ast.Name):
            value: Any = _CONSTANTS[node.id.lower()]
        elif is_number and _is_below_all(node):
            value = -math.inf
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bool | None):
            value = node.value
        else:
            return _Operand(self.number(node))
        return _Operand(partial(_constant, value), is_null=value is None)

    def _name(self, node: ast.expr, text: str, is_number: bool, may_be_text: bool) -> _Operand:
        """Return the operand of a name; if nothing has the name `a-b`, it is computed."""
        otherwise: _Compute = partial(_constant, None)
        parts: tuple[Name, ...] = ()
        if isinstance(node, ast.BinOp) and text not in self._known:
            names, self.names = self.names, {}
            otherwise = self.number(node)
            parts, self.names = tuple(self.names), names
        self.names[Name(text, parts, is_number, may_be_text)] = None
        find = partial(_looked_up, text, otherwise)
        return _Operand(find, word=text if may_be_text else "", is_quoted=bool(_quoted(node)))

    def _unsupported(self, node: ast.expr) -> InvalidExpression:
        part = ast.get_source_segment(self._text, node) or self._text
        return InvalidExpression(f"{part!r} is not supported; {self._help}")


def _named(node: ast.expr) -> str:
    """Return a name, or names joined by `-` and `/`: batch-size, val/loss; "" if there is none."""
    if isinstance(node, ast.BinOp) and type(node.op) in _JOINS:
        left, right = _named(node.left), _named(node.right)
        is_bare = left and right and not (_quoted(node.left) or _quoted(node.right))
        return f"{left}{_JOINS[type(node.op)]}{right}" if is_bare else ""
    return _quoted(node) or _dotted(node)


def _quoted(node: ast.expr) -> str:
    """Return a name in quotes, also of `params["lambda"]`; "" if there is none."""
    if isinstance(node, ast.Subscript) and _dotted(node.value) in ("params", "metrics"):
        node = node.slice
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _dotted(node: ast.expr) -> str:
    """Return a name such as `opt.lr`; "" if there is none."""
    if isinstance(node, ast.Name):
        return "" if node.id.lower() in _CONSTANTS else node.id
    above = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{above}.{node.attr}" if above and isinstance(node, ast.Attribute) else ""


def _is_below_all(node: ast.expr) -> bool:
    """Return True for `-inf`."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub):
        return False
    return isinstance(node.operand, ast.Name) and node.operand.id.lower() == "inf"


def quote_hint(text: str, known: Iterable[str]) -> str:
    """Return how to write a known name that is in a text and needs quotes; "" without one."""
    for name in known:
        parts = name.split(".")
        if name in text and not all(p.isidentifier() and not keyword.iskeyword(p) for p in parts):
            return f"; write {name!r} in quotes: \"'{name}' * 2\""
    return ""


def _depth(tree: ast.AST) -> int:
    """Return how deep a tree is; not recursive, since a text may be as deep as it is long."""
    found, level = 0, [tree]
    while level:
        found += 1
        level = [below for node in level for below in ast.iter_child_nodes(node)]
    return found


# What a parsed text is made of: partial() binds all arguments but the last one.


def _constant(value: Any, _: Lookup) -> Any:
    return value


def _looked_up(name: str, otherwise: _Compute, values: Lookup) -> Any:
    found = values(name)
    return otherwise(values) if found is None else found


def _computed(apply: _Apply, parts: Sequence[_Compute], values: Lookup) -> Any:
    """Return a number within the limits, or None if there is none."""
    found = [part(values) for part in parts]
    if not _NUMBERS.issuperset(map(type, found)) or any(map(_is_missing, found)):
        return None
    try:
        value = apply(*found)
    except ArithmeticError:
        return None
    is_within = abs(value) <= LARGEST if type(value) is int else math.isfinite(value)
    return value if is_within else None


def _true(value: _Compute, values: Lookup) -> bool | None:
    found = value(values)
    return None if _is_missing(found) else bool(found)


def _negated(test: _Compute, values: Lookup) -> bool | None:
    found = test(values)
    return None if found is None else not found


def _joined(deciding: bool, tests: Sequence[_Compute], values: Lookup) -> bool | None:
    """Return `deciding` if one test is: True for `or`, False for `and`.

    All are computed, since a Filter notes which names have a value.
    """
    return _of_all(deciding, [test(values) for test in tests])


def _compared(compare: _Apply, one: _Operand, other: _Operand, values: Lookup) -> bool | None:
    return _holds(compare, one, one.of(values), other, other.of(values))


def _listed(one: _Operand, items: Sequence[_Operand], values: Lookup) -> bool | None:
    """Return whether a value equals one of several."""
    left = one.of(values)
    equal = [_holds(operator.eq, one, left, item, item.of(values)) for item in items]
    return _of_all(True, equal)


def _contained(one: _Operand, many: _Operand, values: Lookup) -> bool | None:
    """Return whether a list has a text."""
    found = many.of(values)
    return (one.word or one.of(values)) in found if isinstance(found, list) else None


def _holds(compare: _Apply, one: _Operand, left: Any, other: _Operand, right: Any) -> bool | None:
    """Compare two values.

    A name on the right that nothing has is text. Beside a text, so is a name in quotes, and for ==
    and != one whose value is no text.
    """
    is_equality = compare in _EQUALITY
    if is_equality and (one.is_null or other.is_null):
        return _is_missing(right if one.is_null else left) == (compare is operator.eq)
    if other.word:
        is_text = other.is_quoted or (is_equality and not isinstance(right, str))
        if right is None or (is_text and isinstance(left, str)):
            right = other.word
    if _is_missing(left) or _is_missing(right):
        return None
    try:
        return bool(compare(left, right))
    except TypeError:  # a number and a text have no order
        return None


def _of_all(deciding: bool, found: Collection[bool | None]) -> bool | None:
    if deciding in found:
        return deciding
    return None if None in found else not deciding


def _is_missing(value: Any) -> bool:
    return value is None or value != value
