"""Expressions of derive and require: what Python computes, within limits, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpq.search.expressions import Expression, InvalidExpression

VALUES = {"a": 3, "b": 0.5, "n.c": 7, "batch-size": 64, "text": "7", "flag": True, "huge": 2**60}
NAMES = {"a": 3, "b": 0.5}  # as Python knows them

_OPERANDS = st.sampled_from(["a", "b", "0", "2", "9", "1.5", "1e-3"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    plain = st.builds("{} {} {}".format, inner, signs, inner)
    calls = st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner)
    return plain | calls | inner.map("({})".format) | inner.map("-{}".format)


@given(st.recursive(_OPERANDS, _combined, max_leaves=7))
def test_an_expression_has_the_value_and_the_type_that_python_gives(text: str) -> None:
    found = Expression.number(text)
    try:
        expected = eval(text, {}, NAMES)  # of seven small numbers at most
    except ZeroDivisionError:
        with pytest.raises(ArithmeticError):
            found.of(VALUES)
        return
    assert (found.of(VALUES), type(found.of(VALUES))) == (expected, type(expected))


@given(_OPERANDS, _OPERANDS, _OPERANDS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
def test_a_comparison_holds_if_python_says_so(a: str, b: str, c: str, sign: str) -> None:
    for text in (f"{a} {sign} {b}", f"{a} {sign} {b} <= {c}"):
        assert Expression.test(text).of(VALUES) is eval(text, {}, NAMES)


def test_names_are_bare_dotted_or_in_quotes() -> None:
    found = Expression.number("""a * n.c + "batch-size" // 'a' - max(a, b)""")
    assert found.names == ("a", "n.c", "batch-size", "b")
    assert found.of(VALUES) == 3 * 7 + 64 // 3 - 3


NOT_EXPRESSIONS = [
    "", "a +", "a b", "9**9**9", "__import__('os')", "a.b()", "min(a)", "min(a, *b)",
    "min(a, key=b)", "abs(a, b)", "a if b else a", "[a]", "f'{a}'", "b'a'", "True", "None", "1j",
    "1e999", "9" * 300,
    "not a", "~a", "+a", "a @ b", "a << 2", "a | b", "(x := 1)", "a; b", "lambda: a", "a < b",
    "a[0]", "a\nb", "\0", "\ud800", "a" * 501, "-" * 300 + "a", "+".join(["a"] * 120),
    "(" * 240 + "a" + ")" * 240,
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_EXPRESSIONS)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression.number(text)


@pytest.mark.parametrize(
    "text", ["a", "a + b", "a is b", "a in b", "a < b and b < a", "(a < b) + 1 < 2"]
)
def test_only_comparisons_are_tests(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression.test(text)


@pytest.mark.parametrize(
    "text",
    ["a / 0", "a // 0", "a % 0.0", "a * 9007199254740992", "b * 1e308 * 1e308", "text + 1",
     "flag + 1", "huge // 2", "max(a, text)"],
)  # fmt: skip
def test_an_expression_without_a_value_is_an_arithmetic_error(text: str) -> None:
    with pytest.raises(ArithmeticError):
        Expression.number(text).of(VALUES)


def test_an_absent_parameter_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Expression.number("a + absent").of(VALUES)
