"""What a sweep file's errors and warnings propose: the word that was meant, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.domain.trial import Json
from hpq.errors import SweepFileError
from hpq_producer.commands.submit.plan_page import quoted_value
from hpq_producer.sweepfile.load import load

HEAD = "program: t.py\nmethod: random\nparameters:\n  lr: {values: [1]}\n"  # line 5 comes next

REFUSED = {
    "half a word": (
        "metric: {name: loss, goal: max}\n",
        "goal: 'max' is not one of minimize, maximize; did you mean 'maximize'?",
    ),
    "a macro of another name": (
        "  wide: {value: 1}\ncommand: [python, '${rate_of_learning}']\n",
        "args_json_file, gpus and the parameters lr, wide",
    ),
    "a sampler": (
        "sampler: tpee\n",
        "5:1: sampler: 'tpee' is not one of auto, tpe, gp, cmaes, qmc; did you mean 'tpe'?",
    ),
    "a macro": (
        "command: ['${arg}']\n",
        "5:11: command[0]: no macro '${arg}'; did you mean '${args}'?",
    ),
    "a dotted name": (
        "  opt.lr: {value: 1}\n  opt: {parameters: {lr: {value: 2}}}\n",
        "6:22: parameters.opt.parameters.lr: called opt.lr, as is what stands at s.yaml:5:3;"
        " rename one",
    ),
    "a dotted name of a group": (
        "  a.b: {value: 1}\n  a: {parameters: {b: {parameters: {c: {value: 2}}}}}\n",
        "6:20: parameters.a.parameters.b: called a.b, as is what stands at s.yaml:5:3; rename one",
    ),
    "loguniform": (
        "  x: {distribution: loguniform, min: 0.1, max: 1}\n",
        "did you mean 'log_uniform_values'?",
    ),
    "names without parameters": (
        "  opt: {name: {values: [a]}, lr: {value: 1}}\n",
        "5:3: parameters.opt: nested names go under `parameters:`;"
        " write opt: {parameters: {name: …}}",
    ),
    "mean": (
        "  x: {distribution: normal, mean: 0}\n",
        "5:29: parameters.x.mean: unknown key; did you mean 'mu'?",
    ),
    "std": (
        "  x: {distribution: normal, std: 0}\n",
        "5:29: parameters.x.std: unknown key; did you mean 'sigma'?",
    ),
    "a quoted number": (
        "run_cap: '5'\n",
        "5:1: run_cap: '5' is not a whole number from 1 to 2,147,483,648; write it without quotes",
    ),
    "a quoted end": (
        "  x: {min: '1e-3', max: 1}\n",
        "5:7: parameters.x.min: '1e-3' is not a number; write it without quotes",
    ),
    "an underscore": (
        "run_cap: 1_000\n",
        "5:1: run_cap: '1_000' is not a whole number from 1 to 2,147,483,648; write 1000",
    ),
}


def complaint(tmp_path: Path, text: str, **flags: object) -> list[str]:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SweepFileError) as caught:
        load(file, **flags)  # type: ignore[arg-type]
    return str(caught.value).replace(f"{tmp_path}/", "").split("\n")


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_names_what_was_meant(tmp_path: Path, case: str) -> None:
    text, line = REFUSED[case]
    assert complaint(tmp_path, HEAD + text)[0].endswith(line)


def test_a_script_in_place_of_a_sweep_file_is_told_what_writes_one(tmp_path: Path) -> None:
    (tmp_path / "my agent.py").write_text("def run(:")
    with pytest.raises(SweepFileError, match=r"a script; `hpq init '.*my agent\.py'` writes its"):
        load(tmp_path / "my agent.py")


def test_a_misspelt_key_is_not_missing_as_well(tmp_path: Path) -> None:
    text = "program: t.py\nmethd: random\nparamaters:\n  lr: {value: 1}\n"
    assert complaint(tmp_path, text) == [
        "s.yaml:2:1: methd: unknown key; did you mean 'method'?",
        "s.yaml:3:1: paramaters: unknown key; did you mean 'parameters'?",
    ]


def test_a_flag_that_names_a_parameter_is_told_its_whole_name(tmp_path: Path) -> None:
    assert complaint(tmp_path, HEAD, overrides={"lr": "3"}) == [
        "--set lr=3: lr is a parameter; write --set parameters.lr.value=3"
    ]


WARNED = {
    "an unknown macro": (
        "command: [python, '--x=${foo}', '--lr=${lr}', '--h=${envvar:HOME}', '--n=${gpus}']\n",
        "5:19: command[1]: '${foo}' is no macro and no parameter: it is passed as it stands;"
        " the parameters are lr",
    ),
    "a parameter misspelt": (
        "  wide: {value: 1}\ncommand: ['-w=${widee}']\n",
        "6:11: command[0]: '${widee}' is no macro and no parameter: it is passed as it stands;"
        " did you mean '${wide}'?",
    ),
    "a macro that counts alone": (
        "command: ['--p=${program}']\n",
        "5:11: command[0]: '${program}' counts only where it is the whole item:"
        " it is passed as it stands",
    ),
    "underscores": (
        "  n: {values: [1_000]}\n",
        "5:16: parameters.n.values[0]: 1_000 is text here; write 1000, or '1_000' for the text",
    ),
    "a time": (
        "  n: {value: 1:30}\n",
        "5:7: parameters.n.value: 1:30 is text here (W&B reads the number 90);"
        " write '1:30' for the text",
    ),
    "a leading zero": (
        "  n: {value: 012}\n",
        "5:7: parameters.n.value: 012 is the number 12 (W&B reads 10);"
        " write 12, or '012' for the text",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_probably_not_meant_is_warned_of(tmp_path: Path, case: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(HEAD + WARNED[case][0])
    assert [one.text for one in load(file).warnings] == [f"{file}:{WARNED[case][1]}"]


@pytest.mark.parametrize("word", ["cd /x && X=${HOME} ./run", "X=${HOME}", "'1_000'"])
def test_a_shells_words_and_quoted_texts_are_left_alone(tmp_path: Path, word: str) -> None:
    file = tmp_path / "s.yaml"
    shown = word if word.startswith("'") else f'"{word}"'
    file.write_text(f"{HEAD}  n: {{values: [{shown}]}}\ncommand: [bash, -c, {shown}]\n")
    assert not load(file).warnings


@pytest.mark.parametrize(
    ("value", "shown"), [("1_000", "'1_000'"), ("0.1", "'0.1'"), ("on", "'on'"), ("a1", "a1"),
                         (0.123456, "0.1235"), (None, "null"), ("null", "'null'")],
)  # fmt: skip
def test_plan_quotes_texts_that_look_like_other_values(value: Json, shown: str) -> None:
    assert quoted_value(value) == shown
