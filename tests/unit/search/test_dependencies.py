"""derive and require: what trials have, which ones run, how many there are, what is refused."""

from __future__ import annotations

import json
from itertools import islice, product
from pathlib import Path

import pytest

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import Json
from hpq.search.samplers import Sampler, Search
from hpq.search.space import Space
from hpq.store.wire.search import decode_search, encode_search
from hpq_producer.sweepfile.spec import describe_share, parameter_sets
from tests.support.golden import Golden
from tests.support.sweep_files import check, is_refused, spec_of

VIT = """
program: t.py
method: {method}
metric: {{name: loss}}
parameters:
  layers: {{min: 1, max: 12}}
  width: {{values: [64, 128, 256, 512]}}
derive:
  size: "layers * head * head"
  head: "width // layers"
require: ["width % layers == 0", "size <= 40000"]
"""
EXPECTED = [
    {"layers": layers, "width": width, "head": width // layers, "size": width**2 // layers}
    for layers, width in product(range(1, 13), (64, 128, 256, 512))
    if width % layers == 0 and layers * (width // layers) ** 2 <= 40_000
]


def space_of(folder: Path, text: str) -> Space:
    space = spec_of(folder, text).space
    assert space is not None
    return space


def as_expected(params: dict[str, Json]) -> bool:
    return dict(params) in EXPECTED


def test_a_grid_has_the_derived_parameters_and_the_required_trials_only(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, VIT.format(method="grid"))
    assert [json.dumps(params) for params in parameter_sets(spec)] == list(
        map(json.dumps, EXPECTED)
    )
    assert spec.trials == len(EXPECTED)
    assert spec.varying == ("layers", "width", "head", "size")
    assert f"{len(EXPECTED)} of 48" in describe_share(spec)


def test_random_runs_each_trial_of_a_small_space_once(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, VIT.format(method="random"))
    drawn = list(parameter_sets(spec))
    assert spec.trials == len(drawn) == len({params.identity for params in drawn})
    assert all(map(as_expected, drawn)) and drawn != EXPECTED


@pytest.mark.parametrize("layers", ["{min: 1.0, max: 12.0}", "{min: 1, max: 999999999}"])
def test_random_draws_what_is_required_of_a_space_that_is_not_counted(
    tmp_path: Path, layers: str
) -> None:
    text = f"""
program: t.py
method: random
parameters: {{layers: {layers}, width: {{values: [2, 4]}}}}
derive: {{size: "layers * width"}}
require: ["10 < size"]
"""
    spec = spec_of(tmp_path, text)
    drawn = list(islice(parameter_sets(spec), 50))
    assert spec.trials is None and len(drawn) == 50
    assert all(p["size"] == p["layers"] * p["width"] > 10 for p in drawn)  # type: ignore[operator]
    assert "random draws" in describe_share(spec)


def test_a_random_search_that_finds_no_more_trials_ends(tmp_path: Path) -> None:
    text = """
program: t.py
method: random
run_cap: 50
parameters: {a: {min: 1, max: 999999}, b: {min: 1, max: 9}}
require: ["a * b <= 999"]
"""
    drawn = list(parameter_sets(spec_of(tmp_path, text)))
    assert 0 < len(drawn) <= 50 and len({params.identity for params in drawn}) == len(drawn)


@pytest.mark.parametrize("sampler", [Sampler.RANDOM, Sampler.TPE, Sampler.QMC])
def test_bayes_suggests_each_required_trial_once_and_then_no_more(
    tmp_path: Path, sampler: Sampler
) -> None:
    chooser_of = pytest.importorskip("hpq_worker.suggest.choose_sampler").Chooser
    space = space_of(tmp_path, VIT.format(method="bayes"))
    search = decode_search("k", encode_search(Search(space=space, sampler=sampler)))
    chooser, seen = chooser_of(search), []
    while (params := chooser.ask(len(seen) + 1, {})) is not None:
        seen.append(params)
        chooser.trial_ended(len(seen), float(params["layers"]))  # type: ignore[arg-type]
    assert all(map(as_expected, seen))
    assert len({params.identity for params in seen}) == len(seen) == len(EXPECTED)


def test_bayes_learns_from_trials_with_derived_parameters(tmp_path: Path) -> None:
    chooser_of = pytest.importorskip("hpq_worker.suggest.choose_sampler").Chooser
    text = """
program: t.py
method: bayes
metric: {name: loss}
parameters: {x: {min: 0.0, max: 1.0}, y: {min: 0.0, max: 1.0}}
derive: {z: "x + y"}
require: ["z <= 1"]
"""
    search = Search(space=space_of(tmp_path, text))
    chooser, values, by = chooser_of(search), [], []
    for number in range(1, 51):
        params = chooser.ask(number, {})
        assert params is not None and params["z"] == params["x"] + params["y"] <= 1  # type: ignore[operator]
        values.append(abs(params["x"] - 0.7) + abs(params["y"] - 0.1))  # type: ignore[operator]
        chooser.trial_ended(number, values[-1])
        by.append(chooser.by)
    assert by[10:] == [Sampler.TPE] * 40  # it does not suggest again and again what is rejected
    assert sum(values[-20:]) < 0.8 * sum(values[:20])


def test_a_derived_parameter_is_part_of_the_identity_and_of_reuse(tmp_path: Path) -> None:
    space = space_of(tmp_path, VIT.format(method="grid"))
    assert all(map(space.contains, EXPECTED))
    older = {"layers": 1, "width": 64}  # of a sweep without derive
    assert not space.contains(older)
    assert not space.contains({**EXPECTED[0], "size": 1})
    assert not space.contains({**EXPECTED[0], "other": 1})
    assert ParameterSet(older).identity != ParameterSet(EXPECTED[0]).identity
    assert space.complete(older) == EXPECTED[0]
    assert space.complete({"layers": 3, "width": 64}) is None


def test_expressions_pass_over_parameters_that_a_trial_lacks(tmp_path: Path) -> None:
    text = """
program: t.py
method: grid
parameters:
  optimizer: {values: [adam, sgd]}
  lr: {values: [1, 2]}
  sgd: {parameters: {mom-entum: {values: [1, 2]}}}
when: {sgd: {optimizer: sgd}}
derive: {product: "lr * 'sgd.mom-entum'", twice: "product * 2"}
require: ["product < 4", "lr + 1 > 0"]
"""
    found = list(parameter_sets(spec_of(tmp_path, text)))
    assert {"lr": 2, "optimizer": "adam"} in found
    sgd = [p for p in found if p["optimizer"] == "sgd"]
    assert [(p["product"], p["twice"]) for p in sgd] == [(1, 2), (2, 4), (2, 4)]
    assert len(found) == 5


def test_require_has_the_words_and_joins_of_where(tmp_path: Path) -> None:
    text = """
program: t.py
method: grid
parameters:
  opt: {values: [adam, sgd]}
  momentum: {values: [0.5, 0.9]}
  batch-size: {values: [8, 16]}
  amp: {values: [true, false]}
when: {momentum: {opt: sgd}}
derive: {half: "'batch-size' / 2"}
require:
  - "opt == adam and half != 4 or opt in [sgd] and momentum > 0.7"
  - "amp or not opt == adam"
  - "batch-size > 4"
"""
    space = space_of(tmp_path, text)
    assert space.has_expressions
    space = decode_search("key", encode_search(Search(space=space))).space
    assert space.grid is not None
    found = [space.complete(space.grid.at(rank)) for rank in range(space.grid.size)]
    adam = [{"opt": "adam", "batch-size": 16, "amp": True, "half": 8.0}]
    sgd = [
        {"opt": "sgd", "momentum": 0.9, "batch-size": size, "amp": amp, "half": size / 2}
        for amp in (True, False)
        for size in (8, 16)
    ]
    assert sorted(filter(None, found), key=str) == sorted(adam + sgd, key=str)


def test_derived_parameters_of_a_point_are_computed(tmp_path: Path) -> None:
    text = VIT.format(method="grid") + "points: [{layers: 4, width: 128}]\n"
    found = list(parameter_sets(spec_of(tmp_path, text)))
    assert found[0] == {"head": 32, "layers": 4, "size": 4096, "width": 128}
    assert len(found) == len(EXPECTED)


def test_trials_that_cannot_be_computed_do_not_run_and_plan_says_so(
    golden: Golden, tmp_path: Path
) -> None:
    text = """program: t.py
method: grid
parameters: {a: {min: 0, max: 3}, b: {values: [1, 2]}}
derive: {ratio: "b / a"}
require: ["b % (a - 1) == 0"]
"""
    spec = spec_of(tmp_path, text)
    check(golden, "dependencies: not computed", spec.warnings, tmp_path)
    assert [(p["a"], p["b"]) for p in parameter_sets(spec)] == [(2, 1), (2, 2), (3, 2)]
    assert spec.trials == 3


HEAD = """program: t.py
method: random
parameters:
  lr: {min: 0.5, max: 1.0}
  opt: {values: [sgd, 3]}
  batch-size: {values: [1, 2]}
  n: {parameters: {lr: {min: 1, max: 2}, lambda: {value: 2}}}
"""  # the next line is the eighth
WRONG = {
    "derive is no mapping": "derive: [a]",
    "derive is empty": "derive: {}",
    "a number": "derive: {x: 3}",
    "no name": 'derive: {x: "1/0"}',
    "always by 0": 'derive: {x: "lr/0"}',
    "itself": 'derive: {x: "x + 1"}',
    "a circle": 'derive: {x: "y", y: "z + lr", z: "x"}',
    "a parameter": 'derive: {lr: "n.lr"}',
    "a group": 'derive: {n: "lr"}',
    "a nested name": 'derive: {n.lr: "lr"}',
    "no parameter name": 'derive: {x y: "lr"}',
    "an unknown name": 'derive: {x: "batch_size * 2"}',
    "a hyphen": 'derive: {x: "batch-size * 2"}',
    "a keyword": 'derive: {x: "n.lambda * 2"}',
    "a word": 'derive: {x: "opt * 2"}',
    "a power": 'require: ["9**9**9 > lr"]',
    "a call": "derive: {x: \"__import__('os')\"}",
    "too long": f'require: ["{"a" * 2001} > 1"]',
    "parentheses": f'require: ["{"(" * 220}lr{")" * 220} > 1"]',
    "require is text": 'require: "lr > 0.7"',
    "require is empty": "require: []",
    "no comparison": 'require: ["lr + 1"]',
    "an unknown word": 'require: ["opt == sdg"]',
    "a word beside a number": 'require: ["lr < sgd"]',
    "an order of words": 'require: ["opt < sgd"]',
    "one equals sign": 'require: ["opt = sgd"]',
    "nothing is left": 'require: ["lr > 1.5"]',
    "replicates": 'derive: {x: "seed * 2"}\nreplicates: 2',
    "a point with it": (
        'derive: {x: "lr"}\n'
        'points: [{lr: 0.5, opt: 3, batch-size: 1, n.lr: 1, x: 0.5}]'
    ),
    "a point without what is required": (
        'require: ["lr > 0.7"]\n'
        'points: [{lr: 0.5, opt: 3, batch-size: 1, n.lr: 1}]'
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_computed_or_met_is_an_error(
    golden: Golden, tmp_path: Path, case: str
) -> None:
    is_refused(golden, f"dependencies: {case}", tmp_path, f"{HEAD}{WRONG[case]}\n")


GRIDS = {
    "nothing of a grid": 'parameters: {a: {min: 1, max: 4}}\nrequire: ["a > 4"]',
    "a grid that is too large": 'parameters: {a: {min: 1, max: 999999}}\nrequire: ["a > 4"]',
    "of a seed": 'parameters: {seed: {value: 1}}\nderive: {a: "seed * 2"}',
}


@pytest.mark.parametrize("case", GRIDS)
def test_a_grid_that_cannot_be_is_an_error(golden: Golden, tmp_path: Path, case: str) -> None:
    text = f"program: t.py\nmethod: grid\n{GRIDS[case]}\n"
    is_refused(golden, f"dependencies: {case}", tmp_path, text)


def test_a_built_in_trainer_knows_the_names_of_its_derived_parameters(
    golden: Golden, tmp_path: Path
) -> None:
    text = """trainer: digits
method: grid
parameters: {epochs: {values: [1, 2]}}
derive: {hiden: "epochs * 2"}
"""
    is_refused(golden, "dependencies: of a trainer", tmp_path, text)


def test_a_command_may_name_a_derived_parameter(tmp_path: Path) -> None:
    spec_of(tmp_path, VIT.format(method="grid") + 'command: [python, t.py, "${head}"]\n')


def test_a_space_with_expressions_comes_back_from_the_wire(tmp_path: Path) -> None:
    search = Search(space=space_of(tmp_path, VIT.format(method="random")))
    back = decode_search("key", encode_search(search))
    assert back == search
    assert back.space.complete({"layers": 3, "width": 64}) is None
    expected = {"head": 32, "layers": 4, "size": 4096, "width": 128}
    assert back.space.complete({"layers": 4, "width": 128}) == expected
