"""when, exclude and points: what exists in a set, what is left out, what comes first."""

from __future__ import annotations

import json
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hpq.errors import SweepFileError
from hpq.search.conditions import MISSING, find
from hpq.search.samplers import Search
from hpq.store.wire.search import decode_search, encode_search
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import parameter_sets
from tests.support.golden import Golden
from tests.support.sweep_files import is_refused, refused_file, spec_of

OPTIMIZERS = """
program: t.py
method: {method}
parameters:
  optimizer: {{values: [adam, sgd]}}
  momentum: {{values: [0.5, 0.9]}}
  nesterov: {{values: [true, false]}}
  lr: {{values: [0.1, 0.01]}}
when:
  momentum: {{optimizer: sgd}}
  nesterov: {{momentum: 0.9}}
"""


def test_a_parameter_exists_only_under_its_condition(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, OPTIMIZERS.format(method="grid"))
    assert [json.dumps(params) for params in parameter_sets(spec)] == [
        # What conditions ask about varies slowest: momentum, then optimizer.
        '{"optimizer": "adam", "lr": 0.1}',
        '{"optimizer": "adam", "lr": 0.01}',
        '{"optimizer": "sgd", "momentum": 0.5, "lr": 0.1}',
        '{"optimizer": "sgd", "momentum": 0.5, "lr": 0.01}',
        '{"optimizer": "sgd", "momentum": 0.9, "nesterov": true, "lr": 0.1}',
        '{"optimizer": "sgd", "momentum": 0.9, "nesterov": false, "lr": 0.1}',
        '{"optimizer": "sgd", "momentum": 0.9, "nesterov": true, "lr": 0.01}',
        '{"optimizer": "sgd", "momentum": 0.9, "nesterov": false, "lr": 0.01}',
    ]
    assert spec.trials == 8
    assert spec.varying == ("optimizer", "momentum", "nesterov", "lr")


@pytest.mark.parametrize("method", ["grid", "random"])
def test_random_draws_each_set_of_a_conditional_space_once_and_ends(
    tmp_path: Path, method: str
) -> None:
    every = {
        params.identity
        for params in parameter_sets(spec_of(tmp_path, OPTIMIZERS.format(method=method)))
    }
    assert len(every) == 8


def test_a_nested_group_exists_as_a_whole(tmp_path: Path) -> None:
    text = """
program: t.py
method: grid
parameters:
  kind: {values: [cnn, mlp]}
  cnn: {parameters: {width: {values: [8, 16]}, pool: {parameters: {size: {values: [2, 3]}}}}}
when:
  cnn: {kind: cnn}
  cnn.pool: {cnn.width: {min: 10}}
"""
    found = list(parameter_sets(spec_of(tmp_path, text)))
    assert {"kind": "mlp"} in found
    assert {"cnn": {"width": 8}, "kind": "cnn"} in found
    assert {"cnn": {"pool": {"size": 3}, "width": 16}, "kind": "cnn"} in found
    assert len(found) == 4


def test_a_wide_space_of_conditions_is_counted_without_being_made(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(9)]
    spec = spec_of(
        tmp_path,
        "program: t.py\nmethod: grid\nparameters:\n"
        "  which: {values: [a, b, c]}\n"
        + "".join(f"  {n}: {{values: [1, 2, 3, 4, 5]}}\n" for n in names)
        + "when:\n"
        + "".join(f"  {n}: {{which: {'abc'[i % 3]}}}\n" for i, n in enumerate(names)),
    )
    assert spec.trials == 3 * 5**3 == len(list(parameter_sets(spec)))


def test_excluded_sets_are_left_out_and_the_order_stays(tmp_path: Path) -> None:
    text = """
program: t.py
method: grid
parameters:
  a: {values: [1, 2, 3]}
  b: {min: 1, max: 3}
exclude:
  - {a: 2, b: [1, 3]}
  - {b: {min: 2, max: 2.5}, a: 1}
"""
    spec = spec_of(tmp_path, text)
    wanted = [
        {"a": a, "b": b}
        for a, b in product([1, 2, 3], [1, 2, 3])
        if not (a == 2 and b in (1, 3)) and not (a == 1 and b == 2)
    ]
    assert list(parameter_sets(spec)) == wanted
    assert spec.trials == len(wanted)
    shuffled = spec_of(tmp_path, f"{text}order: shuffle\n")
    assert sorted(map(str, parameter_sets(shuffled))) == sorted(map(str, wanted))
    assert list(parameter_sets(shuffled)) != wanted


def test_random_draws_nothing_that_is_excluded(tmp_path: Path) -> None:
    text = """
program: t.py
method: random
parameters:
  lr: {min: 0.0, max: 1.0}
  opt: {values: [sgd, adam]}
exclude: [{opt: sgd, lr: {min: 0.5}}]
"""
    spec = spec_of(tmp_path, text)
    drawn = list(islice(parameter_sets(spec), 200))
    assert spec.trials is None
    assert all(s["opt"] == "adam" or s["lr"] < 0.5 for s in drawn)  # type: ignore[operator]
    assert {s["opt"] for s in drawn} == {"sgd", "adam"}


FINITE = {
    "weighted": ("{values: [a, b, c], probabilities: [0.999, 0.001, 0.0]}", 2),
    "q_uniform": ("{distribution: q_uniform, min: 0.1, max: 1, q: 0.25}", 5),
    "q_log": ("{distribution: q_log_uniform_values, min: 1, max: 9, q: 2}", 4),
    "q_beta": ("{distribution: q_beta, a: 9, b: 0.5, q: 0.25}", 5),
}


@pytest.mark.parametrize("case", FINITE)
def test_random_over_a_finite_space_draws_each_value_once_and_ends(
    tmp_path: Path, case: str
) -> None:
    entry, number = FINITE[case]
    spec = spec_of(tmp_path, f"program: t.py\nmethod: random\nparameters: {{p: {entry}}}\n")
    assert spec.trials == number == len({params.identity for params in parameter_sets(spec)})


def test_points_come_first_and_are_not_run_twice(tmp_path: Path) -> None:
    text = """
program: t.py
method: grid
parameters:
  a: {values: [1, 2]}
  b: {values: [x, y]}
  c: {value: 7}
  in: {parameters: {d: {values: [3, 4]}}}
points:
  - {a: 2, b: y, in: {d: 4}}
  - {a: 1, b: y, in.d: 3, c: 7}
"""
    spec = spec_of(tmp_path, text)
    found = list(parameter_sets(spec))
    assert found[:2] == [
        {"a": 2, "b": "y", "c": 7, "in": {"d": 4}},
        {"a": 1, "b": "y", "c": 7, "in": {"d": 3}},
    ]
    assert len(found) == spec.trials == 8 == len({s.identity for s in found})


def test_a_point_of_a_continuous_space_counts_towards_run_cap(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: random\nparameters: {lr: {min: 0.0, max: 1.0}}\nrun_cap: 3\n"
    spec = spec_of(tmp_path, f"{text}points: [{{lr: 0.25}}]\n")
    assert next(parameter_sets(spec)) == {"lr": 0.25}
    assert list(parameter_sets(spec))[1:] == list(parameter_sets(spec_of(tmp_path, text)))[:2]


def test_a_point_need_not_give_what_does_not_exist_in_it(tmp_path: Path) -> None:
    text = OPTIMIZERS.format(method="random") + "points: [{optimizer: adam, lr: 0.1}]\n"
    first = next(parameter_sets(spec_of(tmp_path, text)))
    assert find(first, ("momentum",)) is MISSING


HEAD = """program: t.py
method: random
parameters:
  lr: {min: 0.0, max: 1.0}
  opt: {values: [sgd, adam]}
  mom: {values: [0.5, 0.9]}
"""  # the next line is the seventh
WRONG = {
    "no mapping": "when: mom",
    "unknown parameter": "when: {momm: {opt: sgd}}",
    "unknown name": "when: {mom: {optim: sgd}}",
    "unknown value": "when: {mom: {opt: sdg}}",
    "unknown values": "when: {mom: {opt: [sgd, sdg]}}",
    "a bare word": "when: {mom: sgd}",
    "no values": "when: {mom: {opt: []}}",
    "continuous": "when: {mom: {lr: 0.1}}",
    "range": "when: {opt: {mom: {min: 1}}}",
    "range key": "when: {mom: {lr: {mn: 1}}}",
    "itself": "when: {mom: {mom: 0.5}}",
    "a circle": "when: {mom: {opt: sgd}, opt: {mom: 0.5}}",
    "exclude no list": "exclude: {opt: sgd}",
    "exclude a value": "exclude: [{opt: rms}]",
    "exclude all": "exclude: [{opt: [sgd, adam]}]",
    "points no list": "points: {lr: 1}",
    "a point too short": "points: [{lr: 1}]",
    "a point outside": "points: [{lr: 2, opt: sgd, mom: 0.5}]",
    "a point unknown": "points: [{lr: 1, opt: sgd, mom: 0.5, momm: 0.5}]",
    "a point excluded": "exclude: [{mom: 0.5}]\npoints: [{lr: 1, opt: sgd, mom: 0.5}]",
    "a point with what is not there": (
        "when: {mom: {opt: sgd}}\npoints: [{lr: 1, opt: adam, mom: 0.5}]"
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_names_nothing_or_leaves_nothing_is_an_error(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    is_refused(golden, f"conditions: {case}", tmp_path, f"{HEAD}{WRONG[case]}\n")


def test_a_grid_that_exclude_empties_is_an_error(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters: {a: {min: 1, max: 4}, b: {values: [1, 2]}}\n"
    (one,) = refused_file(tmp_path, f"{text}exclude: [{{a: [1, 2]}}, {{a: {{min: 3}}}}]\n").notices
    assert one.code == "no-set-left" and "s.yaml:4:1: exclude: " in one.text


def test_a_condition_over_more_than_can_be_gone_through_is_an_error(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters: {a: {min: 1, max: 999999}, b: {value: 2}}\n"
    (one,) = refused_file(tmp_path, f"{text}exclude: [{{a: {{min: 7}}}}]\n").notices
    assert "s.yaml:4:1: exclude: " in one.text and "999,999" in one.text


def test_a_grid_too_large_to_be_gone_through_is_an_error(tmp_path: Path) -> None:
    space = "{a: {min: 1, max: 9999}, b: {min: 1, max: 9999}, c: {values: [1, 2]}}"
    text = f"program: t.py\nmethod: grid\nparameters: {space}\nexclude: [{{a: {{min: 3}}}}]\n"
    (one,) = refused_file(tmp_path, text).notices
    assert "s.yaml:4:1: exclude: " in one.text and "199,960,002" in one.text


@pytest.mark.parametrize("seed", range(8))
def test_a_space_has_as_many_sets_as_are_counted(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    names = "abcdef"
    entries = {n: {"values": list(range(rng.randint(1, 4)))} for n in names}

    def partial(known: str) -> dict[str, Any]:
        asked = rng.sample(known, rng.randint(1, min(2, len(known))))
        return {n: rng.sample(entries[n]["values"], 1) for n in asked}

    # Each name may ask about those before it in a shuffled order: no circles.
    order = rng.sample(names, len(names))
    when = {order[i]: partial("".join(order[:i])) for i in (2, 3, 5)}
    file = {"program": "t.py", "method": "grid", "parameters": entries, "when": when,
            "exclude": [partial(names) for _ in range(3)]}  # fmt: skip
    try:
        spec = spec_of(tmp_path, json.dumps(file))
    except SweepFileError as error:
        assert [one.code for one in error.notices] == ["no-set-left"]
        return
    found = list(parameter_sets(spec))
    assert len(found) == spec.trials == len({params.identity for params in found})
    drawn = spec_of(tmp_path, json.dumps({**file, "method": "random"}))
    assert {p.identity for p in parameter_sets(drawn)} == {p.identity for p in found}


@pytest.mark.parametrize("key", ["when: {a: {a: 1}}", "exclude: [{a: 1}]", "points: [{a: 1}]"])
def test_a_list_of_sets_takes_none_of_them(tmp_path: Path, key: str) -> None:
    name = key.partition(":")[0]
    file = tmp_path / "s.yaml"
    file.write_text("- hyperparam_set: {batch_size: 128}\n")
    with pytest.raises(SweepFileError, match=f"--set {name}=.*: {name}: "):
        load(file, overrides={name: key.partition(": ")[2]})


def test_an_open_ended_set_follows_from_seed_and_place_alone(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: random\nparameters: {lr: {min: 0.0, max: 1.0}}\nseed: 5\n"
    spec: Any = spec_of(tmp_path, text)
    assert spec.trials is None
    assert list(islice(parameter_sets(spec), 50))[20:] == list(islice(parameter_sets(spec), 20, 50))


REPLICATES = {
    "a varying seed": "parameters: {seed: {values: [1, 2]}, a: {min: 1, max: 9}}\nreplicates: 2",
    "a cap below one set": "parameters: {a: {min: 1, max: 9}}\nrun_cap: 2\nreplicates: 3",
    "none": "parameters: {a: {min: 1, max: 9}}\nreplicates: 0",
}


@pytest.mark.parametrize("case", REPLICATES)
def test_replicates_that_cannot_be_are_an_error(golden: Golden, tmp_path: Path, case: str) -> None:
    text = f"program: t.py\nmethod: random\n{REPLICATES[case]}\n"
    is_refused(golden, f"replicates: {case}", tmp_path, text)


def test_run_cap_counts_trials_and_leaves_no_set_with_fewer_replicates(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters: {a: {min: 1, max: 9}}\n"
    spec = spec_of(tmp_path, f"{text}run_cap: 11\nreplicates: 3\n")
    assert spec.trials == 9
    assert [params["a"] for params in parameter_sets(spec)] == [1, 2, 3]
    assert "replicates-cut" in [one.code for one in spec.warnings]
    marks = {
        params.salted(i) for params, i in ((s, i) for s in parameter_sets(spec) for i in range(3))
    }
    assert len(marks) == 9


def test_a_space_with_conditions_comes_back_from_the_wire(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        OPTIMIZERS.format(method="random")
        + "exclude: [{lr: {min: 0.05}, optimizer: [adam]}]\nreplicates: 2\n",
    )
    assert spec.space is not None
    search = Search(space=spec.space, replicates=spec.keys.replicates)
    assert decode_search("key", encode_search(search)) == search
