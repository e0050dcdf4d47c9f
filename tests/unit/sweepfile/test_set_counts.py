"""Values that are fine one by one and not together: refused where no set is left, else said."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.domain.trainer_specs import SHIPPED
from hpq.errors import SweepFileError
from hpq_producer.sweepfile.load import load

HEAD = "trainer: mnist\nmethod: {}\nparameters:\n"  # what follows begins in line 4
FEW = "  train_images: {value: 100}\n"
NONE_LEFT = ": no set of this sweep can be trained; lower batch_size, or raise train_images"
REMEDY = "`exclude` leaves such sets out"
RANGES = f"{REMEDY}, or narrow the ranges"  # an entry of exclude cannot compare two parameters


def loaded(tmp_path: Path, text: str, **flags: object) -> tuple[str, ...]:
    file = tmp_path / "s.yaml"
    file.write_text(text, "utf-8")
    found = load(file, **flags).warnings  # type: ignore[arg-type]
    return tuple(one.text.removeprefix(f"{file}:") for one in found)


REFUSED = {
    "the default": (
        "grid", FEW,
        "4:18: parameters.train_images.value: batch_size 128 is more than the 100 training images",
    ),
    "every value": (
        "grid", FEW + "  batch_size: {values: [128, 512]}\n",
        "5:25: parameters.batch_size.values[0]: 128 is more than the 100 training images",
    ),
    "a range": (
        "bayes", FEW + "  batch_size: {min: 101, max: 500}\n",
        "5:16: parameters.batch_size.min: 101 is more than the 100 training images",
    ),
    "without an end": (
        "random", FEW + "  momentum: {min: 0.1, max: 0.9}\n",
        "4:18: parameters.train_images.value: batch_size 128 is more than the 100 training images",
    ),
    "the set that comes nearest": (
        "bayes", "  train_images: {min: 100, max: 2000}\n  batch_size: {min: 3000, max: 4096}\n",
        "5:16: parameters.batch_size.min: 3000 is more than the 2000 training images",
    ),
    "the nearest of a grid": (
        "grid", "  train_images: {values: [100, 120]}\n",
        "4:32: parameters.train_images.values[1]: batch_size 128 is more than the 120 training"
        " images",
    ),
    "what fits is excluded": (
        "grid", FEW + "  batch_size: {values: [64, 512]}\nexclude: [{batch_size: 64}]\n",
        "5:29: parameters.batch_size.values[1]: 512 is more than the 100 training images",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_sweep_of_which_no_set_can_be_trained_is_refused_at_its_place(case, tmp_path) -> None:
    method, text, said = REFUSED[case]
    with pytest.raises(SweepFileError) as caught:
        loaded(tmp_path, HEAD.format(method) + text)
    assert str(caught.value) == f"{tmp_path}/s.yaml:{said}{NONE_LEFT}"


WARNED = {
    "a corner of a grid": (
        "grid",
        "  train_images: {values: [100, 1000]}\n  batch_size: {values: [64, 512]}\n",
        "5:29: parameters.batch_size.values[1]: 512 is more than the 100 training images:"
        " 1 of 4 sets will fail; ",
    ),
    "draws": (
        "random\nrun_cap: 50",
        FEW.replace("100", "1000") + "  batch_size: {min: 2, max: 2000}\n",
        "6:3: parameters.batch_size: 1521 is more than the 1000 training images:"
        " 26 of 50 sets will fail; ",
    ),
    "sets that are made late": (
        "bayes",
        FEW + "  batch_size: {min: 2, max: 500}\n",
        "5:24: parameters.batch_size.max: 500 is more than the 100 training images:"
        " some sets will fail; ",
    ),
    "one that is not there": (
        "grid",
        "  train_images: {values: [100, 1000]}\n  batch_size: {values: [16]}\n"
        "when: {batch_size: {train_images: 1000}}\n",
        "5:3: parameters.batch_size: batch_size 128 is more than the 100 training images:"
        " 1 of 2 sets will fail; ",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_sets_that_will_fail_beside_others_are_counted_in_a_warning(case, tmp_path) -> None:
    method, text, said = WARNED[case]
    remedy = REMEDY if method == "grid" else RANGES
    assert loaded(tmp_path, HEAD.format(method) + text) == (f"{said}{remedy}",)


@pytest.mark.parametrize(
    "text",
    [
        "  train_images: {value: 128}\n",
        FEW + "  batch_size: {values: [2, 100]}\n",
        FEW + "  batch_size: {values: [64, 512]}\nexclude: [{batch_size: 512}]\n",
    ],
)
def test_what_fits_is_taken_in_silence(text, tmp_path) -> None:
    assert loaded(tmp_path, HEAD.format("grid") + text) == ()


def test_a_flag_that_is_to_blame_is_named(tmp_path) -> None:
    text = HEAD.format("grid") + FEW + "  batch_size: {value: 64}\n"
    with pytest.raises(SweepFileError, match=r"^--set parameters\.batch_size\.value=640: "):
        loaded(tmp_path, text, overrides={"parameters.batch_size.value": "640"})


def test_in_a_list_the_entry_is_named(tmp_path) -> None:
    bad = "- hyperparam_set: {batch_size: 512, train_images: 100}\n"
    said = "1:20: [0].hyperparam_set.batch_size: 512 is more than the 100 training images"
    with pytest.raises(SweepFileError) as caught:
        loaded(tmp_path, bad)
    assert str(caught.value) == f"{tmp_path}/s.yaml:{said}{NONE_LEFT}"
    found = loaded(tmp_path, bad + "- hyperparam_set: {width: 8}\n")
    assert found == (f"{said}: 1 of 2 sets will fail; remove them",)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_trainer_and_a_sweep_file_refuse_in_the_same_words(name, tmp_path) -> None:
    spec = SHIPPED[name]
    assert spec.fill({}) and spec.misfit({}) is None
    if "train_images" not in spec.params:
        return  # the images of digits are more than its largest batch
    with pytest.raises(ValueError, match=r"^batch_size: 33 is more than the 32 training images\Z"):
        spec.fill({"batch_size": 33, "train_images": 32})
