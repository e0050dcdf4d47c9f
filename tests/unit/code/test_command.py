"""The words of a trial's command line."""

from __future__ import annotations

import pytest

from hpq.code.command import argv
from hpq.domain.trial import Json
from hpq.errors import BadParams

PARAMS = {"lr": 0.1, "opt": "a b", "nest": {"x": 1}, "flag": True, "off": False, "none": None}


def words(*command: str, params: dict[str, object] | None = None) -> list[str]:
    made = argv(
        tuple(command),
        "train.py",
        PARAMS if params is None else params,  # type: ignore[arg-type]
        environ={"HOME": "/h"},
        params_file="/p.json",
        interpreter="python3",
    )
    return list(made)


def test_the_default_command_is_wandbs() -> None:
    assert words(params={"lr": 0.1}) == ["/usr/bin/env", "python3", "train.py", "--lr=0.1"]


@pytest.mark.parametrize(
    ("macro", "expected"),
    [
        ("${args_no_equals}", ["--a", "1", "--b", "x y"]),
        ("${args_no_hyphens}", ["a=1", "b=x y"]),
        ("${args_json}", ['{"a": 1, "b": "x y"}']),
        ("${args_json_file}", ["/p.json"]),
        ("${args_append_hydra}", ["+a=1", '+b="x y"']),
        ("${args_override_hydra}", ["++a=1", '++b="x y"']),
        ("${envvar:HOME}/run", ["/h/run"]),
        ("${envvar:NOWHERE}", ["NOWHERE"]),
        ("--size=${a}", ["--size=1"]),
        ("--size=${unknown}", ["--size=${unknown}"]),
        ("$(id); rm -rf /", ["$(id); rm -rf /"]),
    ],
)
def test_a_macro_becomes_words_and_never_a_shell(macro: str, expected: list[str]) -> None:
    """B6: `$(id); rm -rf /`, spaces and quotes in a command's parameters."""
    assert words(macro, params={"a": 1, "b": "x y"}) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("adam", "adam"), ("resnet/v2.5", "resnet/v2.5"), (None, "null"), (True, "True"),
        (1e-05, "1e-05"), ("1e-4", '"1e-4"'), ("Null", '"Null"'), ("", '""'), ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'), ("a\\b", r'"a\b"'), ("a\\", r'"a\\"'),
        ("é", '"é"'), ("${x}", '"${x}"'), ("${x", r'"\${x"'),
        (["a", "1", None, {"k v": "é"}], '[a,"1",null,{k\\ v:"é"}]'),
    ],
)  # fmt: skip
def test_hydra_gets_quotes_around_text_that_it_reads_otherwise(value: Json, expected: str) -> None:
    assert words("${args_override_hydra}", params={"s": value}) == [f"++s={expected}"]


def test_booleans_become_flags_where_the_macro_says_so() -> None:
    assert words("${args_no_boolean_flags}", params={"x": True, "y": False, "z": 2}) == [
        "--x",
        "--z=2",
    ]


def test_values_are_written_as_python_prints_them() -> None:
    assert words("${args}") == [
        "--lr=0.1", "--opt=a b", "--nest={'x': 1}", "--flag=True", "--off=False", "--none=None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "word",
    ["python t.py ${a}", "t.py '${a}'", "x=${a};", "$(t ${a})", "a|${a}", "{${a}}", "${a}\t"],
)
def test_a_value_inside_a_line_that_a_shell_may_read_is_one_plain_word(word: str) -> None:
    """`bash -c "… ${a}"` ran `0.1; id`; no quoting would hold inside quotes."""
    for plain in (0.1, -3, "a/b_c@1%:=+,.", True, None):
        assert words(word, params={"a": plain}) == [word.replace("${a}", str(plain))]
    for odd in ("0.1; id", "x y", "$(id)", "`id`", "'", '"', "a\nb", "", "*", "~", "ü", [1, 2]):
        with pytest.raises(BadParams, match="bash -c"):
            words(word, params={"a": odd})


def test_a_value_inside_a_word_that_is_no_line_may_be_anything() -> None:
    assert words("--size=${a}", params={"a": "x; y"}) == ["--size=x; y"]
    assert words("${a}", params={"a": "$(id)"}) == ["$(id)"]
