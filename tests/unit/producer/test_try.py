"""`hpq try` up to the process that runs the trial: which kind it runs, with which parameters."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st

from hpq.domain.trainer_specs import BUILT_IN, Number, Word
from hpq.domain.trial import Json
from hpq_producer.cli import app
from tests.support.constants import ROOT
from tests.support.ids import ids


def handed_over(words: Sequence[str]) -> dict[str, Json]:
    """Run a command `hpq try …` up to its exec; return what the next process reads."""
    told: list[bytes] = []

    def execve(_path: str, command: list[str], _environ: object) -> None:
        told.append(os.read(int(command[-1]), 1 << 20))

    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(os, "execve", execve)
        app(args=list(words), prog_name="hpq")
    assert ended.value.code == 0 and len(told) == 1
    return json.loads(told[0].partition(b"\n")[0])


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"))
names = st.from_regex(r"(?:\+{1,2}|~)?[A-Za-z_][A-Za-z0-9_./@-]{0,20}", fullmatch=True)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(
        ["1", "1.0", "1e-3", "on", "null", "~", "", " ", "-", "${x}", "#a", "\U0001f600"]
    )
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts.filter(bool) | st.just("<<"), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, str]]:
    """Run a command that fails beside mine.py; return its exit code and what it said."""
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "good.yaml").write_text(
        "program: mine.py\nmethod: grid\nparameters: {epochs: {value: 1}}\n"
    )
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HPQ_DATA", str(tmp_path / "configs"))

    def run(line: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            app(args=shlex.split(line), prog_name="hpq")
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("cifr10", "file-not-found", "'cifar10'"),
        ("DIGITS", "file-not-found", "'digits'"),
        ("digits-3f2a1", "file-not-found", "a trial of a sweep is digits-3f2a1/1"),
        ("0", "file-not-found", "begin at 1"),
        ("gone.yaml", "file-not-found", "gone.yaml"),
        ("good.yaml --set epohcs=3", "unknown-parameter", "did you mean 'epochs'?"),
        ("configs", "file-not-found", "a directory"),
        ("mine", "file-not-found", "mine"),
        ("mine.py", "sweep-file-is-script", "hpq init mine.py"),
        ("mine:", "trainer-invalid", "mine:train"),
        (":fit", "trainer-invalid", "train:fit"),
        ("mine.py:fit", "trainer-invalid", "mine:fit"),
        ("deep/mine.py:fit", "trainer-invalid", "deep.mine:fit"),
        ("mien:fit", "trainer-not-found", "did you mean mine:fit?"),
        ("nowhere:fit", "trainer-not-found", "run this in its directory"),
        ("mine:fit --as-enqueued", "usage", "SWEEP/7"),
        ("mine:fit --set x", "usage", "--set x: write NAME=VALUE"),
        ("mine:fit --set =1", "usage", "--set =1: write NAME=VALUE"),
        ("mine:fit --set 'x=[1'", "sweep-file-invalid", "--set x=[1"),
        ("mine:fit --set 'x=\x01'", "file-encoding", "--set x="),
        ("mine:fit --seed -1", "usage", "--seed"),
        ("mine:fit --checkpoint mine.py", "file-unwritable", "--checkpoint mine.py"),
        ("digits --set epochs=0", "usage", "epochs: 0 is not a whole number from 1"),
        ("cifar10 --set batch_norm=off", "usage", "write 'off' with quotes"),
        ("cifar10 --set batch_size=9 --set train_images=8", "usage", "batch_size: 9 is more"),
        ("cifar10", "data-missing", "cifar10"),
    ],
)
def test_what_cannot_be_tried_is_one_line_with_the_next_step(
    refused: Callable[[str], tuple[int, str]], line: str, code: str, said: str
) -> None:
    exit_code, err = refused(f"try {line}")
    assert (exit_code, ids(err)) == (2, [code]), err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "words", "params"),
    [
        ("p.add_argument('--steps', type=int)", ["steps=100"], {"lr": 1, "steps": 100}),
        ("p.add_argument('--batch-size')", ["batch-size=8"], {"lr": 1, "batch-size": 8}),
        ("p.add_argument('--a.b', type=int)", ["a.b=8"], {"lr": 1, "a.b": 8}),
        ("wandb.init(config={'opt': {'wd': 1}})", ["opt.wd=2"], {"lr": 1, "opt": {"wd": 2}}),
        ("run.config.depth", ["depth=2", "lr=3"], {"lr": 3, "depth": 2}),
    ],
)
def test_a_parameter_that_only_the_script_names_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: list[str], params: object
) -> None:
    lines = "import argparse, wandb\np = argparse.ArgumentParser()\np.add_argument('--lr')\n"
    run = "run = wandb.init()\n" if "run." in code else ""
    (tmp_path / "train.py").write_text(
        f"{lines if 'p.' in code else 'import wandb'}\n{run}{code}\n"
    )
    (tmp_path / "s.yaml").write_text(
        "program: train.py\nmethod: grid\nparameters: {lr: {values: [1]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    sets = [part for word in words for part in ("--set", word)]
    assert handed_over(["try", "s.yaml", *sets])["params"] == params


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_unknown_parameter_lists_those_of_the_trainer_with_defaults_and_limits(
    refused: Callable[[str], tuple[int, str]], name: str
) -> None:
    exit_code, err = refused(f"try {name} --set epoch=3")
    *listed, last = err.splitlines()[1:]
    assert exit_code == 2 and "did you mean 'epochs'?" in last
    told = [tuple(line.split(maxsplit=2)) for line in listed]
    assert told == [(n, str(one.default), one.allowed) for n, one in BUILT_IN[name].params.items()]


def test_the_page_of_training_code_has_the_parameters_of_the_built_in_trainers() -> None:
    page = (ROOT / "docs" / "reference" / "training-code.md").read_text("utf-8")

    def cell(one: Number | Word | None) -> str:
        if one is None:
            return ""
        if isinstance(one, Word):
            return f"{one.default}; {' or '.join(one.words)}"
        default, low, high = (
            f"{value:.0f}" if one.whole else f"{value:g}"
            for value in (one.default, one.low, one.high)
        )
        return f"{default}; {low} to {high}"

    for name in dict.fromkeys(name for spec in BUILT_IN.values() for name in spec.params):
        cells = [cell(spec.params.get(name)) for spec in BUILT_IN.values()]
        assert "| ".join(f"{text} ".lstrip() for text in (f"| `{name}`", *cells, "")) in page
