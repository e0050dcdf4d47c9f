"""The parameters of a built-in trainer: defaults, and values that must fit each other."""

from __future__ import annotations

import pytest

from hpq.domain.trainer_specs import BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_batch_larger_than_the_images_is_refused_by_every_trainer(name: str) -> None:
    spec = BUILT_IN[name]
    assert spec.fill({})
    if "train_images" not in spec.params:
        return  # the images of digits are more than its largest batch
    with pytest.raises(ValueError, match=r"^batch_size: 33 .*32"):
        spec.fill({"batch_size": 33, "train_images": 32})
