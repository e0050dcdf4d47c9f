"""The cache of decoded data sets: whole or not there, whoever writes it and whatever tore it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

pytest.importorskip("numpy")
pytest.importorskip("PIL")

import numpy as np

from hpq_worker.trainers.data import decoded
from hpq_worker.trainers.formats import Arrays
from tests.constants import DEADLINE_S

pytestmark = pytest.mark.torch


def tiny(value: int) -> Arrays:
    images, labels = np.full((4, 2, 2), value, np.uint8), np.arange(4)
    return {
        f"{part}_{x}": y
        for part in ("train", "test")
        for x, y in (("images", images), ("labels", labels))
    }


def test_workers_that_decode_at_once_leave_one_whole_entry(tmp_path: Path) -> None:
    all_decode = Barrier(8)

    def decode() -> Arrays:
        all_decode.wait(timeout=DEADLINE_S)  # so that nobody finds the entry of another
        return tiny(3)

    def work(_: int) -> Arrays:
        return decoded(tmp_path / "c", "x", "stamp", decode)

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(work, range(8)):
            assert found["train_images"].sum() == 48
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_a_torn_cache_entry_is_made_again(tmp_path: Path) -> None:
    decoded(tmp_path, "x", "stamp", lambda: tiny(3))
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(entry.read_bytes()[:-400])
    assert decoded(tmp_path, "x", "stamp", lambda: tiny(3))["test_images"].sum() == 48
    decoded(tmp_path, "x", "stamp", pytest.fail)


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a directory")
    found = decoded(tmp_path / "file" / "cache", "x", "stamp", lambda: tiny(2))
    assert found["train_images"].sum() == 32
