"""Bad sweep files: tests/golden/sweep-file-errors.txt has place, text and id of their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import Golden
from tests.support.sweep_files import is_refused, refused_file

HEAD = "program: t.py\nmethod: random\nparameters:\n"  # what follows begins in line 4
BUILT_IN = "trainer: cifar10\nmethod: random\nparameters:\n"

PARAMETERS = {
    "min above max": "lr: {min: 2.0, max: 1.0}",
    "min is max": "lr: {min: 5, max: 5}",
    "min alone": "lr: {min: 5}",
    "max alone": "lr: {max: 5}",
    "no values": "lr: {values: []}",
    "null values": "lr: {values: }",
    "nothing": "lr: {}",
    "null": "lr:",
    "a bare number": "lr: 0.1",
    "a bare list": "lr: [1, 2]",
    "nan": "lr: {min: .nan, max: 1}",
    "nan value": "lr: {values: [1, .nan]}",
    "deep inf": "lr: {value: {a: [.inf]}}",
    "boolean end": "lr: {min: off, max: 1}",
    "text end": "lr: {min: a, max: 1}",
    "unknown key": "lr: {vales: [1]}",
    "a derived parameter": "lr: {derived: 2 * x}",
    "a name": "1lr: {value: 1}",
    "distribution": "lr: {distribution: log_uniform_value, min: 1, max: 2}",
    "log of 0": "lr: {distribution: log_uniform_values, min: 0, max: 1}",
    "step 0": "lr: {distribution: q_uniform, min: 0, max: 1, q: 0}",
    "q alone": "lr: {min: 0, max: 1, q: 1}",
    "q of uniform": "lr: {min: 0, max: 1.5, q: 1}",
    "fraction of an int": "lr: {distribution: int_uniform, min: 0, max: 1.5}",
    "exponent": "lr: {distribution: log_uniform, min: 0, max: 1000}",
    "log_normal": "lr: {distribution: log_normal, sigma: 100}",
    "min of normal": "lr: {distribution: normal, min: 0}",
    "mu alone": "lr: {mu: 1}",
    "sigma": "lr: {distribution: normal, sigma: -1}",
    "value and values": "lr: {value: 1, values: [1]}",
    "probabilities": "lr: {values: [1, 2], probabilities: [0.5]}",
    "probabilities sum": "lr: {values: [1, 2], probabilities: [0.5, 0.6]}",
    "a bare probability": "lr: {probabilities: [1]}",
    "categorical": "lr: {distribution: categorical, values: [1], probabilities: [1]}",
    "missing end": "lr: {distribution: uniform, min: 1}",
    "nested beside": "o: {parameters: {lr: {value: 1}}, value: 2}",
    "nested": "o: {parameters: {lr: {min: 1}}}",
    "nested nothing": "o: {parameters: {}}",
    "NUL": 'lr: {value: "a\\0b"}',
    "64 KiB": f"lr: {{value: {'x' * 70_000}}}",
}

GOOD = "program: t.py\nmethod: random\nparameters: {lr: {value: 1}}\n"  # line 4 comes next
TOP = {
    "unknown": "methd: grid",
    "a budget of a time": "budget: +8h",
    "a budget of a duration": "budget: 8h",
    "a budget of hours": "budget: 8",
    "a budget of a word": "budget: soon",
    "trials": "trials: 3",
    "a sampler as method": "sampler: tpe",
    "a direction": "metric: {name: acc, direction: maximize}",
    "an unset macro": "command: [python, '${env:X}', t.py]",
    "a word for a list": "pass_env: HF_HOME",
    "run_cap": "run_cap: many",
    "run_cap 0": "run_cap: 0",
    "command": "command: python t.py",
    "macro": "command: ['${arg}']",
    "goal": "metric: {name: acc, goal: maximise}",
    "metric": "metric: acc",
    "metric name": "metric: {goal: minimize}",
    "metric of spaces": "metric: {name: ' '}",
    "metric key": "metric: {name: a, gaol: minimize}",
    "target": "metric: {name: a, target: .nan}",
    "metrics of one": "metrics: [{name: a}]",
    "metrics of words": "metrics: [acc, {name: b}]",
    "metrics of none": "metrics: []",
    "metrics of many": f"metrics: [{', '.join(f'{{name: m{i}}}' for i in range(9))}]",
    "metrics alike": "metrics: [{name: a}, {name: a}]",
    "metrics with a target": "metrics: [{name: a, target: 1}, {name: b}]",
    "metric too": "metrics: [{name: a}, {name: b}]\nmetric: {name: a}",
    "metrics keep": "metrics: [{name: a}, {name: b}]\nkeep: {best: 3}",
    "metrics early": "metrics: [{name: a}, {name: b}]\nearly_terminate: {type: asha}",
    "metrics early of another": (
        "metrics: [{name: a}, {name: b}]\nearly_terminate: {type: asha, metric: c}"
    ),
    "constraint": "metric: {name: a}\nconstraints: [a < 3]",
    "constraint of two": "metric: {name: a}\nconstraints: [0 <= a <= 3]",
    "constraint of inf": "metric: {name: a}\nconstraints: ['a <= 1e999']",
    "constraint of nan": "metric: {name: a}\nconstraints: [a <= nan]",
    "constraint of a metric": "metric: {name: a}\nconstraints: [a <= b]",
    "constraint of length": f"metric: {{name: a}}\nconstraints: [a <= {'0' * 300}]",
    "constraint as text": "metric: {name: a}\nconstraints: a <= 1",
    "constraints of none": "metric: {name: a}\nconstraints: []",
    "constraints of many": f"metric: {{name: a}}\nconstraints: [{', '.join(['a <= 1'] * 21)}]",
    "constraint without a metric": "constraints: [a <= 1]",
    "budget of nothing": "budget: {}",
    "budget of 0": "budget: {gpu_hours: 0}",
    "budget of inf": "budget: {gpu_hours: .inf}",
    "budget until a number": "budget: {until: 18:30}",
    "budget until the past": "budget: {until: '2020-01-31T08:00Z'}",
    "budget until no zone": "budget: {until: '2999-01-31T08:00'}",
    "early": "early_terminate: 3",
    "early without metric": "early_terminate: {type: hyperband, min_iter: 3}",
    "early type": "early_terminate: {type: hyperbands}",
    "early untyped": "early_terminate: {min_iter: 3}",
    "early key": "early_terminate: {type: median, eta: 3}",
    "early bands": "metric: {name: a}\nearly_terminate: {type: hyperband, max_iter: 27}",
    "early no bands": "metric: {name: a}\nearly_terminate: {type: hyperband, max_iter: 2, s: 1}",
    "early none": "metric: {name: a}\nearly_terminate: {type: hyperband, eta: 2}",
    "early eta": "metric: {name: a}\nearly_terminate: {type: asha, eta: 1}",
    "scheduler": "scheduler: {}",
    "trainer too": "trainer: digits",
    "resident": "resident: yes",
    "resident word": "resident: 1",
    "preload": "preload: torch",
    "preload path": "preload: [lib/torch.py]",
    "preload none": "preload: []",
    "queue": "queue: A100",
    "timeout": "timeout: 90 minutes",
    "stall": "stall: -1",
    "stall list": "stall: [1]",
    "stall percent": "stall: {gpu_below: 101, for: 30m}",
    "stall no time": "stall: {gpu_below: 10, for: 0}",
    "stall without for": "stall: {gpu_below: 10}",
    "stall key": "stall: {gpu_below: 10, for: 30m, cpu: 1}",
    "pass_env": "pass_env: [HPQ_CODE_KEY]",
    "order": "order: shufle",
    "history": "history: ALL",
    "name": "name: 7",
    "no name": "name:",
    "blank": "code: ' '",
}

WHOLE = {
    "a word": "hello\n",
    "nothing named": "method: grid\nparameters: {a: {value: 1}}\n",
    "a command alone": (
        "command: [python, '${program}']\nmethod: grid\nparameters: {a: {value: 1}}\n"
    ),
    "no method": "program: t.py\n",
    "custom": "program: t.py\nmethod: custom\nparameters: {a: {value: 1}}\n",
    "bayes": "program: t.py\nmethod: bayes\nparameters: {a: {value: 1}}\n",
    "trainer": "trainer: cifar\nmethod: grid\nparameters: {a: {value: 1}}\n",
    "function": "trainer: 'my module:f'\nmethod: grid\nparameters: {a: {value: 1}}\n",
    "sampler of one metric": (
        "program: t.py\nmethod: bayes\nparameters: {a: {min: 0.0, max: 1.0}}\nsampler: cmaes\n"
        "metrics: [{name: a}, {name: b}]\n"
    ),
    "grid of a range": "program: t.py\nmethod: grid\nparameters:\n  lr: {min: 0.0, max: 1.0}\n",
    "grid of 10^9": (
        "program: t.py\nmethod: grid\nparameters:\n"
        + "".join(f"  {c}: {{min: 1, max: 1000}}\n" for c in "abc")
    ),
    "large sets": (
        "program: t.py\nmethod: grid\nparameters:\n"
        + "".join(f"  {c}: {{values: [1, {'x' * 40_000}]}}\n" for c in "ab")
    ),
    "many parameters": (
        "program: t.py\nmethod: random\nrun_cap: 2\nparameters:\n"
        + "".join(f"  parameter_{n}: {{min: 0.0, max: 1.0}}\n" for n in range(2000))
    ),
    "several": (
        "program: t.py\nmethod: grd\nparameters:\n  a: {min: 1}\n  b: {vals: [1]}\nqueue: X Y\n"
    ),
}

TRAINER = {
    "off": "batch_norm: {values: [on, 'off']}",
    "word": "batch_norm: {value: maybe}",
    "quoted": "batch_size: {value: '128'}",
    "limit": "momentum: {values: [0.9, 1.5]}",
    "end": "batch_size: {min: 1, max: 512}",
    "rounded end": "batch_size: {distribution: q_uniform, min: 3, max: 512, q: 8}",
    "fraction": "batch_size: {min: 16.0, max: 512.0}",
    "nested": "momentum: {parameters: {a: {value: 1}}}",
    "unknown": "batchsize: {value: 128}",
}

LISTS = {
    "empty": "[]\n",
    "entry": "- batch_size: 128\n",
    "beside": "- hyperparam_set: {batch_size: 128}\n  when: 1\n",
    "off": "- hyperparam_set:\n    batch_norm: off\n",
    "unknown": "- hyperparam_set: {batchsize: 128}\n",
    "nan": "- hyperparam_set:\n    momentum: .nan\n",
}

FLAGS = {
    "count": {"count": 0},
    "seed": {"overrides": {"seed": "-1"}},
    "many": {"count": 200_000, "overrides": {"parameters.lr": "{min: 0.0, max: 1.0}"}},
    "value": {"overrides": {"parameters.lr.value": ".nan"}},
    "through": {"overrides": {"method.x.y": "1"}},
    "key": {"overrides": {"..": "1"}},
    "unknown": {"overrides": {"quue": "a"}},
}

FILES = {
    **{f"parameter: {case}": f"{HEAD}  {entry}\n" for case, entry in PARAMETERS.items()},
    **{f"top: {case}": f"{GOOD}{entry}\n" for case, entry in TOP.items()},
    **{f"file: {case}": text for case, text in WHOLE.items()},
    **{f"trainer: {case}": f"{BUILT_IN}  {entry}\n" for case, entry in TRAINER.items()},
    **{f"list: {case}": text for case, text in LISTS.items()},
}


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_is_refused_with_all_that_is_wrong_in_its_order(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    """B3, B4: ranges, distributions, steps and choices that cannot be."""
    is_refused(golden, case, tmp_path, FILES[case])


@pytest.mark.parametrize("case", FLAGS)
def test_a_bad_flag_is_named_as_it_was_typed(golden: Golden, tmp_path: Path, case: str) -> None:
    is_refused(golden, f"flag: {case}", tmp_path, GOOD, **FLAGS[case])


@pytest.mark.parametrize("name", ["-x", " x", "x" * 300, "", "a\x1bb", "\u202ex"])
def test_a_name_that_is_no_name_is_refused_from_the_flag_too(tmp_path: Path, name: str) -> None:
    """B5: names with slashes, spaces, leading dashes, 300 characters, accents."""
    (one,) = refused_file(tmp_path, GOOD, name=name).notices
    assert one.code == "invalid-value"
    assert one.text.startswith("--name ") and ": name: " in one.text and one.text.isprintable()


def test_only_the_first_ten_errors_are_shown(tmp_path: Path) -> None:
    found = refused_file(tmp_path, GOOD + "".join(f"metho{i}: 1\n" for i in range(14))).notices
    assert [one.code for one in found] == ["unknown-key"] * 10 + ["more-problems"]
    assert "s.yaml:13:1: metho9: " in found[9].text and "4" in found[10].text
