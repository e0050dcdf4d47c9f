"""Bad sweep files: each error has its place and its id, and a file's errors come together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import Golden
from tests.support.sweep_files import refusals, refused_file

HEAD = "program: t.py\nmethod: random\nparameters:\n"  # what follows begins in line 4
BUILT_IN = "trainer: cifar10\nmethod: random\nparameters:\n"


PARAMETERS = {
    "min above max": ("lr: {min: 2.0, max: 1.0}", "4:8 invalid-value"),
    "min is max": ("lr: {min: 5, max: 5}", "4:8 invalid-value"),
    "min alone": ("lr: {min: 5}", "4:3 missing-key"),
    "max alone": ("lr: {max: 5}", "4:3 missing-key"),
    "no values": ("lr: {values: []}", "4:8 invalid-value"),
    "null values": ("lr: {values: }", "4:8 invalid-value"),
    "nothing": ("lr: {}", "4:3 missing-key"),
    "null": ("lr:", "4:3 invalid-value"),
    "a bare number": ("lr: 0.1", "4:3 invalid-value"),
    "a bare list": ("lr: [1, 2]", "4:3 invalid-value"),
    "nan": ("lr: {min: .nan, max: 1}", "4:8 invalid-value"),
    "nan value": ("lr: {values: [1, .nan]}", "4:20 invalid-value"),
    "deep inf": ("lr: {value: {a: [.inf]}}", "4:8 invalid-value"),
    "boolean end": ("lr: {min: off, max: 1}", "4:8 invalid-value"),
    "text end": ("lr: {min: a, max: 1}", "4:8 invalid-value"),
    "unknown key": ("lr: {vales: [1]}", "4:8 unknown-key"),
    "a name": ("1lr: {value: 1}", "4:3 invalid-value"),
    "distribution": (
        "lr: {distribution: log_uniform_value, min: 1, max: 2}",
        "4:8 unknown-distribution",
    ),
    "log of 0": ("lr: {distribution: log_uniform_values, min: 0, max: 1}", "4:42 invalid-value"),
    "step 0": ("lr: {distribution: q_uniform, min: 0, max: 1, q: 0}", "4:49 invalid-value"),
    "q alone": ("lr: {min: 0, max: 1, q: 1}", "4:24 conflicting-keys"),
    "q of uniform": ("lr: {min: 0, max: 1.5, q: 1}", "4:26 conflicting-keys"),
    "fraction of an int": (
        "lr: {distribution: int_uniform, min: 0, max: 1.5}",
        "4:43 invalid-value",
    ),
    "exponent": ("lr: {distribution: log_uniform, min: 0, max: 1000}", "4:43 invalid-value"),
    "log_normal": ("lr: {distribution: log_normal, sigma: 100}", "4:34 invalid-value"),
    "min of normal": ("lr: {distribution: normal, min: 0}", "4:30 conflicting-keys"),
    "mu alone": ("lr: {mu: 1}", "4:3 missing-key"),
    "sigma": ("lr: {distribution: normal, sigma: -1}", "4:30 invalid-value"),
    "value and values": ("lr: {value: 1, values: [1]}", "4:18 conflicting-keys"),
    "probabilities": ("lr: {values: [1, 2], probabilities: [0.5]}", "4:24 invalid-value"),
    "probabilities sum": ("lr: {values: [1, 2], probabilities: [0.5, 0.6]}", "4:24 invalid-value"),
    "a bare probability": ("lr: {probabilities: [1]}", "4:3 missing-key"),
    "categorical": (
        "lr: {distribution: categorical, values: [1], probabilities: [1]}",
        "4:48 conflicting-keys",
    ),
    "missing end": ("lr: {distribution: uniform, min: 1}", "4:3 missing-key"),
    "nested beside": ("o: {parameters: {lr: {value: 1}}, value: 2}", "4:37 conflicting-keys"),
    "nested": ("o: {parameters: {lr: {min: 1}}}", "4:20 missing-key"),
    "nested nothing": ("o: {parameters: {}}", "4:7 invalid-value"),
    "NUL": ('lr: {value: "a\\0b"}', "4:8 invalid-value"),
    "64 KiB": (f"lr: {{value: {'x' * 70_000}}}", "4:8 invalid-value"),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_bad_parameter_is_one_line(golden: Golden, tmp_path: Path, case: str) -> None:
    """B3, B4: ranges, distributions, steps and choices that cannot be."""
    entry, line = PARAMETERS[case]
    assert refusals(golden, f"parameter: {case}", tmp_path, f"{HEAD}  {entry}\n") == [line]


GOOD = "program: t.py\nmethod: random\nparameters: {lr: {value: 1}}\n"  # line 4 comes next
TOP = {
    "unknown": ("methd: grid", "4:1 unknown-key"),
    "run_cap": ("run_cap: many", "4:1 invalid-value"),
    "run_cap 0": ("run_cap: 0", "4:1 invalid-value"),
    "command": ("command: python t.py", "4:1 invalid-value"),
    "macro": ("command: ['${arg}']", "4:11 unknown-macro"),
    "goal": ("metric: {name: acc, goal: maximise}", "4:21 invalid-value"),
    "metric": ("metric: acc", "4:1 invalid-value"),
    "metric name": ("metric: {goal: minimize}", "4:1 missing-key"),
    "metric of spaces": ("metric: {name: ' '}", "4:10 invalid-value"),
    "metric key": ("metric: {name: a, gaol: minimize}", "4:19 unknown-key"),
    "target": ("metric: {name: a, target: .nan}", "4:19 invalid-value"),
    "metrics of one": ("metrics: [{name: a}]", "4:1 invalid-value"),
    "metrics of words": ("metrics: [acc, {name: b}]", "4:11 invalid-value"),
    "metrics of none": ("metrics: []", "4:1 invalid-value"),
    "metrics of many": (
        f"metrics: [{', '.join(f'{{name: m{i}}}' for i in range(9))}]",
        "4:1 invalid-value",
    ),
    "metrics alike": ("metrics: [{name: a}, {name: a}]", "4:1 invalid-value"),
    "metrics with a target": ("metrics: [{name: a, target: 1}, {name: b}]", "4:21 unknown-key"),
    "metric too": ("metrics: [{name: a}, {name: b}]\nmetric: {name: a}", "5:1 conflicting-keys"),
    "metrics keep": (
        "metrics: [{name: a}, {name: b}]\nkeep: {best: 3}",
        "5:8 conflicting-keys",
    ),
    "metrics early": (
        "metrics: [{name: a}, {name: b}]\nearly_terminate: {type: asha}",
        "5:1 missing-key",
    ),
    "metrics early of another": (
        "metrics: [{name: a}, {name: b}]\nearly_terminate: {type: asha, metric: c}",
        "5:31 invalid-value",
    ),
    "constraint": ("metric: {name: a}\nconstraints: [a < 3]", "5:15 invalid-value"),
    "constraint of two": ("metric: {name: a}\nconstraints: [0 <= a <= 3]", "5:15 invalid-value"),
    "constraint of inf": ("metric: {name: a}\nconstraints: ['a <= 1e999']", "5:15 invalid-value"),
    "constraint of nan": ("metric: {name: a}\nconstraints: [a <= nan]", "5:15 invalid-value"),
    "constraint of a metric": (
        "metric: {name: a}\nconstraints: [a <= b]",
        "5:15 invalid-value",
    ),
    "constraint of length": (
        f"metric: {{name: a}}\nconstraints: [a <= {'0' * 300}]",
        "5:15 invalid-value",
    ),
    "constraint as text": ("metric: {name: a}\nconstraints: a <= 1", "5:1 invalid-value"),
    "constraints of none": ("metric: {name: a}\nconstraints: []", "5:1 invalid-value"),
    "constraints of many": (
        f"metric: {{name: a}}\nconstraints: [{', '.join(['a <= 1'] * 21)}]",
        "5:1 invalid-value",
    ),
    "constraint without a metric": ("constraints: [a <= 1]", "4:1 missing-key"),
    "budget of nothing": ("budget: {}", "4:1 invalid-value"),
    "budget of 0": ("budget: {gpu_hours: 0}", "4:10 invalid-value"),
    "budget of inf": ("budget: {gpu_hours: .inf}", "4:10 invalid-value"),
    "budget until a number": ("budget: {until: 18:30}", "4:10 invalid-value"),
    "budget until the past": ("budget: {until: '2020-01-31T08:00Z'}", "4:10 invalid-value"),
    "budget until no zone": ("budget: {until: '2999-01-31T08:00'}", "4:10 invalid-value"),
    "early": ("early_terminate: 3", "4:1 invalid-value"),
    "early without metric": ("early_terminate: {type: hyperband, min_iter: 3}", "4:1 missing-key"),
    "early type": ("early_terminate: {type: hyperbands}", "4:19 invalid-value"),
    "early untyped": ("early_terminate: {min_iter: 3}", "4:1 missing-key"),
    "early key": ("early_terminate: {type: median, eta: 3}", "4:33 unknown-key"),
    "early bands": (
        "metric: {name: a}\nearly_terminate: {type: hyperband, max_iter: 27}",
        "5:1 missing-key",
    ),
    "early no bands": (
        "metric: {name: a}\nearly_terminate: {type: hyperband, max_iter: 2, s: 1}",
        "5:36 invalid-value",
    ),
    "early none": (
        "metric: {name: a}\nearly_terminate: {type: hyperband, eta: 2}",
        "5:1 missing-key",
    ),
    "early eta": ("metric: {name: a}\nearly_terminate: {type: asha, eta: 1}", "5:31 invalid-value"),
    "scheduler": ("scheduler: {}", "4:1 unsupported-key"),
    "trainer too": ("trainer: digits", "4:1 conflicting-keys"),
    "resident": ("resident: yes", "4:1 conflicting-keys"),
    "resident word": ("resident: 1", "4:1 invalid-value"),
    "preload": ("preload: torch", "4:1 invalid-value"),
    "preload path": ("preload: [lib/torch.py]", "4:11 invalid-value"),
    "preload none": ("preload: []", "4:1 invalid-value"),
    "queue": ("queue: A100", "4:1 invalid-value"),
    "timeout": ("timeout: 90 minutes", "4:1 invalid-value"),
    "stall": ("stall: -1", "4:1 invalid-value"),
    "stall list": ("stall: [1]", "4:1 invalid-value"),
    "stall percent": ("stall: {gpu_below: 101, for: 30m}", "4:9 invalid-value"),
    "stall no time": ("stall: {gpu_below: 10, for: 0}", "4:24 invalid-value"),
    "stall without for": ("stall: {gpu_below: 10}", "4:1 missing-key"),
    "stall key": ("stall: {gpu_below: 10, for: 30m, cpu: 1}", "4:34 unknown-key"),
    "pass_env": ("pass_env: [HPQ_CODE_KEY]", "4:12 invalid-value"),
    "order": ("order: shufle", "4:1 invalid-value"),
    "history": ("history: ALL", "4:1 invalid-value"),
    "name": ("name: 7", "4:1 invalid-value"),
    "no name": ("name:", "4:1 invalid-value"),
    "blank": ("code: ' '", "4:1 invalid-value"),
}


@pytest.mark.parametrize("case", TOP)
def test_a_bad_key_of_the_top_is_one_line(golden: Golden, tmp_path: Path, case: str) -> None:
    entry, line = TOP[case]
    assert refusals(golden, f"top: {case}", tmp_path, f"{GOOD}{entry}\n") == [line]


@pytest.mark.parametrize("name", ["-x", " x", "x" * 300, "", "a\x1bb", "\u202ex"])
def test_a_name_that_is_no_name_is_refused_from_the_flag_too(tmp_path: Path, name: str) -> None:
    """B5: names with slashes, spaces, leading dashes, 300 characters, accents."""
    (one,) = refused_file(tmp_path, GOOD, name=name).notices
    assert one.code == "invalid-value"
    assert one.text.startswith("--name ") and ": name: " in one.text and one.text.isprintable()


WHOLE = {
    "a word": ("hello\n", ["1:1 sweep-file-empty"]),
    "nothing named": ("method: grid\nparameters: {a: {value: 1}}\n", ["1:1 missing-key"]),
    "a command alone": (
        "command: [python, '${program}']\nmethod: grid\nparameters: {a: {value: 1}}\n",
        ["1:19 missing-key"],
    ),
    "no method": ("program: t.py\n", ["1:1 missing-key", "1:1 missing-key"]),
    "custom": (
        "program: t.py\nmethod: custom\nparameters: {a: {value: 1}}\n",
        ["2:1 invalid-value"],
    ),
    "bayes": ("program: t.py\nmethod: bayes\nparameters: {a: {value: 1}}\n", ["1:1 missing-key"]),
    "trainer": (
        "trainer: cifar\nmethod: grid\nparameters: {a: {value: 1}}\n",
        ["1:1 unknown-trainer"],
    ),
    "function": (
        "trainer: 'my module:f'\nmethod: grid\nparameters: {a: {value: 1}}\n",
        ["1:1 unknown-trainer"],
    ),
    "sampler of one metric": (
        "program: t.py\nmethod: bayes\nparameters: {a: {min: 0.0, max: 1.0}}\nsampler: cmaes\n"
        "metrics: [{name: a}, {name: b}]\n",
        ["4:1 conflicting-keys"],
    ),
    "grid of a range": (
        "program: t.py\nmethod: grid\nparameters:\n  lr: {min: 0.0, max: 1.0}\n",
        ["4:3 not-a-grid"],
    ),
    "grid of 10^9": (
        "program: t.py\nmethod: grid\nparameters:\n"
        + "".join(f"  {c}: {{min: 1, max: 1000}}\n" for c in "abc"),
        ["3:1 too-many-sets"],
    ),
    "large sets": (
        "program: t.py\nmethod: grid\nparameters:\n"
        + "".join(f"  {c}: {{values: [1, {'x' * 40_000}]}}\n" for c in "ab"),
        ["3:1 set-too-large"],
    ),
    "many parameters": (
        "program: t.py\nmethod: random\nrun_cap: 2\nparameters:\n"
        + "".join(f"  parameter_{n}: {{min: 0.0, max: 1.0}}\n" for n in range(2000)),
        ["4:1 set-too-large"],
    ),
    "several": (
        "program: t.py\nmethod: grd\nparameters:\n  a: {min: 1}\n  b: {vals: [1]}\nqueue: X Y\n",
        ["2:1 invalid-value", "4:3 missing-key", "5:7 unknown-key", "6:1 invalid-value"],
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_bad_file_tells_all_that_is_wrong_in_its_order(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    text, lines = WHOLE[case]
    assert refusals(golden, f"file: {case}", tmp_path, text) == lines


def test_only_the_first_ten_errors_are_shown(tmp_path: Path) -> None:
    found = refused_file(tmp_path, GOOD + "".join(f"x{i}: 1\n" for i in range(14))).notices
    assert [one.code for one in found] == ["unknown-key"] * 10 + ["more-problems"]
    assert "s.yaml:13:1: x9: " in found[9].text and "4" in found[10].text


TRAINER = {
    "off": ("batch_norm: {values: [on, 'off']}", "4:25 invalid-value"),
    "word": ("batch_norm: {value: maybe}", "4:16 invalid-value"),
    "quoted": ("batch_size: {value: '128'}", "4:16 invalid-value"),
    "limit": ("momentum: {values: [0.9, 1.5]}", "4:28 invalid-value"),
    "end": ("batch_size: {min: 1, max: 512}", "4:16 invalid-value"),
    "rounded end": (
        "batch_size: {distribution: q_uniform, min: 3, max: 512, q: 8}",
        "4:41 invalid-value",
    ),
    "fraction": ("batch_size: {min: 16.0, max: 512.0}", "4:3 fractional"),
    "nested": ("momentum: {parameters: {a: {value: 1}}}", "4:3 invalid-value"),
    "unknown": ("batchsize: {value: 128}", "4:3 unknown-parameter"),
}


@pytest.mark.parametrize("case", TRAINER)
def test_what_a_built_in_trainer_would_refuse_is_refused_with_its_place(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    entry, line = TRAINER[case]
    assert refusals(golden, f"trainer: {case}", tmp_path, f"{BUILT_IN}  {entry}\n") == [line]


LISTS = {
    "empty": ("[]\n", "1:1 invalid-value"),
    "entry": ("- batch_size: 128\n", "1:3 invalid-value"),
    "beside": ("- hyperparam_set: {batch_size: 128}\n  when: 1\n", "2:3 unknown-key"),
    "off": ("- hyperparam_set:\n    batch_norm: off\n", "2:5 invalid-value"),
    "unknown": ("- hyperparam_set: {batchsize: 128}\n", "1:20 unknown-parameter"),
    "nan": ("- hyperparam_set:\n    momentum: .nan\n", "2:5 invalid-value"),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_bad_entry_of_a_list_is_one_line(golden: Golden, tmp_path: Path, case: str) -> None:
    text, line = LISTS[case]
    assert refusals(golden, f"list: {case}", tmp_path, text) == [line]


FLAGS = {
    "count": ({"count": 0}, "--count 0 invalid-value"),
    "seed": ({"overrides": {"seed": "-1"}}, "--set seed=-1 invalid-value"),
    "many": (
        {"count": 200_000, "overrides": {"parameters.lr": "{min: 0.0, max: 1.0}"}},
        "--count 200000 too-many-sets",
    ),
    "value": (
        {"overrides": {"parameters.lr.value": ".nan"}},
        "--set parameters.lr.value=.nan invalid-value",
    ),
    "through": ({"overrides": {"method.x.y": "1"}}, "--set method.x.y=1 sweep-file-invalid"),
    "key": ({"overrides": {"..": "1"}}, "--set ..=1 sweep-file-invalid"),
    "unknown": ({"overrides": {"quue": "a"}}, "--set quue=a unknown-key"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_a_bad_flag_is_named_as_it_was_typed(golden: Golden, tmp_path: Path, case: str) -> None:
    flags, line = FLAGS[case]
    assert refusals(golden, f"flag: {case}", tmp_path, GOOD, **flags) == [line]
