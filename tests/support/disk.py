"""Mount a small disk for a test, and fill it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A disk that one file can fill."""

    def __init__(self, path: Path) -> None:
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Write until no byte is left."""
        with self._ballast.open("wb", buffering=0) as file:
            for size in (65536, 512, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Remove what `fill` wrote."""
        self._ballast.unlink()


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of this size on a new directory; skip the test without the right to mount."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(path)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
