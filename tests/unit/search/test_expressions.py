"""Expressions: what Python computes, within limits, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpq.domain.expression import Expression, InvalidExpression

VALUES: dict[str, Any] = {
    "a": 3,
    "b": 0.5,
    "n.c": 7,
    "batch-size": 64,
    "text": "7",
    "flag": True,
    "huge": 2**60,
}
NAMES = {"a": 3, "b": 0.5}  # as Python knows them

_OPERANDS = st.sampled_from(["a", "b", "0", "2", "9", "1.5", "1e-3"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    plain = st.builds("{} {} {}".format, inner, signs, inner)
    calls = st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner)
    return plain | calls | inner.map("({})".format) | inner.map("-{}".format)


@given(st.recursive(_OPERANDS, _combined, max_leaves=7))
def test_an_expression_has_the_value_and_the_type_that_python_gives(text: str) -> None:
    assume("a" in text.replace("max", "") or "b" in text)  # an expression names something
    found = Expression.number(text).of(VALUES.get)
    try:
        expected = eval(text, {}, NAMES)  # of seven small numbers at most
    except ZeroDivisionError:
        expected = None
    assert (found, type(found)) == (expected, type(expected))


@given(_OPERANDS, _OPERANDS, _OPERANDS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
def test_a_comparison_holds_if_python_says_so(a: str, b: str, c: str, sign: str) -> None:
    for text in (f"{a} {sign} {b}", f"{a} {sign} {b} <= {c}"):
        assume("a" in text or "b" in text)
        assert Expression.test(text).of(VALUES.get) is eval(text, {}, NAMES)


def test_names_are_bare_dotted_or_in_quotes() -> None:
    found = Expression.number("""a * n.c + "batch-size" // 'a' - max(a, b)""")
    assert [name.text for name in found.names] == ["a", "n.c", "batch-size", "b"]
    assert found.of(VALUES.get) == 3 * 7 + 64 // 3 - 3


@pytest.mark.parametrize("known", [(), VALUES])
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("batch-size > 2", ["batch-size"]),
        ("a-b > 2", ["a", "b"]),
        ("64 == batch-size != a/b-n.c", ["batch-size", "a", "b", "n.c"]),
        ("not batch-size < 'n.c' / 2", ["batch-size", "n.c"]),
    ],
)
def test_a_side_with_minus_or_slash_is_a_name_if_there_is_one(
    text: str, names: list[str], known: Collection[str]
) -> None:
    found = Expression.test(text, known)
    assert found.of(VALUES.get) is True
    assert [one.text for name in found.names for one in name.among(VALUES)] == names


def test_a_computation_with_minus_or_slash_has_no_such_name() -> None:
    assert Expression.number("a/b").of({"a": 3, "b": 2, "a/b": 9}.get) == 1.5


def test_a_known_name_is_no_text_if_a_trial_lacks_it() -> None:
    for text in ("a == absent", "a in [absent]", "a < absent", "not a == 'absent'"):
        assert Expression.test(text, ["absent"]).of(VALUES.get) is None
    assert Expression.test("a == absent").of(VALUES.get) is False


NOT_EXPRESSIONS = [
    "", "a +", "a b", "9**9**9", "__import__('os')", "a.b()", "min(a)", "min(a, *b)",
    "min(a, key=b)", "abs(a, b)", "a if b else a", "[a]", "f'{a}'", "b'a'", "True", "None", "1j",
    "1e999", "9" * 300,
    "not a", "~a", "a @ b", "a << 2", "a | b", "(x := 1)", "a; b", "lambda: a", "a < b",
    "a[0]", "a\nb", "\0", "\ud800", "a" * 2001, "-" * 300 + "a", "+".join(["a"] * 120),
    "(" * 240 + "a" + ")" * 240,
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_EXPRESSIONS)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression.number(text)


@pytest.mark.parametrize(
    "text", ["1 < 2", "a + b", "a is b", "a in b in n.c", "a in 3", "(a < b) + 1 < 2", "true"]
)
def test_only_comparisons_and_names_are_tests(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression.test(text)


@pytest.mark.parametrize(
    "text",
    ["a / 0", "a // 0", "a % 0.0", "a * 9007199254740992", "b * 1e308 * 1e308", "text + 1",
     "flag + 1", "huge // 2", "max(a, text)"],
)  # fmt: skip
def test_what_cannot_be_computed_is_missing_and_a_comparison_with_it_unknown(text: str) -> None:
    assert Expression.number(text).of(VALUES.get) is None
    for test in (f"{text} > 0", f"not ({text} > 0)", f"{text} != 0", f"flag and {text} < 0"):
        assert Expression.test(test).of(VALUES.get) is None
    assert Expression.test(f"flag or {text} < 0").of(VALUES.get) is True


def test_an_absent_parameter_is_missing() -> None:
    assert Expression.number("a + absent").of(VALUES.get) is None


@pytest.mark.parametrize("text", ["max(a, 1)", "max(1, a)", "min(1, a)", "a + 1"])
def test_nan_is_missing_wherever_it_stands(text: str) -> None:
    assert Expression.number(text).of({"a": float("nan")}.get) is None
