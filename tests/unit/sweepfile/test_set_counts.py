"""Values that are fine one by one and not together: refused where no set is left, else said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpq.domain.trainer_specs import SHIPPED
from hpq.notice import Notice
from hpq_producer.sweepfile.load import load
from tests.golden import Golden
from tests.sweep_files import places, refusals, refused_file

HEAD = "trainer: mnist\nmethod: {}\nparameters:\n"  # what follows begins in line 4
FEW = "  train_images: {value: 100}\n"


def warnings(tmp_path: Path, text: str) -> Sequence[Notice]:
    file = tmp_path / "s.yaml"
    file.write_text(text, "utf-8")
    return load(file).warnings


REFUSED = {
    "the default": ("grid", FEW, "4:18 no-set-fits"),
    "every value": ("grid", FEW + "  batch_size: {values: [128, 512]}\n", "5:25 no-set-fits"),
    "a range": ("bayes", FEW + "  batch_size: {min: 101, max: 500}\n", "5:16 no-set-fits"),
    "without an end": ("random", FEW + "  momentum: {min: 0.1, max: 0.9}\n", "4:18 no-set-fits"),
    "the set that comes nearest": (
        "bayes",
        "  train_images: {min: 100, max: 2000}\n  batch_size: {min: 3000, max: 4096}\n",
        "5:16 no-set-fits",
    ),
    "the nearest of a grid": ("grid", "  train_images: {values: [100, 120]}\n", "4:32 no-set-fits"),
    "what fits is excluded": (
        "grid",
        FEW + "  batch_size: {values: [64, 512]}\nexclude: [{batch_size: 64}]\n",
        "5:29 no-set-fits",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_sweep_of_which_no_set_can_be_trained_is_refused_at_its_place(
    golden: Golden, case: str, tmp_path: Path
) -> None:
    method, text, said = REFUSED[case]
    whole = HEAD.format(method) + text
    assert refusals(golden, f"no set fits: {case}", tmp_path, whole) == [said]


WARNED = {
    "a corner of a grid": (
        "grid",
        "  train_images: {values: [100, 1000]}\n  batch_size: {values: [64, 512]}\n",
        "5:29 sets-fail",
    ),
    "draws": (
        "random\nrun_cap: 50",
        FEW.replace("100", "1000") + "  batch_size: {min: 2, max: 2000}\n",
        "6:3 sets-fail",
    ),
    "sets that are made late": (
        "bayes",
        FEW + "  batch_size: {min: 2, max: 500}\n",
        "5:24 sets-fail",
    ),
    "one that is not there": (
        "grid",
        "  train_images: {values: [100, 1000]}\n  batch_size: {values: [16]}\n"
        "when: {batch_size: {train_images: 1000}}\n",
        "5:3 sets-fail",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_sets_that_will_fail_beside_others_are_counted_in_a_warning(
    golden: Golden, case: str, tmp_path: Path
) -> None:
    method, text, said = WARNED[case]
    found = warnings(tmp_path, HEAD.format(method) + text)
    assert places(golden, f"sets fail: {case}", found, tmp_path) == [said]


@pytest.mark.parametrize(
    "text",
    [
        "  train_images: {value: 128}\n",
        FEW + "  batch_size: {values: [2, 100]}\n",
        FEW + "  batch_size: {values: [64, 512]}\nexclude: [{batch_size: 512}]\n",
    ],
)
def test_what_fits_is_taken_in_silence(text, tmp_path) -> None:
    assert not warnings(tmp_path, HEAD.format("grid") + text)


def test_a_flag_that_is_to_blame_is_named(tmp_path) -> None:
    text = HEAD.format("grid") + FEW + "  batch_size: {value: 64}\n"
    error = refused_file(tmp_path, text, overrides={"parameters.batch_size.value": "640"})
    assert str(error).startswith("--set parameters.batch_size.value=640: ")


def test_in_a_list_the_entry_is_named(golden: Golden, tmp_path: Path) -> None:
    bad = "- hyperparam_set: {batch_size: 512, train_images: 100}\n"
    assert refusals(golden, "no set fits: a list", tmp_path, bad) == ["1:20 no-set-fits"]
    found = warnings(tmp_path, bad + "- hyperparam_set: {width: 8}\n")
    assert places(golden, "sets fail: a list", found, tmp_path) == ["1:20 sets-fail"]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_trainer_and_a_sweep_file_refuse_in_the_same_words(name, tmp_path) -> None:
    spec = SHIPPED[name]
    assert spec.fill({}) and spec.misfit({}) is None
    if "train_images" not in spec.params:
        return  # the images of digits are more than its largest batch
    with pytest.raises(ValueError, match=r"^batch_size: 33 .*32"):
        spec.fill({"batch_size": 33, "train_images": 32})
