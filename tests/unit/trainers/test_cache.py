"""The cache of decoded data sets: whole or not there, whoever writes it and whatever tore it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hpq_worker.trainers import data
from tests.support.pickles import Runs
from tests.unit.trainers.test_datasets import load, mnist

pytestmark = pytest.mark.torch


def total(folder: Path, cache: Path) -> int:
    """Load in what is as good as another process, and return the sum of all pixels."""
    data._cache.clear()
    return int(load("mnist", folder, cache, 20, 20).train.images.sum(dtype=int))


@pytest.mark.parametrize(
    "harm",
    [
        lambda entry: entry.write_bytes(entry.read_bytes()[:-400]),
        lambda entry: entry.write_bytes(pickle.dumps(Runs(entry.with_name("ran")))),
    ],
    ids=["torn", "code"],
)
def test_a_cache_entry_that_is_no_data_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], object]
) -> None:
    folder, cache = mnist(tmp_path / "raw"), tmp_path / "cache"
    first = total(folder, cache)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    harm(entry)
    assert total(folder, cache) == first
    assert [*cache.iterdir()] == [entry] and len(entry.read_bytes()) == len(whole)
    monkeypatch.setattr(data, "decode", pytest.fail)
    assert total(folder, cache) == first


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a directory")
    assert total(mnist(tmp_path / "raw"), tmp_path / "file" / "cache")


def test_a_cache_entry_that_cannot_be_replaced_leaves_no_draft(tmp_path: Path) -> None:
    folder, cache = mnist(tmp_path / "raw"), tmp_path / "cache"
    total(folder, cache)
    (entry,) = cache.iterdir()
    entry.unlink()
    entry.mkdir()
    assert total(folder, cache)
    assert [*cache.iterdir()] == [entry]
