"""What a sweep file's errors and warnings propose: the word that was meant, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.code.command import argv
from hpq.domain.trial import Json
from hpq_producer.commands.make_sweep.set_text import quoted_value
from hpq_producer.sweepfile.load import load
from tests.support.golden import Golden
from tests.support.ids import raises
from tests.support.sweep_files import check, is_refused, refused_file, spec_of

HEAD = "program: t.py\nmethod: random\nparameters:\n  lr: {values: [1]}\n"  # line 5 comes next

REFUSED = {
    "half a word": "metric: {name: loss, goal: max}\n",
    "a macro of another name": "  wide: {value: 1}\ncommand: [python, '${rate_of_learning}']\n",
    "a sampler": "sampler: tpee\n",
    "a macro": "command: ['${arg}']\n",
    "a dotted name": "  opt.lr: {value: 1}\n  opt: {parameters: {lr: {value: 2}}}\n",
    "a dotted name of a group": (
        "  a.b: {value: 1}\n  a: {parameters: {b: {parameters: {c: {value: 2}}}}}\n"
    ),
    "loguniform": "  x: {distribution: loguniform, min: 0.1, max: 1}\n",
    "names without parameters": "  opt: {name: {values: [a]}, lr: {value: 1}}\n",
    "mean": "  x: {distribution: normal, mean: 0}\n",
    "std": "  x: {distribution: normal, std: 0}\n",
    "tuples": "  k: {values: [(3, 3), (a, 5)]}\n",
    "a quoted number": "run_cap: '5'\n",
    "a quoted end": "  x: {min: '1e-3', max: 1}\n",
    "a word with an underscore": "run_cap: 1_000x\n",
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_names_what_was_meant(golden: Golden, tmp_path: Path, case: str) -> None:
    is_refused(golden, f"hint: {case}", tmp_path, HEAD + REFUSED[case])


def test_a_script_in_place_of_a_sweep_file_is_told_what_writes_one(tmp_path: Path) -> None:
    (tmp_path / "my agent.py").write_text("def run(:")
    with raises("sweep-file-is-script", f"hpq init '{tmp_path}/my agent.py'"):
        load(tmp_path / "my agent.py")


def test_a_misspelled_key_is_not_missing_as_well(tmp_path: Path) -> None:
    text = "program: t.py\nmethd: random\nparamaters:\n  lr: {value: 1}\n"
    found = refused_file(tmp_path, text).notices
    assert [one.code for one in found] == ["unknown-key", "unknown-key"]
    assert "'method'" in found[0].text and "'parameters'" in found[1].text


@pytest.mark.parametrize(
    ("key", "way"),
    [
        ("gpus", "--gpus"), ("env", "pass_env"), ("time_limit", "timeout"),
        ("pruner", "early_terminate"), ("count", "run_cap"), ("runcap", "run_cap"),
        ("metod", "method"), ("job", "not supported"),
    ],
)  # fmt: skip
def test_a_word_for_what_hpq_has_is_refused_with_the_way(
    tmp_path: Path, key: str, way: str
) -> None:
    (one,) = refused_file(tmp_path, f"{HEAD}{key}: 1\n").notices
    assert one.code in ("unknown-key", "unsupported-key") and way in one.text


def test_a_key_that_no_one_knows_is_ignored_with_a_warning_as_by_wandb(tmp_path: Path) -> None:
    plain = spec_of(tmp_path, HEAD)
    found = spec_of(tmp_path, HEAD + "my_defaults: {lr: 3}\nnotes: x\n.anchor: &a 1\n")
    assert [one.code for one in found.warnings] == ["key-ignored"] * 3
    assert (found.source, found.keys) == (plain.source, plain.keys)
    assert not plain.warnings
    assert "unknown-key" in str(refused_file(tmp_path, HEAD, overrides={"notes": "x"}).notices)


def test_a_flag_that_names_a_parameter_is_told_its_whole_name(tmp_path: Path) -> None:
    error = refused_file(tmp_path, HEAD, overrides={"lr": "3"})
    assert "--set parameters.lr.value=3" in str(error)


WARNED = {
    "a time": "  n: {value: 1:30}\n",
    "a leading zero": "  n: {value: 012}\n",
    "min_iter beside max_iter": (
        "early_terminate: {type: hyperband, max_iter: 27, s: 2, min_iter: 4}\nmetric: {name: a}\n"
    ),
    "s without max_iter": (
        "early_terminate: {type: hyperband, min_iter: 3, s: 2}\nmetric: {name: a}\n"
    ),
    "a name of wandb": "  n: {value: 1}\nmetric: {name: 'loss [val]'}\n",
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_probably_not_meant_is_warned_of(golden: Golden, tmp_path: Path, case: str) -> None:
    warnings = spec_of(tmp_path, HEAD + WARNED[case]).warnings
    check(golden, f"warning: {case}", warnings, tmp_path)


@pytest.mark.parametrize(
    "word", ["cd /x && X=${HOME} ./run", "X=${HOME}", "'1_000'", "(3, 3)", "'(3'", "a(3"]
)
def test_a_shells_words_and_quoted_texts_are_left_alone(tmp_path: Path, word: str) -> None:
    shown = word if word.startswith("'") else f'"{word}"'
    text = f"{HEAD}  n: {{values: [{shown}]}}\ncommand: [bash, -c, {shown}]\n"
    assert not spec_of(tmp_path, text).warnings


@pytest.mark.parametrize(
    ("value", "shown"), [("1_000", "'1_000'"), ("0.1", "'0.1'"), ("on", "'on'"), ("a1", "a1"),
                         (0.123456, "0.1235"), (None, "null"), ("null", "'null'")],
)  # fmt: skip
def test_plan_quotes_texts_that_look_like_other_values(value: Json, shown: str) -> None:
    assert quoted_value(value) == shown


@pytest.mark.parametrize("name", ["+lr", "++lr", "~lr", "model/optimizer", "a@b", "a/b@c.d"])
def test_hydras_names_are_names_of_parameters(tmp_path: Path, name: str) -> None:
    command = f"command: [a, '${{args_no_hyphens}}', '${{{name}}}']\n"
    spec = spec_of(tmp_path, f"{HEAD}  {name}: {{value: 1}}\n{command}")
    assert not spec.warnings
    words = argv(spec.command, "", {name: 1}, environ={}, params_file="", interpreter="")
    assert words == ("a", f"{name}=1", "1")
