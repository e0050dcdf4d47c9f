"""Where a data set lies: HPQ_DATA itself, or entries in it whose names speak of the set.

Cheap on purpose: HPQ_DATA may be a large share, so nothing is walked; a directory is asked for
known paths and a tar for its first members. Directories and tars are then read the same way.
"""

from __future__ import annotations

import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpq.errors import DataMissing
from worker.trainers.formats import BATCHES, FOLDERS, IDX, Files, Format

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
