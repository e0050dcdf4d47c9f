"""The cache of decoded data sets: whole or not there, whoever writes it and whatever tore it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("PIL")
pytest.importorskip("torch")

import numpy as np
import torch

from hpq_worker.trainers.data import decoded
from hpq_worker.trainers.dataset_formats import Arrays
from tests.support.pickles import Runs

pytestmark = pytest.mark.torch


def tiny(value: int) -> Arrays:
    images, labels = np.full((4, 2, 2), value, np.uint8), np.arange(4)
    return {
        f"{part}_{x}": y
        for part in ("train", "test")
        for x, y in (("images", images), ("labels", labels))
    }


@pytest.mark.parametrize(
    "harm",
    [
        lambda entry: entry.write_bytes(entry.read_bytes()[:-400]),
        lambda entry: torch.save(Runs(entry.with_name("ran")), entry),
    ],
    ids=["torn", "code"],
)
def test_a_cache_entry_that_is_no_data_is_made_again(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    decoded(tmp_path, "x", "stamp", lambda: tiny(3))
    (entry,) = tmp_path.iterdir()
    harm(entry)
    assert decoded(tmp_path, "x", "stamp", lambda: tiny(3))["test_images"].sum() == 48
    decoded(tmp_path, "x", "stamp", pytest.fail)
    assert [*tmp_path.iterdir()] == [entry]


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a directory")
    found = decoded(tmp_path / "file" / "cache", "x", "stamp", lambda: tiny(2))
    assert found["train_images"].sum() == 32
