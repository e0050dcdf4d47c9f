"""Decode the layouts of a data set into arrays, from (name, content) pairs in any order.

Pickles are read by an unpickler that knows numpy's arrays and nothing else. What cannot be decoded
raises ValueError or one of `datasets.UNREADABLE`. No torch here.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle

import numpy as np
from numpy._core.multiarray import _reconstruct
from PIL import Image

from hpq.datasets import BATCHES, CIFAR10_CLASSES, FOLDERS, IDX, Files, Layout

Array = np.ndarray
# train_images and test_images: uint8 (N, H, W) or (N, H, W, 3); train_labels and test_labels: int64
# (N,) from 0 to 9.
Arrays = dict[str, Array]
Split = tuple[Array, Array]  # images and labels


def decode(layout: Layout, files: Files) -> Arrays:
    """Return the arrays of a data set.

    Raises:
        KeyError: a file is missing.
        ValueError: a file is damaged or of another shape; the text names it.
    """
    decoder, shape = _DECODERS[layout.member]
    train, test = decoder(files)
    for images, labels in (train, test):
        if images.shape[1:] != shape or len(images) != len(labels) or not len(labels):
            raise ValueError(f"{images.shape} images and {labels.shape} labels do not fit {shape}")
        if labels.min() < 0 or labels.max() > 9:
            raise ValueError(f"labels from {labels.min()} to {labels.max()}, not 0 to 9")
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return dict(zip(names, (*train, *test), strict=True))


def _batches(files: Files) -> tuple[Split, Split]:
    batches = {match[1]: _unpickle(match[1], content) for match, content in files}

    def joined(*names: str) -> Split:
        data = np.concatenate([np.asarray(batches[name]["data"], np.uint8) for name in names])
        labels = np.concatenate([np.asarray(batches[name]["labels"], np.int64) for name in names])
        return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels

    return joined(*(f"data_batch_{i}" for i in range(1, 6))), joined("test_batch")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        known = {"_reconstruct": _reconstruct, "ndarray": np.ndarray, "dtype": np.dtype}
        if not module.startswith("numpy") or name not in known:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}")
        return known[name]


def _unpickle(name: str, content: bytes) -> dict[str, object]:
    try:
        # latin1: the batches were written by Python 2, whose strings hold the bytes of the arrays.
        return dict(_Unpickler(io.BytesIO(content), encoding="latin1").load())
    except Exception as error:  # a torn pickle may raise any
        raise ValueError(f"{name} is no batch: {error}") from error


def _folders(files: Files) -> tuple[Split, Split]:
    rows = [(*match.groups(), _picture(match[0].lstrip("/"), content)) for match, content in files]
    rows.sort(key=lambda row: row[:3])  # classes in the order of the alphabet, which is CIFAR10's

    def stacked(split: str) -> Split:
        of = [(CIFAR10_CLASSES.index(name), x) for part, name, _, x in rows if part == split]
        if len({label for label, _ in of}) < len(CIFAR10_CLASSES):
            raise ValueError(f"{split}/ has not an image of each class")
        return np.stack([x for _, x in of]), np.array([label for label, _ in of], np.int64)

    return stacked("train"), stacked("test")


def _picture(name: str, content: bytes) -> Array:
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
            size, pixels = image.size, np.asarray(image.convert("RGB"))
    except OSError as error:  # Pillow's own text names no file
        raise ValueError(f"{name} is no whole JPEG or PNG") from error
    if size != (32, 32):
        raise ValueError(f"{name} is {size[0]}x{size[1]} pixels, not 32x32")
    return pixels


def _idx_files(files: Files) -> tuple[Split, Split]:
    parts: dict[str, Array] = {}
    for match, content in files:
        split, kind, packed = match.groups()
        content = gzip.decompress(content) if packed else content
        parts[f"{split}-{kind}"] = _idx(match[0].lstrip("/"), content)
    train, test = (
        (parts[f"{split}-images-idx3"], parts[f"{split}-labels-idx1"].astype(np.int64))
        for split in ("train", "t10k")
    )
    return train, test


def _idx(name: str, content: bytes) -> Array:
    # Two zero bytes, the type (8 = uint8), the number of dimensions, their sizes, the values.
    if len(content) < 8 or content[:3] != b"\0\0\x08":
        raise ValueError(f"{name} is no idx file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4")
    values = np.frombuffer(content[start:], np.uint8)
    if len(content) < start or values.size != math.prod(shape.tolist()):
        form = "x".join(map(str, shape))
        raise ValueError(f"{name} has {values.size} values, not the {form} that its head says")
    return values.reshape(shape).copy()  # what is read in place could not be written to


_DECODERS = {  # and the shape of an image
    BATCHES.member: (_batches, (32, 32, 3)),
    FOLDERS.member: (_folders, (32, 32, 3)),
    IDX.member: (_idx_files, (28, 28)),
}
