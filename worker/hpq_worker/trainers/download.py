"""Download a data set: `python -m hpq_worker.trainers.download cifar10|mnist DIR` (`hpq data`).

torchvision does it if it can be imported; else the same archives are fetched here. An error is one
line on stdout and exit code 2; progress is on stderr.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlretrieve

from hpq.errors import DataMissing

_TIMEOUT_S = 30.0
_CIFAR10 = {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"}  # places, MD5s
_MNIST = {
    "MNIST/raw/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "MNIST/raw/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "MNIST/raw/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "MNIST/raw/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
FILES = {  # torchvision's class, and the files with the address in front of their names
    "cifar10": ("CIFAR10", "https://www.cs.toronto.edu/~kriz/", _CIFAR10),
    "mnist": ("MNIST", "https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST),
}


def download(name: str, folder: Path) -> None:
    """Fetch the files of a data set that are not in the directory yet.

    Raises:
        DataMissing: a file cannot be fetched; the text names the file to bring.
    """
    kind, base, files = FILES[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            from torchvision import datasets  # noqa: PLC0415 (an extra; it may be of another CUDA)
        except (ImportError, OSError, RuntimeError):
            for place, md5 in files.items():
                _fetch(base + Path(place).name, folder / place, md5)
        else:
            getattr(datasets, kind)(folder, download=True)
    except (OSError, HTTPException, RuntimeError, ValueError) as error:
        wanted = ", ".join(f"{place} (MD5 {md5})" for place, md5 in files.items())
        text = f"data set {name}: {error}; run it again, or bring to {folder}: {wanted} from {base}"
        raise DataMissing(text) from None


def _fetch(url: str, path: Path, md5: str) -> None:
    """Fetch a file, which appears once it is whole and has this checksum."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another may fetch it, too

    def show(blocks: int, size: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{path.name} {blocks * size / 2**20:.0f} MiB", end="", file=sys.stderr)

    try:
        urlretrieve(url, part, show)
        with part.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != md5:
            raise ValueError(f"{url} has the MD5 {found}, not {md5}")
        part.replace(path)
    except HTTPError as error:
        error.close()
        raise OSError(f"{url}: {error.code} {error.reason}") from None
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    socket.setdefaulttimeout(_TIMEOUT_S)
    try:
        download(sys.argv[1], Path(sys.argv[2]))
    except DataMissing as failure:
        print(failure)
        sys.exit(int(failure.exit_code))
