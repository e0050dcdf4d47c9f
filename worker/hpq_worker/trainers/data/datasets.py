"""The data sets of the shipped trainers as tensors on the device, kept from trial to trial.

Images stay uint8 as they are on disk: normalising a batch is cheaper than holding floats.
One data set is held at a time, since a runner works on one sweep after another.

Decoded data sets on disk, so that pictures are decoded once a machine and not once a process.

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
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

from hpq.errors import DataMissing
from hpq_worker.trainers.data.formats import UNREADABLE, Array, Arrays, Source, find
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.trial_context import TrialContext

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


_held: dict[tuple[object, ...], DataSet] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Images uint8 (N, H, W) or (N, H, W, 3) and labels int64 (N,) from 0 to 9, on the device."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """What a trainer trains on and tests on."""

    train: Split
    test: Split


def load_data(
    name: str,
    trial: TrialContext,
    train_images: int | None = None,
    test_images: int | None = None,
) -> DataSet:
    """The data set of this name, cut to so many images (as many of each class as can be).

    Raises:
        DataMissing: it is not there, damaged, smaller than asked for, or a package is missing.
    """
    key = (name, trial.data, train_images, test_images)
    if key not in _held:
        device.pick()  # one that cannot be used is told before anything is decoded
        trial.phase(f"loading {name}")
        _held.clear()
        arrays = _digits(trial.cache) if name == "digits" else _found(name, trial)
        _held[key] = DataSet(
            train=_split(name, arrays.train_images, arrays.train_labels, train_images),
            test=_split(name, arrays.test_images, arrays.test_labels, test_images),
        )
    return _held[key]


def rank_in_class(labels: Array) -> Array:
    """For each label how many equal ones come before it."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    rank = np.empty_like(labels)
    rank[order] = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[order]]
    return rank


def _found(name: str, trial: TrialContext) -> Arrays:
    source = find(name, trial.data)
    return decoded(trial.cache, name, source.stamp(), lambda: _decode(name, source))


def _decode(name: str, source: Source) -> Arrays:
    try:
        return source.format.decode(source.files())
    except (*UNREADABLE, KeyError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else f"{error}"
        raise DataMissing(
            f"data set {name}: {source.path} is damaged: {why}; fetch it anew"
        ) from None


def _digits(cache: Path) -> Arrays:
    try:
        return decoded(cache, "digits", version("scikit-learn"), _decode_digits)
    except PackageNotFoundError:
        raise DataMissing(
            "data set digits: it comes with scikit-learn; pip install 'hpq[trainers]'"
        ) from None


def _decode_digits() -> Arrays:
    from sklearn.datasets import load_digits  # noqa: PLC0415 (2 s that the cache saves)

    bundled = load_digits()
    images, labels = bundled.images.astype(np.uint8), bundled.target.astype(np.int64)
    test = rank_in_class(labels) % 5 == 4  # a fifth of each class, the same on every machine
    return Arrays(
        train_images=images[~test],
        train_labels=labels[~test],
        test_images=images[test],
        test_labels=labels[test],
    )


def _split(name: str, images: Array, labels: Array, count: int | None) -> Split:
    if count is not None and count > len(labels):
        raise DataMissing(
            f"data set {name}: {count} images asked for, {len(labels)} found;"
            " set train_images and test_images to fewer, or HPQ_DATA to the whole set"
        )
    if count is not None and count < len(labels):
        some = np.argsort(rank_in_class(labels), kind="stable")[:count]
        images, labels = images[some], labels[some]
    place = device.pick()
    return Split(
        images=torch.from_numpy(np.ascontiguousarray(images)).to(place),
        labels=torch.from_numpy(np.ascontiguousarray(labels)).to(place),
    )
