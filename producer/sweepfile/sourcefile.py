"""A sweep file as text: found, small enough, and in UTF-8.

Imported by spec. Every way in which a path can fail to be such a file is one line that says where.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from hpq.errors import SweepFileError

MAX_BYTES = 2**20

# What YAML takes, which leaves out NUL, ESC and the other controls, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read(path: Path) -> str:
    """The text of a file.

    Raises:
        SweepFileError: there is no such file, it cannot be read, or it is not text (`decode`).
    """
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a pipe would wait for its writer
            raise SweepFileError(
                f"{path}: not a regular file; give the path of a sweep file", code="file-not-found"
            )
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SweepFileError(
            f"{path}: no such file; give the path of a sweep file", code="file-not-found"
        ) from None
    except IsADirectoryError:
        raise SweepFileError(
            f"{path}: a directory; give the path of a sweep file", code="file-not-found"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SweepFileError(f"{path}: cannot be read: {reason}", code="file-unreadable") from None
    return decode(raw, str(path))


def decode(raw: bytes, file: str) -> str:
    """The text of a file's bytes: UTF-8, with or without a byte order mark, at most 1 MiB.

    Raises:
        SweepFileError: too large, UTF-16, binary, or not UTF-8 (says where).
    """
    if len(raw) > MAX_BYTES:
        raise SweepFileError(
            f"{file}:1:1: larger than 1 MiB; a sweep file is a few kilobytes", code="file-too-large"
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SweepFileError(
            f"{file}:1:1: the file is UTF-16; save it as UTF-8", code="file-encoding"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, col = _locate(error.object[: error.start].decode("utf-8-sig"))
        byte = f"0x{error.object[error.start]:02x}"
        raise SweepFileError(
            f"{file}:{line}:{col}: byte {byte} is not UTF-8; save the file as UTF-8",
            code="file-encoding",
        ) from None
    check_text(text, file)
    return text


def check_text(text: str, file: str) -> None:
    """Nothing where every character may stand in YAML.

    Raises:
        SweepFileError: a control character, or half of a surrogate pair (says where).
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line, col = _locate(text[: bad.start()])
        what = f"a binary file? character U+{ord(bad.group()):04X} cannot stand in YAML"
        raise SweepFileError(
            f"{file}:{line}:{col}: {what}; give a text file in UTF-8", code="file-encoding"
        )


def _locate(before: str) -> tuple[int, int]:
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1
