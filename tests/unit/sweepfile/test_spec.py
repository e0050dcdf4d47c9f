"""Whole sweep files: W&B's as they are, the article's list, defaults, flags, warnings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from hpq.domain.identity import ParameterSet, canonical, digest
from hpq.domain.sweep import Goal, Metric, ObjectiveValue
from hpq.domain.trial import Params
from hpq.errors import SweepFileError
from hpq.search import samplers
from hpq.search.replicates import replicated
from hpq.store.wire.row import encode_new
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.model import SweepFile
from hpq_producer.sweepfile.spec import SweepSpec, describe_share, parameter_sets
from tests.support.constants import ROOT
from tests.support.sweep_files import spec_of

WANDB = """\
program: train/trainer.py
method: bayes
metric:
  name: val_loss
  goal: minimize
parameters:
  learning_rate:
    min: 0.001
    max: 0.1
  optimizer:
    values: ["adam", "sgd"]
"""
ARTICLE = """\
- hyperparam_set:
   batch_norm: 'on'
   batch_size: 128
   data_aug_cutout_size: 5
   max_learning_rate: 0.4
   momentum: 0.9
- hyperparam_set:
   batch_norm: 'on'
   batch_size: 512
   data_aug_cutout_size: 5
   max_learning_rate: 0.4
   momentum: 0.9
"""
GRID = """\
trainer: cifar10
method: grid
parameters:
  max_learning_rate: {values: [0.4, 0.04]}
  batch_norm: {values: ['on', 'off']}
  momentum: {value: 0.9}
"""


def test_a_wandb_file_works_as_it_is(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, WANDB)
    assert spec.keys.program == "train/trainer.py"
    assert spec.command == ("${env}", "${interpreter}", "${program}", "${args}")
    assert spec.metric == Metric(name="val_loss", goal=Goal.MINIMIZE)
    assert spec.varying == ("learning_rate", "optimizer")
    assert spec.trials is None
    assert spec.is_late and not spec.warnings
    begin = list(parameter_sets(spec))
    assert len(begin) == 10  # what it begins with; the others follow from results
    for params in begin:
        assert isinstance(params["learning_rate"], float)
        assert 0.001 <= params["learning_rate"] <= 0.1
        assert params["optimizer"] in ("adam", "sgd")


def test_a_count_ends_an_open_sweep(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, WANDB, count=8)
    assert spec.trials == len(list(parameter_sets(spec))) == 8
    assert list(parameter_sets(spec)) == list(islice(parameter_sets(spec_of(tmp_path, WANDB)), 8))


def test_the_articles_list_is_run_by_its_trainer_in_its_order(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, ARTICLE)
    assert spec.keys.trainer == "cifar10"
    assert spec.metric == Metric(name="test/acc", goal=Goal.MAXIMIZE)
    assert [params["batch_size"] for params in parameter_sets(spec)] == [128, 512]
    assert spec.trials == 2
    assert spec.varying == ("batch_size",)
    assert spec.method == "list"


def test_a_list_is_run_by_whatever_the_flags_say(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, ARTICLE, overrides={"trainer": "my.code:train"}, count=1)
    assert (spec.keys.trainer, spec.trials, len(list(parameter_sets(spec)))) == (
        "my.code:train",
        1,
        1,
    )
    spec = spec_of(tmp_path, ARTICLE, overrides={"program": "t.py", "max_parallel": "3"})
    assert (spec.keys.trainer, spec.keys.program, spec.keys.max_parallel) == ("", "t.py", 3)


def test_a_set_that_is_listed_twice_is_run_once(tmp_path: Path) -> None:
    text = "- hyperparam_set: {epochs: 3}\n- hyperparam_set: {epochs: 3.0}\n"
    spec = spec_of(tmp_path, text)
    assert spec.trials == 1
    (warning,) = spec.warnings
    assert warning.code == "duplicate-set" and ":2:3: [1]: " in warning.text


def test_a_grid_of_a_shipped_trainer_takes_its_metric(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, GRID)
    assert [(s["batch_norm"], s["max_learning_rate"]) for s in parameter_sets(spec)] == [
        ("on", 0.4), ("on", 0.04), ("off", 0.4), ("off", 0.04),
    ]  # fmt: skip
    assert spec.trials == 4
    assert spec.metric == Metric(name="test/acc", goal=Goal.MAXIMIZE)
    assert spec.varying == ("max_learning_rate", "batch_norm")
    assert (spec.name, spec.queue, spec.keys.seed, spec.command) == ("s", "default", 0, ())


@pytest.mark.parametrize(
    ("keys", "metric"),
    [
        ("{name: test/acc}", Metric(name="test/acc", goal=Goal.MAXIMIZE)),
        ("{name: test/acc, goal: minimize}", Metric(name="test/acc", goal=Goal.MINIMIZE)),
        ("{name: test/loss}", Metric(name="test/loss", goal=Goal.MINIMIZE)),
        (
            "{name: test/acc, target: 1, value: best, impute_while_running: false}",
            Metric(name="test/acc", goal=Goal.MAXIMIZE, target=1.0, take=ObjectiveValue.BEST),
        ),
    ],
)
def test_a_goal_left_out_is_the_trainers_own(tmp_path: Path, keys: str, metric: Metric) -> None:
    assert spec_of(tmp_path, f"{GRID}metric: {keys}\n").metric == metric


def test_every_key_of_the_top_arrives(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: sweep
name: My sweep 1.0
description: what for
project: p
entity: e
method: grid
program: t.py
command: [python3, '${program}', '${args_json}', '--x=${envvar:X}']
code: .
queue: a100x4
owner: ada
seed: 7
order: shuffle
priority: -3
max_parallel: 4
retries: 2
timeout: 2h
stall: 90s
pass_env: [AWS_REGION]
run_cap: 3
parameters: {a: {min: 1, max: 9}}
"""
    spec = spec_of(tmp_path, text)
    assert spec == SweepSpec(
        keys=SweepFile(
            apiVersion="v1",
            kind="sweep",
            name="My sweep 1.0",
            description="what for",
            project="p",
            entity="e",
            method="grid",
            program="t.py",
            command=("python3", "${program}", "${args_json}", "--x=${envvar:X}"),
            code=".",
            queue="a100x4",
            owner="ada",
            seed=7,
            order="shuffle",
            priority=-3,
            max_parallel=4,
            retries=2,
            timeout="2h",
            stall=90,
            pass_env=("AWS_REGION",),
            run_cap=3,
            parameters=spec.source["parameters"],
        ),
        name="My sweep 1.0",
        space=spec.space,
        varying=("a",),
        source=spec.source,
        warnings=spec.warnings,
    )
    assert (spec.keys.timeout, spec.keys.stall) == (7200.0, 90.0)
    assert spec.trials == 3
    shuffled = [s["a"] for s in parameter_sets(spec)]
    assert shuffled == [s["a"] for s in parameter_sets(spec)] != [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("1.5m", 90), ("2h", 7200)]
)
def test_a_duration_is_seconds_or_has_a_unit(tmp_path: Path, text: str, seconds: float) -> None:
    assert spec_of(tmp_path, f"{GRID}timeout: {text}\n").keys.timeout == seconds


def test_set_changes_the_file_and_the_digest(tmp_path: Path) -> None:
    flags = {"parameters.momentum.value": "0.5", "seed": "3", "parameters.width.values": "[8]"}
    spec = spec_of(tmp_path, GRID, overrides={**flags, "queue": "small"}, name="other")
    assert {s["momentum"] for s in parameter_sets(spec)} == {0.5}
    assert {s["width"] for s in parameter_sets(spec)} == {8}
    assert (spec.queue, spec.keys.seed, spec.name) == ("small", 3, "other")
    plain = spec_of(tmp_path, GRID)
    assert digest(spec.source, 0, "") != digest(plain.source, 0, "")
    renamed = spec_of(tmp_path, GRID, name="other")
    assert digest(renamed.source, 0, "") == digest(plain.source, 0, "")
    counted = spec_of(tmp_path, GRID, count=2)
    assert digest(counted.source, 0, "") != digest(plain.source, 0, "")


def test_set_finds_names_that_hold_dots(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters: {opt.lr: {value: 1}}\n"
    spec = spec_of(tmp_path, text, overrides={"parameters.opt.lr.value": "2"})
    assert list(parameter_sets(spec)) == [{"opt.lr": 2}]


def test_a_boolean_written_as_a_word_is_warned_of_for_a_program(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nresident: no\nparameters:\n  bn: {values: [on, false]}\n"
    spec = spec_of(tmp_path, text)
    assert [s["bn"] for s in parameter_sets(spec)] == [True, False]
    (warning,) = spec.warnings
    assert warning.code == "ambiguous-word" and "'on'" in warning.text
    assert f"{tmp_path}/s.yaml:5:17: parameters.bn.values[0]: " in warning.text


def test_a_word_in_a_list_is_warned_of_for_code_of_ones_own(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, "- hyperparam_set: {bn: Off}\n", overrides={"trainer": "my.code:train"}
    )
    assert list(parameter_sets(spec)) == [{"bn": False}]
    (warning,) = spec.warnings
    assert warning.code == "ambiguous-word" and "'Off'" in warning.text
    assert ":1:20: [0].hyperparam_set.bn: " in warning.text


def test_a_word_of_a_flag_is_warned_of_and_replaces_the_files(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters:\n  a: {value: on}\n  b: {value: 1}\n"
    flags = {"parameters.a.value": "'on'", "parameters.b.value": "off"}
    spec = spec_of(tmp_path, text, overrides=flags)
    assert list(parameter_sets(spec)) == [{"a": "on", "b": False}]
    (warning,) = spec.warnings
    assert warning.code == "ambiguous-word" and "'off'" in warning.text
    assert warning.text.startswith("--set parameters.b.value=off: parameters.b.value: ")


def test_force_takes_any_number_of_sets(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters: {a: {min: 1, max: 1000000000}}\n"
    with pytest.raises(SweepFileError, match=r"1,000,000,000 trials.*100,000"):
        spec_of(tmp_path, text)
    spec = spec_of(tmp_path, text, limit=None)
    assert spec.trials == 10**9
    assert spec_of(tmp_path, text, count=5).trials == 5


def test_a_number_of_sets_that_python_does_not_print_is_rounded(tmp_path: Path) -> None:
    ranges = "".join(f"  p{i}: {{min: 1, max: {10**18}}}\n" for i in range(250))
    text = f"program: t.py\nmethod: grid\nparameters:\n{ranges}"
    for more, said in (("", "at least 10^4500 trials"), ("require: [p0 > 1]\n", "10^4500 grid")):
        with pytest.raises(SweepFileError, match=re.escape(said)):
            spec_of(tmp_path, text + more)
        spec = spec_of(tmp_path, text.replace("grid", "random\nrun_cap: 3") + more)
        assert spec.space is not None
        assert len(list(samplers.random(spec.space, 3, seed=0))) == 3
        assert describe_share(spec).endswith("of random draws remain" if more else "")
    capped = spec_of(tmp_path, text.replace("grid", "grid\nrun_cap: 3"))
    assert [warning.code for warning in capped.warnings] == ["sets-left-out"]


def test_a_random_sweep_over_few_sets_ends_with_them(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: random\nparameters: {a: {min: 1, max: 5}}\n"
    spec = spec_of(tmp_path, text)
    assert spec.trials == len(list(parameter_sets(spec))) == 5
    assert spec_of(tmp_path, text, count=9).trials == 5
    wide = spec_of(tmp_path, text.replace("5", "1000000"))
    assert wide.trials is None


SPACE = "parameters: {lr: {min: 0.0, max: 1.0}, n: {values: [1, 2]}}\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (f"program: t.py\nmethod: random\n{SPACE}points: [{{lr: 0.5, n: 2}}]\n", 10),
        ("program: t.py\nmethod: grid\nparameters: {n: {min: 1, max: 10}}\n", 10),
        ("- hyperparam_set: {batch_size: 128}\n- hyperparam_set: {batch_size: 256}\n", 2),
    ],
)
def test_the_identity_of_parameters_takes_one_encoding_from_file_to_rows(
    text: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[bytes] = []

    def counted(params: Params) -> bytes:
        if isinstance(params, ParameterSet):
            encoded.append(canonical(params))
        return canonical(params)

    monkeypatch.setattr("hpq.domain.identity.canonical", counted)
    some = list(islice(parameter_sets(spec_of(tmp_path, text)), number))
    rows = [encode_new(one, i) for params in some for i, one in enumerate(replicated(params, 3))]
    assert len({row.identity for row in rows}) == 3 * number
    assert {params.identity for params in some} < {row.identity for row in rows}
    assert len(encoded) == len(set(encoded)) == number


@pytest.mark.parametrize(("file", "name"), [("my sweep.yaml", "my sweep"), ("-é.yaml", "sweep")])
def test_a_sweep_is_named_as_its_file_if_that_is_a_name(
    tmp_path: Path, file: str, name: str
) -> None:
    (tmp_path / file).write_text(GRID)
    assert load(tmp_path / file).name == name


HOSTILE = ["\x1b[31m", "[red]", "</script>", "=cmd()", "$(id)", "a\nb", "--flag", "é", ""]


def test_values_may_be_any_text(tmp_path: Path) -> None:
    quoted = ", ".join('"' + v.replace("\x1b", "\\e").replace("\n", "\\n") + '"' for v in HOSTILE)
    text = f"program: t.py\nmethod: grid\nparameters:\n  a: {{values: [{quoted}]}}\n"
    assert [s["a"] for s in parameter_sets(spec_of(tmp_path, text))] == HOSTILE


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda f: f.name)
def test_every_config_loads(file: Path) -> None:
    spec = load(file)
    assert next(iter(parameter_sets(spec)))
    assert spec.varying


def test_sets_are_the_same_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(WANDB)
    code = (
        "import sys; from pathlib import Path; from hpq_producer.sweepfile.load import load;"
        "from hpq_producer.sweepfile.spec import parameter_sets;"
        "print(list(parameter_sets(load(Path(sys.argv[1]), count=5))))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        env=env, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(list(parameter_sets(load(file, count=5))))


def test_the_wandb_configs_program_takes_what_its_sweep_gives() -> None:
    params = next(parameter_sets(load(ROOT / "configs/wandb-bayes.yaml")))
    args = [f"--{name}={value}" for name, value in params.items()]
    command = [sys.executable, str(ROOT / "configs/wandb_train.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    losses = [
        float(line.removeprefix("val_loss="))
        for line in done.stdout.splitlines()
        if line.startswith("val_loss=")
    ]
    assert len(losses) == 50
    assert losses[-1] < losses[0] < 0.7


@pytest.mark.parametrize(
    ("cap", "codes"),
    [(2, ["sets-left-out"]), (3, []), (50, ["fewer-sets"])],
)
def test_a_cap_that_cuts_or_exceeds_is_told(tmp_path: Path, cap: int, codes: list[str]) -> None:
    text = "program: x.py\nmethod: grid\nparameters: {a: {values: [1, 2, 3]}}\n"
    found = spec_of(tmp_path, f"{text}run_cap: {cap}\n").warnings
    assert [one.code for one in found] == codes
    assert all(one.text.startswith(f"{tmp_path}/s.yaml:4:1: run_cap: ") for one in found)
