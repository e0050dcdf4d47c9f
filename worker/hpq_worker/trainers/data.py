"""The data sets of the built-in trainers on the device, and epochs of batches out of them.

Images stay uint8: normalizing a batch is cheaper than holding floats. A process keeps the last data
set from trial to trial. The cache of the machine keeps decoded ones, so that it decodes them once.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np
import torch

from hpq.datasets import UNREADABLE, Files, damaged, find
from hpq.errors import DataMissing
from hpq.extras import install_command
from hpq.private_files import replace_private
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.dataset_formats import Array, Arrays, decode
from hpq_worker.trainers.step import Batch

VERSION = 2  # of what decoding makes of the same files
_DIGITS = "sklearn/datasets/data/digits.csv.gz"  # a line an image: 64 pixels and the label
Prepare = Callable[[torch.Tensor], torch.Tensor]
TEST_BATCH = {"cpu": 500, "cuda": 2_000}  # images; the figures hardly depend on it
AT_ONCE = {"cpu": 1, "cuda": 8_192}  # images that are prepared together, a batch at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Images uint8 (N, H, W) or (N, H, W, 3) and labels int64 (N,), on the device."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """The images for training and those for testing."""

    train: Split
    test: Split


class Batches:
    """Epochs of batches from a split, prepared on its device.

    With a seed, an epoch is shuffled and has whole batches only. Without, it is every image once,
    in order. `prepare` turns uint8 images of the split into what the network takes. All choices of
    an epoch are drawn at its start on the CPU: a seed gives the same ones on any device.
    """

    def __init__(
        self, split: Split, prepare: Prepare, batch_size: int | None = None, seed: int | None = None
    ) -> None:
        self.split = split
        self.prepare = prepare
        place = split.labels.device.type
        self.batch_size = batch_size or TEST_BATCH[place]
        self.is_shuffled = seed is not None
        self.generator = torch.Generator().manual_seed(seed or 0)
        # A GPU prepares many batches in a few kernels; a CPU one, while it is in the caches.
        self.at_once = max(1, AT_ONCE[place] // self.batch_size) * self.batch_size

    def __len__(self) -> int:
        whole, rest = divmod(len(self.split), self.batch_size)
        has_short_one = rest > 0 and not self.is_shuffled
        return whole + 1 if has_short_one else whole

    def __iter__(self) -> Iterator[Batch]:
        order = torch.arange(len(self.split))
        if self.is_shuffled:
            order = torch.randperm(len(self.split), generator=self.generator)
            order = order[: len(self) * self.batch_size]
        labels = self.split.labels
        size = self.batch_size
        choices = {name: x.to(labels.device) for name, x in self.draw(order).items()}
        order = order.to(labels.device)
        for start in range(0, len(order), self.at_once):
            part = slice(start, start + self.at_once)
            images = self.take(order[part], **{name: x[part] for name, x in choices.items()})
            yield from zip(images.split(size), labels[order[part]].split(size), strict=True)

    def draw(self, order: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the random choices for the images of an epoch, (N, …) each: none here."""
        return {}

    def take(self, index: torch.Tensor, **choices: torch.Tensor) -> torch.Tensor:
        """Return the images of this index as the network takes them, by these choices."""
        return self.prepare(self.split.images[index])


_cache: dict[tuple[object, ...], DataSet] = {}


def load_data(
    name: str, trial: Trial, train_images: int | None = None, test_images: int | None = None
) -> DataSet:
    """Return cifar10, mnist or digits, cut to N images (as many of each class as possible).

    Raises:
        DataMissing: it is not there, damaged, smaller than asked for, or a package is missing.
        SystemExit: the trial was stopped meanwhile.
    """
    key = (name, trial.data, train_images, test_images)
    if key not in _cache:
        device.pick()  # one that cannot be used is reported before anything is decoded
        trial.phase(f"loading {name}")
        _cache.clear()
        arrays = _digits() if name == "digits" else _found(name, trial)
        train = _split(name, arrays, "train", train_images)
        _cache[key] = DataSet(train=train, test=_split(name, arrays, "test", test_images))
    return _cache[key]


def _split(name: str, arrays: Arrays, part: str, count: int | None) -> Split:
    images = arrays[f"{part}_images"]
    labels = arrays[f"{part}_labels"]
    if count is not None and count > len(labels):
        raise DataMissing(
            f"data set {name}: {part}_images is {count}, and there are {len(labels)};"
            f" set {part}_images to at most that, or HPQ_DATA to the whole set"
        )
    if count is not None and count < len(labels):
        some = np.argsort(rank_in_class(labels), kind="stable")[:count]
        images = images[some]
        labels = labels[some]
    on = [torch.from_numpy(np.ascontiguousarray(x)).to(device.pick()) for x in (images, labels)]
    return Split(images=on[0], labels=on[1])


def rank_in_class(labels: Array) -> Array:
    """Return for each label how many equal ones come before it."""
    rank = np.empty_like(labels)
    for label in np.unique(labels):
        rank[labels == label] = np.arange((labels == label).sum())
    return rank


def _found(name: str, trial: Trial) -> Arrays:
    """Return the arrays of a data set in HPQ_DATA: from the cache, or else decoded into it.

    Trials that start together each decode. A cache that cannot be written costs only time.
    """
    source = find(name, trial.data)
    known = json.dumps([VERSION, source.stamp()]).encode()
    path = trial.cache / f"{name}-{hashlib.sha256(known).hexdigest()[:16]}.npz"
    with suppress(Exception), path.open("rb") as file:  # it is absent, or damaged in any way
        return dict(np.load(file))
    try:
        arrays = decode(source.layout, _shown(source.files(), name, trial))
    except (*UNREADABLE, KeyError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else f"{error}"
        raise damaged(name, source.path, why) from None
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    with suppress(OSError):
        replace_private(path, content.getbuffer())
    return arrays


def _shown(files: Files, name: str, trial: Trial) -> Files:
    """Yield the files, and show their number; 60,000 pictures take half a minute.

    Raises:
        SystemExit: the trial was stopped.
    """
    for number, file in enumerate(files, 1):
        if trial.should_stop:
            sys.exit()
        yield file
        if number % 1_000 == 0:
            trial.phase(f"loading {name}: file {number:,}")


def _digits() -> Arrays:
    try:  # without the import of scikit-learn, which takes 2 s
        package = distribution("scikit-learn")
        rows = np.loadtxt(str(package.locate_file(_DIGITS)), np.uint8, delimiter=",")
    except (PackageNotFoundError, OSError):
        text = f"data set digits needs scikit-learn; run: {install_command('scikit-learn')}"
        raise DataMissing(text) from None
    images = rows[:, :64].reshape(-1, 8, 8)
    labels = rows[:, 64].astype(np.int64)
    test = rank_in_class(labels) % 5 == 4  # a fifth of each class, the same on every machine
    train: Arrays = {"train_images": images[~test], "train_labels": labels[~test]}
    return train | {"test_images": images[test], "test_labels": labels[test]}
