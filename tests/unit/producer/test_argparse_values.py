"""What a script's argparse makes of a sweep's values, told before a trial runs."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from pathlib import Path

import pytest

from hpq.code.command import arguments
from hpq.domain.trial import Json
from hpq_producer.scaffold.script import misread_values, rejections
from hpq_producer.scaffold.script_contents import Source
from tests.support.desk import run_here
from tests.support.ids import ids

PARSER = """
import argparse
CHOICES = ["sgd", "adam"]
p = argparse.ArgumentParser()
p.add_argument("--x", {0})
args = p.parse_args()
"""
OPTIONS = [
    "type=int", "type=float", "type=bool", "type=bool, default=True", "default=1", "default=True",
    "type=str", "default='a'", "action='store_true'", "action='store_true', default=True",
    "action='store_false'", "action='count'", "action=argparse.BooleanOptionalAction",
    "action=argparse.BooleanOptionalAction, default=True", "choices=CHOICES",
    "type=int, choices=[1, 2]", "choices=[1, 2]", "type=int, choices=range(1, 4)",
    "nargs='+', type=int", "nargs='*'", "nargs='?'", "nargs=2, type=float", "nargs=1, type=int",
    "action='append', type=int", "action='extend', nargs='+'",
]  # fmt: skip
VALUES: list[Json] = [
    True, False, None, 1, 0, -1, 10.0, 1.5, -5e-05, -0.5, 1e16, "sgd", "adamw", "", "-", "-x",
    "-1", "a b", "-a b", "1,2", "true", "false", "1e1", [1, 2], [3], [], {"a": 1}, "é", "1_0",
]  # fmt: skip
MACROS = ["${args}", "${args_no_equals}", "${args_no_boolean_flags}"]


def is_refused_by_the_script(script: Path, macro: str, value: Json) -> bool:
    """Run a script with the words of a trial."""
    words, before = arguments((macro,), {"x": value}), sys.argv
    sys.argv = [str(script), *words]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__"})
    except SystemExit:
        return True
    finally:
        sys.argv = before
    return False


@pytest.mark.parametrize("macro", MACROS)
def test_a_value_is_refused_exactly_if_the_script_would_end(tmp_path: Path, macro: str) -> None:
    script = tmp_path / "train.py"
    for option in OPTIONS:
        script.write_text(PARSER.format(option))
        flags_alone = macro == "${args_no_boolean_flags}"
        is_flag = bool(list(rejections(Source.read(script), ["x"], flags_alone=flags_alone)))
        for value in VALUES:
            found, is_sure = misread_values(Source.read(script), {"x": [value]}, macro)
            is_rejected = is_flag or any("becomes" not in one.why for one in found)
            assert is_sure and len(found) <= 1
            assert is_rejected == is_refused_by_the_script(script, macro, value), (option, value)
            assert all(one.is_wrong for one in found if "becomes" not in one.why)


REFUSED, WARNED, READ = True, False, None
ARGS, NO_EQUALS, FLAGS = MACROS


@pytest.mark.parametrize(
    ("option", "value", "macro", "expected"),
    [
        ("type=bool", False, ARGS, REFUSED), ("type=bool", True, ARGS, READ),
        ("type=bool", None, ARGS, REFUSED), ("type=bool", 0, ARGS, REFUSED),
        ("type=bool", "false", NO_EQUALS, REFUSED), ("type=bool", "", ARGS, READ),
        ("type=bool, default=True", False, FLAGS, REFUSED), ("type=bool", False, FLAGS, READ),
        ("action='store_true'", False, FLAGS, READ), ("action='store_true'", 1, FLAGS, REFUSED),
        ("action='store_true', default=True", False, FLAGS, REFUSED),
        ("action='store_false'", True, FLAGS, READ), ("action='store_false'", False, FLAGS, READ),
        ("action=argparse.BooleanOptionalAction, default=True", False, FLAGS, REFUSED),
        ("action=argparse.BooleanOptionalAction", False, FLAGS, READ),
        ("default=True", False, ARGS, WARNED), ("default=True", "a", ARGS, READ),
        ("default='a'", None, ARGS, WARNED), ("type=int", None, ARGS, REFUSED),
        ("default=0.1", 0.5, ARGS, WARNED), ("type=float, default=0.1", 1, ARGS, READ),
        ("nargs='+'", [1, 2], ARGS, WARNED), ("nargs='+', type=int", [1, 2], ARGS, REFUSED),
        ("type=int", 1e1, ARGS, REFUSED), ("type=float", -5e-05, NO_EQUALS, REFUSED),
        ("type=float", -5e-05, ARGS, READ), ("type=float", -0.5, NO_EQUALS, READ),
        ("choices=CHOICES", "adamw", ARGS, REFUSED), ("choices=CHOICES", "sgd", ARGS, READ),
        ("type=json.loads", [1, 2], ARGS, READ), ("type=str2bool", False, ARGS, READ),
        ("type=str2bool, choices=[True, False]", False, ARGS, READ),
        ("choices=list(MODELS)", "adamw", ARGS, READ), ("**more", 1.5, ARGS, READ),
        ("type=int, action=MyAction", 1.5, ARGS, READ), ("type=int, nargs=N", [1], ARGS, READ),
    ],
)  # fmt: skip
def test_a_value_that_argparse_reads_otherwise_is_named(
    tmp_path: Path, option: str, value: Json, macro: str, expected: bool | None
) -> None:
    (tmp_path / "train.py").write_text(PARSER.format(option))
    found, _ = misread_values(Source.read(tmp_path / "train.py"), {"x": [value]}, macro)
    assert [one.is_wrong for one in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("more", "is_sure"),
    [
        ("p.parse_known_args()\n", False),
        ("q = argparse.ArgumentParser(parents=[p])\n", False),
        ("add_more(p)\n", False),
        ("CHOICES.append('adamw')\n", None),
        ("CHOICES += ['adamw']\n", None),
        ("def f():\n    CHOICES = []\n", None),
        ("p.add_argument('--x', type=int)\n", None),
    ],
)
def test_a_value_is_refused_only_if_no_other_line_may_change_the_option(
    tmp_path: Path, more: str, is_sure: bool | None
) -> None:
    (tmp_path / "train.py").write_text(PARSER.format("choices=CHOICES") + more)
    found, sure = misread_values(Source.read(tmp_path / "train.py"), {"x": ["adamw"]}, ARGS)
    assert bool(found) is (is_sure is not None) and not (found and sure)


SCRIPT = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int)
p.add_argument("--amp", type=bool, default=False)
p.add_argument("--opt", choices=["sgd", "adam"])
p.add_argument("--layers", nargs="+", type=int)
p.add_argument("--lr", type=float)
p.add_argument("--name", default="a")
p.parse_args()
"""
HEAD = "program: train.py\nmethod: {}\nmetric: {{name: loss}}\n"
FILES = {
    "a list": ("grid", "parameters: {opt: {values: [sgd, adamw]}}", "4:34"),
    "a boolean": ("grid", "parameters: {amp: {values: [true, false]}}", "4:35"),
    "a whole float": ("grid", "parameters: {epochs: {value: 1e1}}", "4:23"),
    "a range of floats": ("random", "run_cap: 3\nparameters: {epochs: {min: 0.5, max: 9}}", "5:14"),
    "a rounded range": (
        "random",
        "run_cap: 3\nparameters:\n"
        "  epochs: {distribution: q_log_uniform_values, min: 1, max: 100, q: 1.0}",
        "6:48",
    ),
    "a list as a value": ("grid", "parameters: {layers: {values: [[1, 2], [3]]}}", "4:32"),
    "null": ("grid", "parameters: {epochs: {values: [1, null]}}", "4:35"),
    "small negative numbers": (
        "random",
        "run_cap: 3\nparameters: {lr: {min: -1.0e-4, max: -1.0e-7}}\n"
        "command: ['${interpreter}', '${program}', '${args_no_equals}']",
        "5:14",
    ),
    "a derived float": (
        "grid",
        "parameters: {lr: {values: [4, 5]}}\nderive:\n  epochs: lr / 2",
        "6:3",
    ),
    "a nested mapping": ("grid", "parameters: {lr: {parameters: {a: {value: 1}}}}", "4:14"),
    "a command that names the script": (
        "grid",
        "parameters: {epochs: {value: 1.5}}\ncommand: [python, train.py, '${args}']",
        "4:23",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_plan_and_enqueue_and_run_refuse_what_the_script_would_reject(
    tmp_path: Path, case: str
) -> None:
    method, text, place = FILES[case]
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "s.yaml").write_text(f"{HEAD.format(method)}{text}\n")
    for command in ("plan", "enqueue", "run"):
        done = run_here([command, "s.yaml"], tmp_path, {"HOME": str(tmp_path)})
        assert done.returncode == 2 and set(ids(done.stderr)) == {"option-rejected"}, done
        assert f"s.yaml:{place}: " in done.stderr


def test_a_value_that_is_only_misread_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    lists = "- hyperparam_set: {name: b, epochs: 1}\n- hyperparam_set: {name: null, epochs: 1}\n"
    for text, place in (
        (HEAD.format("grid") + "parameters: {name: {values: [b, null]}}\n", "4:33"),
        (lists, "2:20"),
    ):
        (tmp_path / "s.yaml").write_text(text)
        words = ["plan", "s.yaml"] + (["--set", "program=train.py"] if text is lists else [])
        done = run_here(words, tmp_path, {"HOME": str(tmp_path)})
        assert done.returncode == 0 and ids(done.stderr) == ["option-rejected"], done
        assert f"s.yaml:{place}: " in done.stderr


def test_the_range_of_an_int_is_read_as_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    text = "run_cap: 3\nparameters: {epochs: {min: 1, max: 9}, lr: {min: 0.1, max: 1.0}}\n"
    (tmp_path / "s.yaml").write_text(HEAD.format("random") + text)
    done = run_here(["plan", "s.yaml"], tmp_path, {"HOME": str(tmp_path)})
    assert done.returncode == 0 and not ids(done.stderr), done


def test_many_values_are_checked_in_a_moment(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PARSER.format("type=int"))
    values = list(itertools.islice(itertools.count(0.5), 500))
    found, _ = misread_values(Source.read(tmp_path / "train.py"), {"x": values}, ARGS)
    assert len(found) == 500


@pytest.mark.parametrize(
    "option",
    [
        "type=int, choices=range(10**7)",
        "type=int, nargs=10**5",
        "choices=range(1, 2, 0)",
        "choices=range()",
    ],
)
def test_a_script_that_names_many_choices_or_values_takes_no_memory(
    tmp_path: Path, option: str
) -> None:
    """argparse would list each choice in its error, also for another person's script."""
    (tmp_path / "train.py").write_text(PARSER.format(option))
    assert misread_values(Source.read(tmp_path / "train.py"), {"x": [-1]}, ARGS)[0] == []
