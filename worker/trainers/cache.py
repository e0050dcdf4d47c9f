"""Decoded data sets on disk, so that pictures are decoded once a machine and not once a process.

An entry is a directory of .npy files that appears whole, by a rename, and never changes: any number
of workers may read, and make, the same entry at once. No torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np

from worker.trainers.formats import Arrays

VERSION = 1  # of what decoding makes of the same files


def decoded(cache: Path, name: str, stamp: object, decode: Callable[[], Arrays]) -> Arrays:
    """The arrays of the data set with this stamp, mapped from the cache; decoded if not there.

    A cache that cannot be written (full, read-only) costs a decoding in each process, no more.
    """
    known = json.dumps([VERSION, stamp]).encode()
    entry = cache / f"{name}-{hashlib.sha256(known).hexdigest()[:16]}"
    try:
        return _read(entry)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError):  # torn: the disk was full, or the machine went down
        shutil.rmtree(entry, ignore_errors=True)
    arrays = decode()
    with suppress(OSError):  # another worker was first, or the cache cannot be written
        _write(entry, arrays)
    try:
        return _read(entry)
    except OSError:
        return arrays


def _read(entry: Path) -> Arrays:
    # "c", not "r": torch takes no array that it cannot write to, and nobody writes.
    return Arrays(**{f.name: np.load(entry / f"{f.name}.npy", "c") for f in fields(Arrays)})


def _write(entry: Path, arrays: Arrays) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    try:
        for field in fields(arrays):
            np.save(made / f"{field.name}.npy", getattr(arrays, field.name))
        made.chmod(0o755)
        made.rename(entry)
    finally:
        shutil.rmtree(made, ignore_errors=True)
