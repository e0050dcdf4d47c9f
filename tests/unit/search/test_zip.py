"""zip: parameters whose values go together are one choice for every method."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.domain.trial import Json
from hpq.search.samplers import Sampler, Search
from hpq.store.wire.search import decode_search, encode_search
from hpq_producer.sweepfile.spec import parameter_sets
from tests.support.golden import Golden
from tests.support.sweep_files import is_refused, spec_of

TEXT = """program: t.py
method: {method}
metric: {{name: loss}}
parameters:
  model: {{values: [small, base, large]}}
  batch: {{values: [128, 64, 64]}}
  lr: {{values: [0.1, 0.01]}}
  zoom: {{values: [1, 2, 3]}}
zip: [[zoom, batch, model]]
"""
ROWS = [("small", 128, 1), ("base", 64, 2), ("large", 64, 3)]


def of(text: str, folder: Path) -> list[tuple[Json, ...]]:
    spec = spec_of(folder, text)
    found = [(p["lr"], p["model"], p["batch"], p["zoom"]) for p in parameter_sets(spec)]
    assert spec.trials == len(found)
    return found


def test_a_group_is_one_axis_of_a_grid(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, TEXT.format(method="grid"))
    assert of(TEXT.format(method="grid"), tmp_path) == [
        (lr, *row) for lr in (0.1, 0.01) for row in ROWS
    ]
    assert spec.varying == ("model", "batch", "lr", "zoom")
    assert all(tuple(params) == spec.varying for params in parameter_sets(spec))
    assert spec.warnings == ()  # batch repeats 64


def test_random_draws_each_row_once(tmp_path: Path) -> None:
    found = of(TEXT.format(method="random"), tmp_path)
    assert sorted(found) == sorted((lr, *row) for lr in (0.1, 0.01) for row in ROWS)


def test_random_draws_rows_of_an_infinite_space(tmp_path: Path) -> None:
    text = TEXT.format(method="random").replace("{values: [0.1, 0.01]}", "{min: 0.1, max: 1.0}")
    found = of(f"{text}run_cap: 30\n", tmp_path)
    assert {one[1:] for one in found} == set(ROWS)


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        ("exclude: [{batch: 64}]", lambda lr, model, batch, zoom: batch != 64),
        ("exclude: [{batch: 64, zoom: {min: 3}}]", lambda lr, model, batch, zoom: zoom < 3),
        ("exclude: [{batch: 64, lr: 0.1}]", lambda lr, model, batch, zoom: batch > 64 or lr < 0.1),
        ('require: ["batch * zoom < 150"]', lambda lr, model, batch, zoom: zoom < 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["grid", "random"])
def test_rules_apply_to_every_parameter_of_a_group(
    tmp_path: Path, method: str, rest: str, kept
) -> None:
    found = of(f"{TEXT.format(method=method)}{rest}\n", tmp_path)
    every = [(lr, *row) for lr in (0.1, 0.01) for row in ROWS]
    assert sorted(found) == sorted(one for one in every if kept(*one))


def test_conditions_and_derived_parameters_may_use_a_group(tmp_path: Path) -> None:
    rest = 'when: {lr: {batch: 64}}\nderive: {pixels: "batch * zoom"}\n'
    found = list(parameter_sets(spec_of(tmp_path, TEXT.format(method="grid") + rest)))
    assert [(p["model"], p.get("lr"), p["pixels"]) for p in found] == [
        ("small", None, 128),
        *((row[0], lr, row[1] * row[2]) for row in ROWS[1:] for lr in (0.1, 0.01)),
    ]


def test_points_and_reuse_accept_rows_only(tmp_path: Path) -> None:
    rest = "points: [{lr: 0.01, model: base, batch: 64, zoom: 2}]\n"
    spec = spec_of(tmp_path, TEXT.format(method="grid") + rest)
    found = list(parameter_sets(spec))
    assert found[0] == {"batch": 64, "lr": 0.01, "model": "base", "zoom": 2} and len(found) == 6
    assert spec.space is not None and all(map(spec.space.contains, found))
    assert not spec.space.contains({**found[0], "batch": 128})
    assert not spec.space.contains({"lr": 0.01, "model": "base"})


@pytest.mark.parametrize("sampler", [Sampler.RANDOM, Sampler.TPE, Sampler.QMC])
def test_bayes_suggests_each_row_once_and_then_no_more(tmp_path: Path, sampler: Sampler) -> None:
    chooser_of = pytest.importorskip("hpq_worker.suggest.choose_sampler").Chooser
    search = Search(space=spec_of(tmp_path, TEXT.format(method="bayes")).space, sampler=sampler)
    back = decode_search("key", encode_search(search))
    assert back == search
    chooser, seen = chooser_of(back), []
    while (params := chooser.ask(len(seen) + 1, {})) is not None:
        seen.append((params["lr"], params["model"], params["batch"], params["zoom"]))
        chooser.trial_ended(len(seen), float(params["zoom"]))
    assert sorted(seen) == sorted((lr, *row) for lr in (0.1, 0.01) for row in ROWS)


HEAD = """program: t.py
method: grid
parameters:
  a: {values: [1, 2]}
  b: {values: [3, 4]}
  c: {values: [5, 6, 7]}
  e: {min: 1, max: 2}
  f: {value: 1}
  g: {values: [5, 5]}
  h: {values: [6, 6]}
  n: {parameters: {d: {values: [1, 2]}}}
"""  # the next line is the twelfth
REST = "e: 1, f: 1, g: 5, h: 6, n.d: 1"
WRONG = {
    "no list": "zip: a",
    "no group": "zip: []",
    "not nested": "zip: [a, b]",
    "one name": "zip: [[a]]",
    "an unknown name": "zip: [[a, bb]]",
    "a list as a name": "zip: [[a, [b]]]",
    "other lengths": "zip: [[a, c]]",
    "a range": "zip: [[a, e]]",
    "a value": "zip: [[a, f]]",
    "repeats": "zip: [[g, h]]",
    "a nested name": "zip: [[a, n.d]]",
    "twice": "zip: [[a, a]]",
    "two groups": "zip: [[a, b], [g, a]]",
    "a conditional one": "when: {b: {c: 5}}\nzip: [[a, b]]",
    "a point of no row": f"zip: [[a, b]]\npoints: [{{a: 1, b: 4, c: 5, {REST}}}]",
    "a point without one": f"zip: [[a, b]]\npoints: [{{a: 1, c: 5, {REST}}}]",
    "nothing is left": 'zip: [[a, b]]\nrequire: ["a + b == 5"]',
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_go_together_is_an_error(golden: Golden, tmp_path: Path, case: str) -> None:
    is_refused(golden, f"zip: {case}", tmp_path, f"{HEAD}{WRONG[case]}\n")


def test_weighted_values_do_not_go_together(golden: Golden, tmp_path: Path) -> None:
    text = TEXT.format(method="random").replace("3]}\n", "3], probabilities: [0.5, 0.3, 0.2]}\n")
    is_refused(golden, "zip: weighted", tmp_path, text)


def test_a_seed_of_a_group_excludes_replicates(golden: Golden, tmp_path: Path) -> None:
    text = TEXT.format(method="grid").replace("zoom", "seed") + "replicates: 2\n"
    is_refused(golden, "zip: seed", tmp_path, text)
