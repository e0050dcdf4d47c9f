"""The code of a sweep as one gzipped tar: the same files give the same bytes.

The producer packs what the manifest names; whoever unpacks compares every file with the manifest,
whose digest is in the signed launch record. So a bundle that was changed in Redis is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from hpq.code.manifest import MOST_BYTES, digest_of
from hpq.errors import UserError
from hpq.filestore.base import is_safe_name


def pack(folder: Path, manifest: Mapping[str, str]) -> bytes:
    """The files of a manifest ({path: sha256}) under a folder.

    Raises:
        UserError: one cannot be read, or is not what the manifest was made of.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(manifest):
            path = folder / name
            try:
                data, mode = path.read_bytes(), path.stat().st_mode
            except OSError as error:
                raise UserError(f"{path}: {error.strerror}", code="file-unreadable") from None
            if hashlib.sha256(data).hexdigest() != manifest[name]:
                raise UserError(f"{path}: was edited in this moment; try again", code="code-edited")
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def unpack(bundle: bytes, manifest: Mapping[str, str]) -> dict[str, tuple[bytes, int]]:
    """{path: (content, mode)} of a bundle, all of it compared with the manifest.

    Raises:
        ValueError: it is no bundle, or not the one of this manifest; it may be anybody's bytes.
    """
    found = _read(bundle)
    for name, (data, _) in found.items():
        if hashlib.sha256(data).hexdigest() != manifest.get(name):
            raise ValueError(f"{name!r} is not as its manifest says")
    missing = sorted(manifest.keys() - found.keys())
    if missing:
        raise ValueError(f"{missing[0]!r} is missing")
    return found


def opened(bundle: bytes, digest: str) -> dict[str, tuple[bytes, int]]:
    """{path: (content, mode)} of a bundle whose files have this code digest.

    Raises:
        ValueError: as `unpack`.
    """
    found = _read(bundle)
    files = {name: hashlib.sha256(data).hexdigest() for name, (data, _) in found.items()}
    if digest_of(files) != digest:
        raise ValueError("its files have another digest")
    return found


class _Entry(tarfile.TarInfo):
    """An entry none of whose sizes is negative: tarfile would read the same bytes for ever."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise ValueError("a size under zero")
        return -(-count // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _read(bundle: bytes) -> dict[str, tuple[bytes, int]]:
    """What is in a bundle: regular files under inert names, each once (ValueError for others)."""
    found: dict[str, tuple[bytes, int]] = {}
    room = MOST_BYTES
    try:
        data = io.BytesIO(_inflated(bundle))
        with tarfile.open(fileobj=data, mode="r:", tarinfo=_Entry) as tar:
            for entry in tar:
                name = entry.name
                if not _is_plain(entry) or not is_safe_name(name) or name in found:
                    raise ValueError(f"{name!r} is no file of the code")
                room -= entry.size
                if room < 0:  # before a byte of it is read
                    raise ValueError(_TOO_MUCH)
                file = tar.extractfile(entry)
                found[name] = file.read() if file else b"", 0o755 if entry.mode & 0o100 else 0o644
    except _ODD as error:
        raise ValueError(f"not a bundle: {error or type(error).__name__}") from None
    return found


_TOO_MUCH = "it holds more than the 10 MiB that code may have"
_ODD = (tarfile.TarError, EOFError, zlib.error, OSError, ArithmeticError, LookupError, MemoryError,
        RecursionError)  # fmt: skip


def _is_plain(entry: tarfile.TarInfo) -> bool:
    """True for a file that is all there: one with holes has any size in a few bytes."""
    is_sparse = entry.issparse() or any(key.startswith("GNU.sparse") for key in entry.pax_headers)
    return entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not is_sparse


def _inflated(bundle: bytes) -> bytes:
    """What is inside, so much of it as a bundle may be: no bomb fills the memory."""
    most = MOST_BYTES * 2  # heads and padding of many small files
    with gzip.GzipFile(fileobj=io.BytesIO(bundle)) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(_TOO_MUCH)
    return data


def write(files: Mapping[str, tuple[bytes, int]], folder: Path) -> None:
    """Write unpacked files into a folder.

    Raises:
        OSError: one cannot be written, or is there.
    """
    for name, (data, mode) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
