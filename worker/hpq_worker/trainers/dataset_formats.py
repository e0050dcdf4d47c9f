"""Decode the layouts of a data set into arrays, from (name, content) pairs in any order.

Pickles are read by an unpickler that knows numpy's arrays and nothing else. What cannot be decoded
raises ValueError or one of `datasets.UNREADABLE`. No torch here.
"""

from __future__ import annotations

import gzip
import io
import pickle  # noqa: TID251 - read by _Unpickler alone
import re
from typing import Any

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
    arrays: Arrays = {}
    for part, (images, labels) in zip(("train", "test"), decoder(files), strict=True):
        if images.shape[1:] != shape or len(images) != len(labels) or not len(labels):
            raise ValueError(f"{images.shape} images and {labels.shape} labels do not fit {shape}")
        if labels.min() < 0 or labels.max() > 9:
            raise ValueError(f"labels from {labels.min()} to {labels.max()}, not 0 to 9")
        arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    return arrays


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


def _unpickle(name: str, content: bytes) -> dict[str, Any]:
    try:
        # latin1: the batches were written by Python 2, whose strings hold the bytes of the arrays.
        return dict(_Unpickler(io.BytesIO(content), encoding="latin1").load())
    except Exception as error:  # a torn pickle may raise any
        raise ValueError(f"{name} is no batch: {error}") from error


def _folders(files: Files) -> tuple[Split, Split]:
    rows = [
        (match[1].lower(), match[2].lower(), match[3], _picture(match[0].lstrip("/"), content))
        for match, content in files
    ]
    rows.sort(key=lambda row: row[:3])  # classes in the order of the alphabet, which is CIFAR10's

    def stacked(split: str) -> Split:
        labels = np.array([CIFAR10_CLASSES.index(row[1]) for row in rows if row[0] == split])
        if lacks := [c for i, c in enumerate(CIFAR10_CLASSES) if i not in labels]:
            raise ValueError(f"{split}/ has no image of {', '.join(lacks)}")
        return np.stack([row[3] for row in rows if row[0] == split]), labels

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
    parts = {f"{match[1]}-{match[2]}": _idx(match, content) for match, content in files}

    def pair(split: str) -> Split:
        return parts[f"{split}-images-idx3"], parts[f"{split}-labels-idx1"].astype(np.int64)

    return pair("train"), pair("t10k")


def _idx(match: re.Match[str], content: bytes) -> Array:
    content = gzip.decompress(content) if match[3] else content
    try:  # two zero bytes, the type (8 = uint8), the number of dimensions, their sizes, the values
        if content[:3] != b"\0\0\x08":
            raise ValueError("it does not begin as one of bytes")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
        return values.reshape(shape).copy()  # what is read in place could not be written to
    except (ValueError, IndexError) as error:
        raise ValueError(f"{match[0].lstrip('/')} is no whole idx file: {error}") from error


_DECODERS = {  # and the shape of an image
    BATCHES.member: (_batches, (32, 32, 3)),
    FOLDERS.member: (_folders, (32, 32, 3)),
    IDX.member: (_idx_files, (28, 28)),
}
