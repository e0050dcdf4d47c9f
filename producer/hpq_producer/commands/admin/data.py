"""`hpq data`: fetch a data set of the built-in trainers."""

from __future__ import annotations

import hashlib
import os
import sys
from http.client import HTTPException
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError
from urllib.request import urlopen

from typer import Argument

from hpq.access.session import load_settings
from hpq.datasets import WANTED, find
from hpq.errors import DataMissing, UserError
from hpq.shell import shell_line

_TIMEOUT_S = 30.0
_BLOCK = 2**20  # bytes
_CIFAR10 = {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"}  # places, MD5s
_MNIST = {
    "MNIST/raw/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "MNIST/raw/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "MNIST/raw/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "MNIST/raw/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
FILES = {  # and the address in front of their names; the archives are those of torchvision
    "cifar10": ("https://www.cs.toronto.edu/~kriz/", _CIFAR10),
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST),
}


def data(
    name: Annotated[str, Argument(help=f"Data set: {' or '.join(WANTED)}.")],
    folder: Annotated[
        Path | None,
        Argument(metavar="DIR", help="Directory. Default: HPQ_DATA, else HPQ_HOME/data."),
    ] = None,
) -> None:
    """Download a data set for the built-in trainers.

    Example: hpq data cifar10 /data
    """
    if name not in WANTED:
        raise UserError(f"no data set {name!r}; use one of {', '.join(WANTED)}")
    settings = load_settings()
    place = (folder or settings.data).absolute()
    try:
        find(name, place)
    except DataMissing:
        download(name, place)
        find(name, place)  # an older file may be damaged
    print(f"{name} is in {place}")
    if settings.data.absolute() != place:
        print(shell_line(["export", f"HPQ_DATA={place}"]))


def download(name: str, folder: Path) -> None:
    """Fetch the files of a data set that are not in the directory yet.

    Raises:
        DataMissing: a file cannot be fetched; the text names the file to bring.
    """
    base, files = FILES[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = f"name a directory that you can write: hpq data {name} DIR"
        raise DataMissing(f"{folder}: {error.strerror}; {remedy}") from None
    try:
        for place, md5 in files.items():
            _fetch(base + Path(place).name, folder / place, md5)
    except (OSError, HTTPException, ValueError) as error:
        wanted = ", ".join(f"{place} (MD5 {md5})" for place, md5 in files.items())
        text = f"data set {name}: {error}; run it again, or bring to {folder}: {wanted} from {base}"
        raise DataMissing(text) from None


def _fetch(url: str, path: Path, md5: str) -> None:
    """Fetch a file, which appears once it is whole and has this checksum."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another may fetch it, too
    found = hashlib.md5(usedforsecurity=False)
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer, part.open("wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                found.update(block)
                if sys.stderr.isatty():
                    size = file.tell() / 2**20
                    print(f"\r{path.name} {size:.0f} MiB", end="", file=sys.stderr)
        if found.hexdigest() != md5:
            raise ValueError(f"{url} has the MD5 {found.hexdigest()}, not {md5}")
        part.replace(path)
    except HTTPError as error:
        error.close()
        raise OSError(f"{url}: {error.code} {error.reason}") from None
    finally:
        part.unlink(missing_ok=True)
