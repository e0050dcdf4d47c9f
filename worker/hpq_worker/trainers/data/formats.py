"""The forms in which a data set may lie on disk, and how each becomes arrays.

Every format is decoded from (name, content) pairs, so that a directory and a tar of it give the
same arrays, whatever the order of the files. Pickles are read by an unpickler that knows numpy's
arrays and nothing else. What cannot be decoded raises errors that data.py makes one line of.
No torch here.

Where a data set lies: HPQ_DATA itself, or entries in it whose names speak of the set.

Cheap on purpose: HPQ_DATA may be a large share, so nothing is walked; a directory is asked for
known paths and a tar for its first members. Directories and tars are then read the same way.
"""

from __future__ import annotations

import gzip
import io
import lzma
import math
import pickle
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy._core.multiarray import _reconstruct
from PIL import Image

from hpq.errors import DataMissing

Array = np.ndarray
Files = Iterable[tuple[re.Match[str], bytes]]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """A decoded data set: images uint8 (N, H, W) or (N, H, W, 3), labels int64 (N,) from 0 to 9."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One form: where its files lie in a directory, what they are called, how they are decoded."""

    globs: tuple[str, ...]  # of the files in a directory
    member: re.Pattern[str]  # the end of a file's path, in a directory or a tar
    decode: Callable[[Files], Arrays]


def _name(match: re.Match[str]) -> str:
    return match[0].removeprefix("/")


def _decode_batches(files: Files) -> Arrays:
    batches = {match[1]: _unpickle(_name(match), content) for match, content in files}

    def joined(names: list[str]) -> tuple[Array, Array]:
        data = np.concatenate([np.asarray(batches[n]["data"], np.uint8) for n in names])
        labels = np.concatenate([np.asarray(batches[n]["labels"], np.int64) for n in names])
        return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels

    train = joined([f"data_batch_{i}" for i in range(1, 6)])
    return _arrays(train, joined(["test_batch"]), (32, 32, 3))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        known = {"_reconstruct": _reconstruct, "ndarray": np.ndarray, "dtype": np.dtype}
        if not module.startswith("numpy") or name not in known:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}")
        return known[name]


def _unpickle(name: str, content: bytes) -> dict[str, object]:
    try:
        # latin1: the batches were written by Python 2, whose strings hold the bytes of the arrays.
        batch = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a torn pickle may raise any
        raise ValueError(f"{name} is no batch: {error}") from error
    if not isinstance(batch, dict):
        raise ValueError(f"{name} is no batch")
    return batch


def _decode_folders(files: Files) -> Arrays:
    splits: dict[str, list[tuple[int, str, Array]]] = {"train": [], "test": []}
    for match, content in files:
        split, name, file = match.groups()
        splits[split].append((CIFAR10_CLASSES.index(name), file, _picture(_name(match), content)))

    def stacked(split: str) -> tuple[Array, Array]:
        rows = sorted(splits[split], key=lambda row: row[:2])
        if len({label for label, _, _ in rows}) < len(CIFAR10_CLASSES):
            raise ValueError(f"{split}/ has not an image of each class")
        return np.stack([x for _, _, x in rows]), np.array([y for y, _, _ in rows], np.int64)

    return _arrays(stacked("train"), stacked("test"), (32, 32, 3))


def _picture(name: str, content: bytes) -> Array:
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
            size, pixels = image.size, np.asarray(image.convert("RGB"))
    except OSError as error:  # Pillow's own text names no file
        raise ValueError(f"{name} is no whole JPEG or PNG") from error
    if size != (32, 32):
        raise ValueError(f"{name} is {size[0]}x{size[1]} pixels, not 32x32")
    return pixels


def _decode_idx(files: Files) -> Arrays:
    parts: dict[str, Array] = {}
    for match, content in files:
        split, kind, packed = match.groups()
        parts[f"{split}-{kind}"] = _idx(
            _name(match), gzip.decompress(content) if packed else content
        )

    def both(split: str) -> tuple[Array, Array]:
        labels = parts[f"{split}-labels-idx1"].astype(np.int64)
        return parts[f"{split}-images-idx3"], labels

    return _arrays(both("train"), both("t10k"), (28, 28))


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


def _arrays(
    train: tuple[Array, Array], test: tuple[Array, Array], shape: tuple[int, ...]
) -> Arrays:
    for images, labels in (train, test):
        if images.shape[1:] != shape or len(images) != len(labels) or not len(labels):
            raise ValueError(f"{images.shape} images and {labels.shape} labels do not fit {shape}")
        if labels.min() < 0 or labels.max() > 9:
            raise ValueError(f"labels from {labels.min()} to {labels.max()}, not 0 to 9")
    return Arrays(
        train_images=train[0], train_labels=train[1], test_images=test[0], test_labels=test[1]
    )


BATCHES = Format(
    globs=("data_batch_*", "test_batch"),
    member=re.compile(r"(?:^|/)(data_batch_[1-5]|test_batch)$"),
    decode=_decode_batches,
)
FOLDERS = Format(
    globs=tuple(f"{split}/{name}/*" for split in ("train", "test") for name in CIFAR10_CLASSES),
    member=re.compile(
        rf"(?:^|/)(train|test)/({'|'.join(CIFAR10_CLASSES)})/([^/.][^/]*\.(?:jpe?g|png))$", re.I
    ),
    decode=_decode_folders,
)
IDX = Format(
    globs=("*-ubyte*", "raw/*-ubyte*"),
    member=re.compile(r"(?:^|/)(train|t10k)-(images-idx3|labels-idx1)-ubyte(\.gz)?$"),
    decode=_decode_idx,
)


TAR = re.compile(r"\.(tar(\.(gz|xz|bz2))?|tgz|txz|tbz2)\Z", re.I)
PEEK_MEMBERS = 64
PEEK_BYTES = 256 * 2**20
UNREADABLE = (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A data set that can be looked for: what its places are called and what is taken."""

    named: re.Pattern[str]
    formats: tuple[Format, ...]
    accepted: str  # for people


WANTED = {
    "cifar10": Wanted(
        named=re.compile(r"cifar(?!.*100)", re.I),
        formats=(BATCHES, FOLDERS),
        accepted="cifar-10-batches-py, train/CLASS/*.jpg|png with test/CLASS/..., or a tar of one",
    ),
    "mnist": Wanted(
        named=re.compile(r"(?<![a-z])mnist", re.I),  # neither KMNIST nor FashionMNIST
        formats=(IDX,),
        accepted="MNIST/raw/*-ubyte or *-ubyte.gz, or a tar of them",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place that holds a data set in a format: a directory or a tar."""

    path: Path
    format: Format

    def files(self) -> Files:
        """Its files, each with the match of its name, one at a time."""
        return _in_tar(self) if self.path.is_file() else _in_directory(self)

    def stamp(self) -> list[tuple[str, int, int]]:
        """Paths, sizes and times that change with the data.

        A directory of many pictures is stamped as a whole: a file that is overwritten in place,
        rather than replaced, goes unnoticed.
        """
        paths = {self.path} if self.path.is_file() else set()
        if not paths:
            for glob in self.format.globs:
                paths.update(self.path.glob(glob.removesuffix("/*")))
        stats = [(path, path.stat()) for path in sorted(paths)]
        return [(str(path.resolve()), s.st_size, s.st_mtime_ns) for path, s in stats]


def find(name: str, data: Path | None) -> Source:
    """The first place in HPQ_DATA that holds the data set.

    Raises:
        DataMissing: there is none (says where it looked, what to set and what is accepted).
    """
    wanted = WANTED[name]
    remedy = f"set HPQ_DATA to a directory or file with {wanted.accepted}"
    if data is None:
        raise DataMissing(f"data set {name}: HPQ_DATA is not set; {remedy}")
    if not data.exists():
        raise DataMissing(f"data set {name}: HPQ_DATA={data} does not exist; {remedy}")
    path = data
    try:
        for path in _candidates(data, wanted.named):
            for format in wanted.formats:
                source = Source(path=path, format=format)
                if _first_in_tar(source) if path.is_file() else _first_in_directory(source):
                    return source
    except UNREADABLE as error:
        why = str(error).partition(":\n")[0]  # tarfile lists every form that it tried
        raise DataMissing(f"data set {name}: {path}: {why}; {remedy}") from None
    raise DataMissing(f"data set {name}: not found in HPQ_DATA={data}; {remedy}")


def _candidates(path: Path, named: re.Pattern[str]) -> Iterator[Path]:
    yield path
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            if named.search(entry.name) and (entry.is_dir() or TAR.search(entry.name)):
                yield from _candidates(entry, named)


def _in_directory(source: Source) -> Files:
    for path, match in _matches(source):
        yield match, path.read_bytes()


def _first_in_directory(source: Source) -> bool:
    return next(_matches(source), None) is not None


def _matches(source: Source) -> Iterator[tuple[Path, re.Match[str]]]:
    for glob in source.format.globs:
        for path in sorted(source.path.glob(glob)):
            if match := source.format.member.search(path.relative_to(source.path).as_posix()):
                yield path, match


def _in_tar(source: Source) -> Files:
    with tarfile.open(source.path) as tar:
        for member in tar:
            match = source.format.member.search(member.name)
            content = tar.extractfile(member) if match and member.isfile() else None
            if match and content:
                yield match, content.read()


def _first_in_tar(source: Source) -> bool:
    with tarfile.open(source.path) as tar:
        for number, member in enumerate(tar):
            if source.format.member.search(member.name):
                return True
            # The next header lies behind this member, and a packed tar is unpacked up to there.
            if number >= PEEK_MEMBERS or member.offset_data + member.size > PEEK_BYTES:
                return False
    return False
