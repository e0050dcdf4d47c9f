"""The code of a sweep as one gzipped tar: the same files give the same bytes.

The producer packs the files of the manifest. The worker compares all files with the manifest's
digest in the signed launch record, so it rejects a bundle that was changed in Redis.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path

from hpq.code.snapshot import MOST_BYTES, Files, digest_of
from hpq.code.snapshot import manifest as manifest_of
from hpq.errors import writing
from hpq.filestore.base import is_safe_name
from hpq.private_files import replace_private

_DIGEST = re.compile(r"[0-9a-f]{64}")
WRITTEN_S = 1_000_000_000  # of each copy: another time shows that a program wrote the file


def pack(files: Files) -> bytes:
    """Pack a snapshot."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, (data, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def keep(home: Path, digest: str, bundle: bytes) -> None:
    """Keep a snapshot that is too large for Redis on this disk only.

    Raises:
        UserError: the file cannot be written.
    """
    path = _kept(home, digest)
    with writing(path):
        replace_private(path, bundle)


def read_kept(home: Path, digest: str) -> Files | None:
    """Return the snapshot of this digest that this disk keeps, or None."""
    with suppress(OSError, ValueError):
        found = unpack(_kept(home, digest).read_bytes(), digest, most=math.inf)
        os.utime(_kept(home, digest))  # an unused snapshot is removed after a month
        return found
    return None


def _kept(home: Path, digest: str) -> Path:
    if not _DIGEST.fullmatch(digest):  # any client of Redis may have written it
        raise ValueError("it is no digest")
    return home / "snapshots" / f"{digest}.tar.gz"


def unpack(bundle: bytes, digest: str, most: float = MOST_BYTES) -> Files:
    """Return {path: (content, mode)} of a bundle whose files have this code digest.

    Raises:
        ValueError: the bytes, which any user may have written, are not this code's bundle.
    """
    found = _read(bundle, most)
    if digest_of(manifest_of(found)) != digest:
        raise ValueError("its files have another digest")
    return found


class _Entry(tarfile.TarInfo):
    """An entry without negative sizes, for which tarfile would read the same bytes for ever."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise ValueError("a size below zero")
        return -(-count // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _read(bundle: bytes, most: float = MOST_BYTES) -> Files:
    """Return the files of a bundle: regular, with safe names, each once (else ValueError)."""
    found: Files = {}
    left = most
    try:
        data = io.BytesIO(_inflated(bundle, 3 * most))  # heads and padding of many small files
        with tarfile.open(fileobj=data, mode="r:", tarinfo=_Entry) as tar:
            for entry in tar:
                name = entry.name
                if not _is_plain(entry) or not is_safe_name(name) or name in found:
                    raise ValueError(f"{name!r} cannot be a file of the code")
                left -= entry.size
                if left < 0:  # before the file is read
                    raise ValueError(_TOO_MUCH)
                file = tar.extractfile(entry)
                found[name] = file.read() if file else b"", 0o755 if entry.mode & 0o100 else 0o644
    except _ODD as error:
        raise ValueError(f"not a bundle: {error or type(error).__name__}") from None
    return found


_TOO_MUCH = "it holds more than 10 MiB, the limit for code"
_ODD = (tarfile.TarError, EOFError, zlib.error, OSError, ArithmeticError, LookupError, MemoryError,
        RecursionError)  # fmt: skip


def _is_plain(entry: tarfile.TarInfo) -> bool:
    """True for a file that is not sparse: a sparse one has any size in a few bytes."""
    is_sparse = entry.issparse() or any(key.startswith("GNU.sparse") for key in entry.pax_headers)
    return entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not is_sparse


def _inflated(bundle: bytes, most: float) -> bytes:
    """Unpack at most N bytes, so that no bomb fills the memory."""
    with gzip.GzipFile(fileobj=io.BytesIO(bundle)) as file:
        # A read of N bytes asks for all of them at once: a large N is out of memory.
        data = file.read() if most == math.inf else file.read(int(most) + 1)
    if len(data) > most:
        raise ValueError(_TOO_MUCH)
    return data


def write(files: Files, folder: Path) -> None:
    """Write unpacked files into a folder; each has the time WRITTEN_S.

    Raises:
        OSError: a file cannot be written, or exists.
    """
    root = str(folder)
    for parent in sorted({"", *(name.rpartition("/")[0] for name in files)}):
        os.makedirs(f"{root}/{parent}", exist_ok=True)
    for name, (data, mode) in files.items():
        write_file(f"{root}/{name}", data, mode)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write a file of the code with the time WRITTEN_S; raises like `write`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.utime(fd, (WRITTEN_S, WRITTEN_S))
