"""Trials that overwrite each other's files: what one worker can know of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from hpq_worker.files.overwrites import Overwrites


class Machine:
    """A worker's view of a directory, and of the attempts beside its own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.shared = folder / "home", folder / "shared"
        (self.home / "work").mkdir(parents=True)
        self.shared.mkdir()
        self.worker = Overwrites(self.home)

    def runs(self, beside: Iterable[str]) -> None:
        for lock in (self.home / "work").iterdir():
            lock.unlink()
        for name in beside:
            (self.home / "work" / f"{name}.lock").touch()

    def trial(self, number: int, beside: str, **sizes: int) -> dict[str, int]:
        """Run a trial that writes files, all the time beside others; return what is found."""
        self.runs(beside.split())
        self.worker.begin("s-00000")
        for name, size in sizes.items():
            path = self.shared / name
            path.write_bytes(b"x" * size)
            now = time.time_ns()
            os.utime(path, ns=(now, now))  # the clock of the file system may be behind
        return self.worker.end(number, str(self.shared))


@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ("", "", True),
        ("s-00000.2.1-abc code-00.7.1", "s-00000.4.1-abc code-00.7.1", True),
        ("s-00000.2.1-abc", "s-00000.2.1-abc", False),  # it may have written twice
        ("s-00000.2.1-abc", "s-00000.2.2-def", True),
    ],
)
def test_two_trials_wrote_a_file_if_no_attempt_can_have_written_it_twice(
    tmp_path: Path, before: str, after: str, is_found: bool
) -> None:
    machine = Machine(tmp_path)
    assert machine.trial(1, before, model=10) == {}
    found = machine.trial(3, after, model=10)
    assert found == ({str(machine.shared / "model"): 1} if is_found else {})


def test_a_file_of_one_trial_and_one_that_grows_are_not_overwritten(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.trial(1, "", model_1=10, log=10, out=10)
    assert machine.trial(1, "", out=10) == {}, "of its own attempt before"
    assert machine.trial(2, "", model_2=10, log=20) == {}
    assert [*machine.trial(3, "", model_3=10, log=30, out=9).values()] == [1]
