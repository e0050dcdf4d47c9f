"""The data sets of the shipped trainers on the device, and epochs of batches out of them.

Images stay uint8 as they are on disk: normalising a batch is cheaper than holding floats. A data
set is kept from trial to trial, one at a time, since a runner works on one sweep after another.
What was decoded is kept in a file, so that pictures are decoded once a machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

from hpq.datasets import UNREADABLE, Files, find
from hpq.errors import DataMissing
from hpq.process import make_private
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.formats import Array, Arrays, decode
from hpq_worker.trainers.step import Batch

VERSION = 2  # of what decoding makes of the same files
TEST_BATCH = {"cpu": 500, "cuda": 2_000}  # images; the figures hardly depend on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Images uint8 (N, H, W) or (N, H, W, 3) and labels int64 (N,), on the device."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """What a trainer trains on and tests on."""

    train: Split
    test: Split


class Batches:
    """Epochs of batches from a split, prepared on its device; used as a DataLoader is.

    With a seed, an epoch is shuffled and has whole batches only. Without, it is every image once,
    in order. `prepare` turns uint8 images of the split into what the network takes.
    """

    def __init__(
        self,
        split: Split,
        prepare: Callable[[torch.Tensor], torch.Tensor],
        batch_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.split, self.prepare = split, prepare
        self.batch_size = batch_size or TEST_BATCH[split.labels.device.type]
        # On the CPU, so that a seed gives the same order on any device.
        self.generator = torch.Generator().manual_seed(seed) if seed is not None else None
        # A GPU prepares an epoch in a few kernels; a CPU a batch, while it is in the caches.
        self.at_once = split.labels.is_cuda and self.generator is not None

    def __len__(self) -> int:
        return len(self.split) // self.batch_size

    def __iter__(self) -> Iterator[Batch]:
        order = torch.arange(len(self.split))
        if self.generator is not None:
            order = torch.randperm(len(self.split), generator=self.generator)
            order = order[: len(self) * self.batch_size]
        order = order.to(self.split.labels.device)
        images_of = self.epoch(order)
        step = len(order) if self.at_once else self.batch_size
        for start in range(0, len(order), step):
            part = slice(start, start + step)
            images, labels = images_of(part), self.split.labels[order[part]]
            yield from zip(
                images.split(self.batch_size), labels.split(self.batch_size), strict=True
            )

    def epoch(self, order: torch.Tensor) -> Callable[[slice], torch.Tensor]:
        """Return what makes the images of a part of this order; draw here what an epoch needs."""
        return lambda part: self.prepare(self.split.images[order[part]])


_held: dict[tuple[object, ...], DataSet] = {}


def load_data(
    name: str, trial: Trial, train_images: int | None = None, test_images: int | None = None
) -> DataSet:
    """Return cifar10, mnist or digits, cut to N images (as many of each class as possible).

    Raises:
        DataMissing: it is not there, damaged, smaller than asked for, or a package is missing.
    """
    key = (name, trial.data, train_images, test_images)
    if key not in _held:
        device.pick()  # one that cannot be used is reported before anything is decoded
        trial.phase(f"loading {name}")
        _held.clear()
        arrays = _digits(trial.cache) if name == "digits" else _found(name, trial)
        counts = {"train": train_images, "test": test_images}
        _held[key] = DataSet(**{part: _split(name, arrays, part, n) for part, n in counts.items()})
    return _held[key]


def rank_in_class(labels: Array) -> Array:
    """Return for each label how many equal ones come before it."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    rank = np.empty_like(labels)
    rank[order] = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[order]]
    return rank


def decoded(cache: Path, name: str, stamp: object, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of the data set with this stamp from the cache; decode them if not there.

    The file appears whole, by a rename: any number of workers may read and make it at once. A cache
    that cannot be written costs a decoding in each process, no more.
    """
    known = json.dumps([VERSION, stamp]).encode()
    path = cache / f"{name}-{hashlib.sha256(known).hexdigest()[:16]}.pt"
    with suppress(Exception):  # not there, or torn: the disk was full, or the machine went down
        found = torch.load(path, mmap=True, weights_only=True)
        return {part: tensor.numpy() for part, tensor in found.items()}
    arrays = make()
    with suppress(OSError, RuntimeError):
        make_private(cache)
        number, draft = tempfile.mkstemp(prefix=f".{name}-", dir=cache)
        try:
            with open(number, "wb") as out:
                torch.save({part: torch.from_numpy(x.copy()) for part, x in arrays.items()}, out)
            os.replace(draft, path)
        finally:
            Path(draft).unlink(missing_ok=True)
    return arrays


def _found(name: str, trial: Trial) -> Arrays:
    source = find(name, trial.data)

    def make() -> Arrays:
        try:
            return decode(source.layout, _reported(source.files(), name, trial))
        except (*UNREADABLE, KeyError, ValueError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else f"{error}"
            text = f"data set {name}: {source.path} is damaged: {why}; fetch it anew"
            raise DataMissing(text) from None

    return decoded(trial.cache, name, source.stamp(), make)


def _reported(files: Files, name: str, trial: Trial) -> Files:
    reported = time.monotonic()
    for number, file in enumerate(files):
        if time.monotonic() > reported + 1.0:  # a tar of 60,000 pictures takes half a minute
            reported = time.monotonic()
            trial.phase(f"loading {name}: {number:,} files")
        yield file


def _digits(cache: Path) -> Arrays:
    def make() -> Arrays:
        from sklearn.datasets import load_digits  # noqa: PLC0415 (2 s that the cache saves)

        bundled = load_digits()
        images, labels = bundled.images.astype(np.uint8), bundled.target.astype(np.int64)
        test = rank_in_class(labels) % 5 == 4  # a fifth of each class, the same on every machine
        parts = {"train": ~test, "test": test}
        of = {"images": images, "labels": labels}
        return {f"{part}_{x}": of[x][some] for part, some in parts.items() for x in of}

    try:
        return decoded(cache, "digits", version("scikit-learn"), make)
    except PackageNotFoundError:
        raise DataMissing(
            "data set digits: it comes with scikit-learn; pip install 'hpq[trainers]'"
        ) from None


def _split(name: str, arrays: Arrays, part: str, count: int | None) -> Split:
    images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if count is not None and count > len(labels):
        raise DataMissing(
            f"data set {name}: {count} images asked for, {len(labels)} found;"
            " set train_images and test_images to fewer, or HPQ_DATA to the whole set"
        )
    if count is not None and count < len(labels):
        some = np.argsort(rank_in_class(labels), kind="stable")[:count]
        images, labels = images[some], labels[some]
    on = [torch.from_numpy(np.ascontiguousarray(x)).to(device.pick()) for x in (images, labels)]
    return Split(images=on[0], labels=on[1])
