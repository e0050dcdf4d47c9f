"""Bad sweep files: each gets the whole line that it should, and all of a file's errors at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.errors import SweepFileError
from hpq_producer.sweepfile.load import load

HEAD = "program: t.py\nmethod: random\nparameters:\n"  # what follows begins in line 4
SHIPPED = "trainer: cifar10\nmethod: random\nparameters:\n"


def complaint(tmp_path: Path, text: str, **flags: object) -> list[str]:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SweepFileError) as caught:
        load(file, **flags)  # type: ignore[arg-type]
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).split("\n")]


PARAMETERS = {
    "min above max": (
        "lr: {min: 2.0, max: 1.0}",
        "4:8: parameters.lr.min: 2.0 is not below max 1.0",
    ),
    "min is max": ("lr: {min: 5, max: 5}", "4:8: parameters.lr.min: 5 is not below max 5"),
    "min alone": ("lr: {min: 5}", "4:3: parameters.lr: min without max; give both"),
    "max alone": ("lr: {max: 5}", "4:3: parameters.lr: max without min; give both"),
    "no values": (
        "lr: {values: []}",
        "4:8: parameters.lr.values: [] is not a list of at least one value",
    ),
    "null values": (
        "lr: {values: }",
        "4:8: parameters.lr.values: null is not a list of at least one value",
    ),
    "nothing": ("lr: {}", "4:3: parameters.lr: empty; write value, values, or min and max"),
    "null": ("lr:", "4:3: parameters.lr: null stands alone; write {value: null}"),
    "a bare number": ("lr: 0.1", "4:3: parameters.lr: 0.1 stands alone; write {value: 0.1}"),
    "a bare list": (
        "lr: [1, 2]",
        "4:3: parameters.lr: [1, 2] stands alone; write {values: [1, 2]}",
    ),
    "nan": ("lr: {min: .nan, max: 1}", "4:8: parameters.lr.min: nan is not a number"),
    "nan value": (
        "lr: {values: [1, .nan]}",
        "4:20: parameters.lr.values[1]: nan is not a finite number",
    ),
    "deep inf": (
        "lr: {value: {a: [.inf]}}",
        "4:8: parameters.lr.value: a[0]: inf is not a finite number",
    ),
    "boolean end": ("lr: {min: off, max: 1}", "4:8: parameters.lr.min: false is not a number"),
    "text end": ("lr: {min: a, max: 1}", "4:8: parameters.lr.min: 'a' is not a number"),
    "unknown key": (
        "lr: {vales: [1]}",
        "4:8: parameters.lr.vales: unknown key; did you mean 'values'?",
    ),
    "a name": (
        "1lr: {value: 1}",
        "4:3: parameters.1lr: not a parameter name; "
        "use 1 to 100 of A-Z a-z 0-9 _ . -, a letter or _ first",
    ),
    "distribution": (
        "lr: {distribution: log_uniform_value, min: 1, max: 2}",
        "4:8: parameters.lr.distribution: 'log_uniform_value' is not one of constant, "
        "categorical, categorical_w_probabilities, int_uniform, uniform, q_uniform, "
        "log_uniform_values, q_log_uniform_values, inv_log_uniform_values, log_uniform, "
        "q_log_uniform, inv_log_uniform, normal, q_normal, log_normal, q_log_normal, beta, q_beta; "
        "did you mean 'log_uniform_values'?",
    ),
    "log of 0": (
        "lr: {distribution: log_uniform_values, min: 0, max: 1}",
        "4:42: parameters.lr.min: 0 is not above 0, which log_uniform_values wants",
    ),
    "step 0": (
        "lr: {distribution: q_uniform, min: 0, max: 1, q: 0}",
        "4:49: parameters.lr.q: 0 is not a number above 0",
    ),
    "q alone": (
        "lr: {min: 0, max: 1, q: 1}",
        "4:24: parameters.lr.q: does not go with int_uniform, which takes min, max",
    ),
    "q of uniform": (
        "lr: {min: 0, max: 1.5, q: 1}",
        "4:26: parameters.lr.q: does not go with uniform, which takes min, max "
        "(write distribution: q_uniform)",
    ),
    "fraction of an int": (
        "lr: {distribution: int_uniform, min: 0, max: 1.5}",
        "4:43: parameters.lr.max: 1.5 is not a whole number, which int_uniform wants",
    ),
    "exponent": (
        "lr: {distribution: log_uniform, min: 0, max: 1000}",
        "4:43: parameters.lr.max: 1000 is not an exponent from -700 to 700 (natural logarithm)",
    ),
    "log_normal": (
        "lr: {distribution: log_normal, sigma: 100}",
        "4:34: parameters.lr.sigma: 100 is too far: values are e to the power of it",
    ),
    "min of normal": (
        "lr: {distribution: normal, min: 0}",
        "4:30: parameters.lr.min: does not go with normal, which takes mu, sigma",
    ),
    "mu alone": (
        "lr: {mu: 1}",
        "4:3: parameters.lr: mu without a distribution; write distribution: normal, …",
    ),
    "sigma": (
        "lr: {distribution: normal, sigma: -1}",
        "4:30: parameters.lr.sigma: -1 is not a number of at least 0",
    ),
    "value and values": (
        "lr: {value: 1, values: [1]}",
        "4:18: parameters.lr.values: does not go with constant, which takes value",
    ),
    "probabilities": (
        "lr: {values: [1, 2], probabilities: [0.5]}",
        "4:24: parameters.lr.probabilities: 1 for 2 values; give each one",
    ),
    "probabilities sum": (
        "lr: {values: [1, 2], probabilities: [0.5, 0.6]}",
        "4:24: parameters.lr.probabilities: they sum to 1.1; they have to sum to 1",
    ),
    "a bare probability": (
        "lr: {probabilities: [1]}",
        "4:3: parameters.lr: probabilities without values",
    ),
    "categorical": (
        "lr: {distribution: categorical, values: [1], probabilities: [1]}",
        "4:48: parameters.lr.probabilities: does not go with categorical, which takes values "
        "(write distribution: categorical_w_probabilities)",
    ),
    "missing end": (
        "lr: {distribution: uniform, min: 1}",
        "4:3: parameters.lr: uniform needs max",
    ),
    "nested beside": (
        "o: {parameters: {lr: {value: 1}}, value: 2}",
        "4:37: parameters.o.value: cannot stand beside parameters (a nested parameter)",
    ),
    "nested": (
        "o: {parameters: {lr: {min: 1}}}",
        "4:20: parameters.o.parameters.lr: min without max; give both",
    ),
    "nested nothing": (
        "o: {parameters: {}}",
        "4:7: parameters.o.parameters: {} is not a mapping of parameters; "
        "write name: {values: […]}",
    ),
    "NUL": (
        'lr: {value: "a\\0b"}',
        "4:8: parameters.lr.value: 'a\\x00b' holds a character that no program can be given",
    ),
    "64 KiB": (
        f"lr: {{value: {'x' * 70_000}}}",
        "4:8: parameters.lr.value: a set of 70,012 bytes; at most 65,536 are taken",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_bad_parameter_is_one_line(tmp_path: Path, case: str) -> None:
    """B3, B4: ranges, distributions, steps and choices that cannot be."""
    entry, line = PARAMETERS[case]
    assert complaint(tmp_path, f"{HEAD}  {entry}\n") == [f"s.yaml:{line}"]


GOOD = "program: t.py\nmethod: random\nparameters: {lr: {value: 1}}\n"  # line 4 comes next
TOP = {
    "unknown": ("methd: grid", "4:1: methd: unknown key; did you mean 'method'?"),
    "run_cap": ("run_cap: many", "4:1: run_cap: 'many' is not a whole number from 1 to "
                "2,147,483,648"),
    "run_cap 0": ("run_cap: 0", "4:1: run_cap: 0 is not a whole number from 1 to 2,147,483,648"),
    "command": (
        "command: python t.py",
        "4:1: command: 'python t.py' is not a list of words, such as "
        '["${env}", "python", "${program}", "${args}"]',
    ),
    "macro": (
        "command: ['${arg}']",
        "4:11: command[0]: no macro '${arg}'; did you mean '${args}'?",
    ),
    "goal": (
        "metric: {name: acc, goal: maximise}",
        "4:21: metric.goal: 'maximise' is not one of minimize, maximize; did you mean 'maximize'?",
    ),
    "metric": ("metric: acc", "4:1: metric: 'acc' is not a mapping; write {name: …}"),
    "metric name": ("metric: {goal: minimize}", "4:1: metric: needs name"),
    "metric key": (
        "metric: {name: a, gaol: minimize}",
        "4:19: metric.gaol: unknown key; did you mean 'goal'?",
    ),
    "target": ("metric: {name: a, target: .nan}", "4:19: metric.target: nan is not a number"),
    "early": (
        "early_terminate: 3",
        "4:1: early_terminate: 3 is not a mapping; write {type: hyperband, min_iter: 3}",
    ),
    "early without metric": (
        "early_terminate: {type: hyperband, min_iter: 3}",
        "4:1: early_terminate: needs a metric; write metric: {name: …, goal: …}",
    ),
    "early type": (
        "early_terminate: {type: hyperbands}",
        "4:19: early_terminate.type: 'hyperbands' is not one of hyperband, asha, median;"
        " did you mean 'hyperband'?",
    ),
    "early untyped": (
        "early_terminate: {min_iter: 3}",
        "4:1: early_terminate: needs type: hyperband, asha or median",
    ),
    "early key": (
        "early_terminate: {type: median, eta: 3}",
        "4:33: early_terminate.eta: unknown key; allowed: type, min_iter, min_trials",
    ),
    "early bands": (
        "metric: {name: a}\nearly_terminate: {type: hyperband, max_iter: 27}",
        "5:1: early_terminate: max_iter needs s, the number of bands below it;"
        " or write min_iter alone",
    ),
    "early no bands": (
        "metric: {name: a}\nearly_terminate: {type: hyperband, max_iter: 2, s: 1}",
        "5:36: early_terminate.max_iter: no band lies below it and is at least 1;"
        " a larger one, please",
    ),
    "early none": (
        "metric: {name: a}\nearly_terminate: {type: hyperband, eta: 2}",
        "5:1: early_terminate: needs min_iter, or max_iter with s",
    ),
    "early eta": (
        "metric: {name: a}\nearly_terminate: {type: asha, eta: 1}",
        "5:31: early_terminate.eta: 1 is not a number above 1",
    ),
    "scheduler": ("scheduler: {}", "4:1: scheduler: not taken: hpq is the scheduler; remove it"),
    "trainer too": (
        "trainer: digits",
        "4:1: trainer: cannot stand beside program; keep the one that is to run",
    ),
    "resident": ("resident: yes", "4:1: resident: only a trainer can stay between trials; "
                 "remove it"),
    "resident word": ("resident: 1", "4:1: resident: 1 is not true or false"),
    "queue": (
        "queue: A100",
        "4:1: queue: 'A100' cannot be used; use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends",
    ),
    "timeout": (
        "timeout: 90 minutes",
        "4:1: timeout: '90 minutes' is not a duration; write seconds, or 90s, 15m, 2h "
        "(at most a year)",
    ),
    "stall": (
        "stall: -1",
        "4:1: stall: -1 is not a duration; write seconds, or 90s, 15m, 2h (at most a year)",
    ),
    "pass_env": (
        "pass_env: [HPQ_CODE_KEY]",
        "4:1: pass_env: 'HPQ_CODE_KEY' cannot be used; use names of environment variables, "
        "but not hpq's own (HPQ_…)",
    ),
    "order": ("order: shufle", "4:1: order: 'shufle' is not one of grid, shuffle; "
              "did you mean 'shuffle'?"),
    "name": ("name: 7", "4:1: name: 7 is not text; write it in quotes"),
    "no name": ("name:", "4:1: name: null is not text; write it in quotes"),
    "blank": ("code: ' '", "4:1: code: empty; write some text or remove the key"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOP)
def test_a_bad_key_of_the_top_is_one_line(tmp_path: Path, case: str) -> None:
    entry, line = TOP[case]
    assert complaint(tmp_path, f"{GOOD}{entry}\n") == [f"s.yaml:{line}"]


@pytest.mark.parametrize("name", ["-x", " x", "x" * 300, "", "a\x1bb", "\u202ex"])
def test_a_name_that_is_no_name_is_refused_from_the_flag_too(tmp_path: Path, name: str) -> None:
    """B5: names with slashes, spaces, leading dashes, 300 characters, accents."""
    (line,) = complaint(tmp_path, GOOD, name=name)
    assert line.startswith("--name ") and ": name: " in line and line.isprintable()


WHOLE = {
    "a word": ("hello\n", ["1:1: 'hello' is not a sweep; write method and parameters"]),
    "nothing named": (
        "method: grid\nparameters: {a: {value: 1}}\n",
        [
            "1:1: names no code; write program: train.py, or trainer: one of cifar10, "
            "cifar10-fast, mnist, digits"
        ],
    ),
    "a command alone": (
        "command: [python, '${program}']\nmethod: grid\nparameters: {a: {value: 1}}\n",
        ["1:19: command[1]: there is no program; write program: train.py"],
    ),
    "no method": (
        "program: t.py\n",
        [
            "1:1: method: missing; write grid, random or bayes",
            "1:1: parameters: missing; write at least one, such as lr: {values: [0.1, 0.01]}",
        ],
    ),
    "custom": (
        "program: t.py\nmethod: custom\nparameters: {a: {value: 1}}\n",
        ["2:1: method: custom is for engines inside W&B; write grid, random or bayes"],
    ),
    "bayes": (
        "program: t.py\nmethod: bayes\nparameters: {a: {value: 1}}\n",
        ["1:1: metric: missing; bayes needs {name: …, goal: minimize or maximize}"],
    ),
    "trainer": (
        "trainer: cifar\nmethod: grid\nparameters: {a: {value: 1}}\n",
        [
            "1:1: trainer: 'cifar' is not one of cifar10, cifar10-fast, mnist, digits, "
            "nor package.module:function; did you mean 'cifar10'?"
        ],
    ),
    "function": (
        "trainer: 'my module:f'\nmethod: grid\nparameters: {a: {value: 1}}\n",
        [
            "1:1: trainer: 'my module:f' is not one of cifar10, cifar10-fast, mnist, digits, "
            "nor package.module:function"
        ],
    ),
    "grid of a range": (
        "program: t.py\nmethod: grid\nparameters:\n  lr: {min: 0.0, max: 1.0}\n",
        ["4:3: parameters.lr: a grid cannot step through it; give values, or write method: random"],
    ),
    "grid of 10^9": (
        "program: t.py\nmethod: grid\nparameters:\n"
        + "".join(f"  {c}: {{min: 1, max: 1000}}\n" for c in "abc"),
        [
            "3:1: parameters: 1,000,000,000 sets, more than 100,000; use fewer values, "
            "method: random with a smaller run_cap, or --force"
        ],
    ),
    "large sets": (
        "program: t.py\nmethod: grid\nparameters:\n"
        + "".join(f"  {c}: {{values: [1, {'x' * 40_000}]}}\n" for c in "ab"),
        ["3:1: parameters: a set of up to 80,014 bytes; at most 65,536"],
    ),
    "several": (
        "program: t.py\nmethod: grd\nparameters:\n  a: {min: 1}\n  b: {vals: [1]}\nqueue: X Y\n",
        [
            "2:1: method: 'grd' is not one of grid, random, bayes; did you mean 'grid'?",
            "4:3: parameters.a: min without max; give both",
            "5:7: parameters.b.vals: unknown key; did you mean 'values'?",
            "6:1: queue: 'X Y' cannot be used; use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends",
        ],
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_bad_file_tells_all_that_is_wrong_in_its_order(tmp_path: Path, case: str) -> None:
    text, lines = WHOLE[case]
    assert complaint(tmp_path, text) == [f"s.yaml:{line}" for line in lines]


def test_only_the_first_ten_errors_are_shown(tmp_path: Path) -> None:
    lines = complaint(tmp_path, GOOD + "".join(f"x{i}: 1\n" for i in range(14)))
    assert len(lines) == 11
    assert lines[9].startswith("s.yaml:13:1: x9: unknown key")
    assert lines[10] == "s.yaml: and 4 more"


TRAINER = {
    "off": (
        "batch_norm: {values: [on, 'off']}",
        "4:25: parameters.batch_norm.values[0]: an unquoted on is a YAML boolean; "
        "write 'on' with quotes",
    ),
    "word": (
        "batch_norm: {value: maybe}",
        "4:16: parameters.batch_norm.value: 'maybe' is not one of on, off",
    ),
    "limit": (
        "momentum: {values: [0.9, 1.5]}",
        "4:28: parameters.momentum.values[1]: 1.5 is not a number from 0 to 0.9999",
    ),
    "end": (
        "batch_size: {min: 1, max: 512}",
        "4:16: parameters.batch_size.min: 1 is not a whole number from 2 to 65536",
    ),
    "rounded end": (
        "batch_size: {distribution: q_uniform, min: 3, max: 512, q: 8}",
        "4:41: parameters.batch_size.min: 0 is not a whole number from 2 to 65536",
    ),
    "fraction": (
        "batch_size: {min: 16.0, max: 512.0}",
        "4:3: parameters.batch_size: draws fractions of a whole number; use int_uniform, or q: 1",
    ),
    "nested": (
        "momentum: {parameters: {a: {value: 1}}}",
        "4:3: parameters.momentum: nested; trainer cifar10 takes plain values",
    ),
    "unknown": (
        "batchsize: {value: 128}",
        "4:3: parameters.batchsize: trainer cifar10 has no such parameter; "
        "did you mean 'batch_size'? it has seed, epochs, batch_size, momentum, max_learning_rate, "
        "data_aug_cutout_size, batch_norm, weight_decay, width, train_images, test_images",
    ),
}


@pytest.mark.parametrize("case", TRAINER)
def test_what_a_shipped_trainer_would_refuse_is_refused_with_its_place(
    tmp_path: Path, case: str
) -> None:
    entry, line = TRAINER[case]
    assert complaint(tmp_path, f"{SHIPPED}  {entry}\n") == [f"s.yaml:{line}"]


LISTS = {
    "empty": (
        "[]\n",
        "1:1: an empty list; write entries such as - hyperparam_set: {batch_size: 128}",
    ),
    "entry": (
        "- batch_size: 128\n",
        "1:3: [0]: {'batch_size': 128} is not an entry; write - hyperparam_set: {batch_size: 128}",
    ),
    "beside": (
        "- hyperparam_set: {batch_size: 128}\n  when: 1\n",
        "2:3: [0].when: unknown key; an entry has hyperparam_set alone",
    ),
    "off": (
        "- hyperparam_set:\n    batch_norm: off\n",
        "2:5: [0].hyperparam_set.batch_norm: an unquoted off is a YAML boolean; "
        "write 'off' with quotes",
    ),
    "nan": (
        "- hyperparam_set:\n    momentum: .nan\n",
        "2:5: [0].hyperparam_set.momentum: nan is not a finite number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LISTS)
def test_a_bad_entry_of_a_list_is_one_line(tmp_path: Path, case: str) -> None:
    text, line = LISTS[case]
    assert complaint(tmp_path, text) == [f"s.yaml:{line}"]


FLAGS = {
    "count": ({"count": 0}, "--count 0: run_cap: 0 is not a whole number from 1 to 2,147,483,648"),
    "seed": (
        {"seed": -1},
        "--seed -1: seed: -1 is not a whole number from 0 to 9,223,372,036,854,775,807",
    ),
    "many": (
        {"count": 200_000, "overrides": {"parameters.lr": "{min: 0.0, max: 1.0}"}},
        "--count 200000: run_cap: 200,000 sets, more than 100,000; use fewer values, "
        "method: random with a smaller run_cap, or --force",
    ),
    "value": (
        {"overrides": {"parameters.lr.value": ".nan"}},
        "--set parameters.lr.value=.nan: parameters.lr.value: nan is not a finite number",
    ),
    "through": (
        {"overrides": {"method.x.y": "1"}},
        "--set method.x.y=1: method is not a mapping; set method itself",
    ),
    "key": (
        {"overrides": {"..": "1"}},
        "--set ..=1: write --set KEY=VALUE, such as parameters.lr.min=0.1",
    ),
    "unknown": ({"overrides": {"quue": "a"}}, "--set quue=a: quue: unknown key; "
                "did you mean 'queue'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAGS)
def test_a_bad_flag_is_named_as_it_was_typed(tmp_path: Path, case: str) -> None:
    flags, line = FLAGS[case]
    assert complaint(tmp_path, GOOD, **flags) == [line]
