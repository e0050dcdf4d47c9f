"""Find CIFAR10 and MNIST: HPQ_DATA itself, or its entries that are named after the data set.

HPQ_DATA may be a large share, so no directory is walked: only known paths of a directory and the
first members of a tar are checked. Directories and tars are then read in the same way.
"""

from __future__ import annotations

import gzip
import lzma
import math
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpq.errors import DataMissing

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
UNREADABLE = (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error)
_TAR = re.compile(r"\.(tar(\.(gz|xz|bz2))?|tgz|txz|tbz2)\Z", re.I)
_PEEK_MEMBERS = 64
_PEEK_BYTES = 256 * 2**20

Files = Iterable[tuple[re.Match[str], bytes]]


def _end(path: Path, count: int) -> bytes:
    """Return the last bytes of a file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()


def _is_whole_idx(path: Path) -> bool:
    """Return whether a file has the size that its header names; that of a gz is in its end."""
    packed = path.suffix == ".gz"
    with gzip.open(path) if packed else path.open("rb") as file:
        head = file.read(16).ljust(4, b"\xff")
    size = int.from_bytes(_end(path, 4), "little") if packed else path.stat().st_size
    sizes = [int.from_bytes(head[at : at + 4]) for at in range(4, 4 + 4 * head[3], 4)]
    return size == 4 + 4 * head[3] + math.prod(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The file names of a data set in a directory or a tar."""

    globs: tuple[str, ...]  # of the files in a directory
    member: re.Pattern[str]  # the end of a file's path, in a directory or a tar
    files: tuple[str, ...] = ()  # all of a directory, if they are few
    is_whole: Callable[[Path], bool] = lambda _: True  # of one of these: it is not visibly cut


BATCHES = Layout(
    globs=("data_batch_*", "test_batch"),
    member=re.compile(r"(?:^|/)(data_batch_[1-5]|test_batch)$"),
    files=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
    is_whole=lambda path: _end(path, 1) == b".",  # pickle.STOP
)
FOLDERS = Layout(
    globs=tuple(f"{split}/{name}/*" for split in ("train", "test") for name in CIFAR10_CLASSES),
    member=re.compile(
        rf"(?:^|/)(train|test)/({'|'.join(CIFAR10_CLASSES)})/([^/.][^/]*\.(?:jpe?g|png))$", re.I
    ),
)
IDX = Layout(
    globs=("*-ubyte*", "raw/*-ubyte*"),
    member=re.compile(r"(?:^|/)(train|t10k)-(images-idx3|labels-idx1)-ubyte(\.gz)?$"),
    files=tuple(
        f"{a}-{b}-ubyte" for a in ("train", "t10k") for b in ("images-idx3", "labels-idx1")
    ),
    is_whole=_is_whole_idx,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    named: re.Pattern[str]  # its places
    layouts: tuple[Layout, ...]
    accepted: str  # for people


WANTED = {
    "cifar10": _Wanted(
        named=re.compile(r"cifar(?!.*100)", re.I),
        layouts=(BATCHES, FOLDERS),
        accepted="cifar-10-batches-py, train/CLASS/*.jpg|png with test/CLASS/..., or a tar of one",
    ),
    "mnist": _Wanted(
        named=re.compile(r"(?<![a-z])mnist", re.I),  # neither KMNIST nor FashionMNIST
        layouts=(IDX,),
        accepted="MNIST/raw/*-ubyte or *-ubyte.gz, or a tar of them",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A directory or a tar that holds a data set in a layout."""

    path: Path
    layout: Layout

    def files(self) -> Files:
        """Yield its files, each with the match of its name, one at a time.

        Raises:
            TarError: the tar is damaged, or incomplete.
        """
        if not self.path.is_file():
            yield from ((match, path.read_bytes()) for path, match in self._matches())
            return
        with tarfile.open(self.path) as tar:
            for member in tar:
                match = self.layout.member.search(member.name)
                content = tar.extractfile(member) if match and member.isfile() else None
                if match and content:
                    yield match, content.read()
            # tarfile takes a cut between two files, or in a header, for the end.
            if tar.fileobj is None or tar.fileobj.tell() < tar.offset + tarfile.BLOCKSIZE:
                raise tarfile.ReadError("it ends without the block that ends an archive")

    def stamp(self) -> list[tuple[str, int, int]]:
        """Return paths, sizes and times that change with the data.

        A directory of many pictures is stamped as a whole: a file that is overwritten in place,
        rather than replaced, goes unnoticed.
        """
        paths = {self.path} if self.path.is_file() else set()
        if not paths:
            for glob in self.layout.globs:
                paths.update(self.path.glob(glob.removesuffix("/*")))
        stats = [(path, path.stat()) for path in sorted(paths)]
        return [(str(path.resolve()), s.st_size, s.st_mtime_ns) for path, s in stats]

    def _matches(self) -> Iterator[tuple[Path, re.Match[str]]]:
        for glob in self.layout.globs:
            for path in sorted(self.path.glob(glob)):
                if match := self.layout.member.search(path.relative_to(self.path).as_posix()):
                    yield path, match

    def is_there(self) -> bool:
        """Return whether the beginning of the path fits the layout."""
        if not self.path.is_file():
            return next(self._matches(), None) is not None
        with tarfile.open(self.path) as tar:
            for number, member in enumerate(tar):
                if self.layout.member.search(member.name):
                    return True
                # The next header follows this member, and a packed tar is unpacked up to there.
                if number >= _PEEK_MEMBERS or member.offset_data + member.size > _PEEK_BYTES:
                    return False
        return False

    def damage(self) -> str:
        """Return what is missing or cut, as far as sizes, headers and ends show it; "" if nothing.

        Raises:
            OSError: a file cannot be read.
        """
        if self.path.is_file():
            return "" if _is_whole_tar(self.path) else "it is cut"
        if self.layout is FOLDERS:
            folders = [glob.removesuffix("/*") for glob in self.layout.globs]
            absent = [folder for folder in folders if not (self.path / folder).is_dir()]
            return f"{absent[0]} is missing" if absent else ""
        found = list(self._matches())
        names = {match[0].lstrip("/").removesuffix(".gz") for _, match in found}
        absent = [name for name in self.layout.files if name not in names]
        cut = [path.name for path, _ in found if not self.layout.is_whole(path)]
        return f"{absent[0]} is missing" if absent else f"{cut[0]} is cut" if cut else ""


def _is_whole_tar(path: Path) -> bool:
    """Return whether the end is that of a tar, a gz of whole blocks or an xz; of others, True."""
    with path.open("rb") as file:
        head = file.read(6)
    end = _end(path, tarfile.BLOCKSIZE)
    if head[:2] == b"\x1f\x8b":
        return int.from_bytes(end[-4:], "little") % tarfile.BLOCKSIZE == 0
    if head == b"\xfd7zXZ\0":
        return end.rstrip(b"\0").endswith(b"YZ")
    return head[:3] == b"BZh" or not end.strip(b"\0")


def damaged(name: str, path: Path, why: str) -> DataMissing:
    """Return the error of a data set that is there, but cannot be read whole."""
    remedy = f"repair it, or download another with `hpq data {name} DIR`"
    return DataMissing(f"data set {name}: {path} is damaged: {why}; {remedy}")


def find(name: str, data: Path) -> Source:
    """Return the first place in HPQ_DATA that holds the data set.

    Raises:
        DataMissing: no place holds it, or it is visibly damaged; the text names `hpq data`.
    """
    wanted = WANTED[name]
    remedy = f"run `hpq data {name}`, or set HPQ_DATA to a directory or file with {wanted.accepted}"
    if not data.exists():
        raise DataMissing(f"data set {name}: {data} does not exist; {remedy}")
    path, first = data, None
    try:
        for path in _candidates(data, wanted.named):
            for layout in wanted.layouts:
                if (source := Source(path=path, layout=layout)).is_there():
                    if not (why := source.damage()):
                        return source
                    first = first or damaged(name, path, why)
    except UNREADABLE as error:
        why = str(error).partition(":\n")[0]  # tarfile lists every form that it tried
        raise DataMissing(f"data set {name}: {path}: {why}; {remedy}") from None
    raise first or DataMissing(f"data set {name}: not found in {data}; {remedy}")


def _candidates(path: Path, named: re.Pattern[str]) -> Iterator[Path]:
    yield path
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            if named.search(entry.name) and (entry.is_dir() or _TAR.search(entry.name)):
                yield from _candidates(entry, named)
