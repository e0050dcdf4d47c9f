"""The cache of decoded data sets: whole or not there, whoever writes it and whatever tore it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

pytest.importorskip("numpy")
pytest.importorskip("PIL")
pytest.importorskip("torch")

import numpy as np
import torch

from hpq_worker.trainers import data
from hpq_worker.trainers.data import decoded
from hpq_worker.trainers.dataset_formats import Arrays
from tests.support.constants import DEADLINE_S
from tests.support.pickles import Runs

pytestmark = pytest.mark.torch


def tiny(value: int) -> Arrays:
    images, labels = np.full((4, 2, 2), value, np.uint8), np.arange(4)
    return {
        f"{part}_{x}": y
        for part in ("train", "test")
        for x, y in (("images", images), ("labels", labels))
    }


def test_of_workers_that_need_the_same_data_one_decodes_and_the_others_wait(tmp_path: Path) -> None:
    waits, decodes = Barrier(4), list[int]()

    def work(number: int) -> Arrays:
        waiting = Event()

        def on_wait() -> None:
            if not waiting.is_set():
                waiting.set()
                waits.wait(timeout=DEADLINE_S)

        def decode() -> Arrays:
            decodes.append(number)
            waits.wait(timeout=DEADLINE_S)  # the three others wait by now
            return tiny(3)

        return decoded(tmp_path / "c", "x", "stamp", decode, on_wait)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(4)):
            assert found["train_images"].sum() == 48
    assert len(decodes) == 1 and len(list((tmp_path / "c").iterdir())) == 1


HOLDS = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("holds", flush=True)
time.sleep(1000)
"""


def test_a_decoder_that_dies_frees_the_lock_and_one_that_hangs_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(data, "WAIT_S", 0.0)
                decoded(tmp_path, "x", "hangs", lambda: tiny(3), pytest.fail)
            decoded(tmp_path, "x", "dies", lambda: tiny(3), holder.kill)
        finally:
            holder.kill()
    assert len(list(tmp_path.iterdir())) == 2


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
