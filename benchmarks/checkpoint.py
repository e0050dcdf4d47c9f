"""Measure the copy of a checkpoint into a file store on the same disk, beside `cp` and `sync`."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, in_turn
from hpq.filestore.base import Files, copy_in
from hpq.filestore.stores import open_files

_MIB = 1_024
_TARGET_RATIO = 1.2


def measure(rounds: int) -> Iterator[Figure]:
    """Measure both in turn, each from a disk that has written all before."""
    with tempfile.TemporaryDirectory(prefix="hpq-bench-") as name:
        folder = Path(name)
        with (folder / "model").open("wb") as file:
            for _ in range(_MIB):
                file.write(os.urandom(1 << 20))
        files = open_files(str(folder / "store"))
        calls = {"hpq": partial(_store, folder, files), "cp": partial(_cp, folder)}
        _cp(folder)  # the first copy of all is slower: a virtual machine fetches memory for it
        found = in_turn(rounds, {way: partial(_wall_s, call) for way, call in calls.items()})
    ours = Figure(what="hpq, 1 GiB into the store", unit="s", values=found["hpq"])
    yield ours
    yield ours.peer("cp, then sync of the copy", found["cp"])
    ratios = [own / other for own, other in zip(found["hpq"], found["cp"], strict=True)]
    yield Figure(what="hpq's over cp's", unit="×", values=ratios, target=_TARGET_RATIO)


def _wall_s(call: Callable[[], Callable[[], object]]) -> float:
    os.sync()
    begun = time.perf_counter()
    remove = call()
    wall_s = time.perf_counter() - begun
    remove()
    return wall_s


def _store(folder: Path, files: Files) -> Callable[[], object]:
    if not copy_in(folder, ["model"], files, "checkpoint-1", lambda: True):
        raise AssertionError
    return partial(files.remove, "checkpoint-1")


def _cp(folder: Path) -> Callable[[], object]:
    copy = folder / "copy"
    subprocess.run(["cp", folder / "model", copy], check=True)
    subprocess.run(["sync", copy], check=True)
    return copy.unlink
