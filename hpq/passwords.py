"""Where the password of the server is, and how it stays out of sight. Standard library only.

It stands in the URL, or in a file that the URL names as `?password_file=PATH` (settings writes that
for HPQ_REDIS_PASSWORD_FILE). A file is read at every connect, so that a rotated password needs no
restart.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

_FILE = "password_file"
# Greedy: a password may hold an @ that nobody wrote as %40.
_IN_URL = re.compile(r"(://[^:/@\s]*):\S*@")
_IN_QUERY = re.compile(r"([?&]password=)[^&\s]*")


def redact(text: str) -> str:
    """The text with the password of any URL in it hidden."""
    return _IN_QUERY.sub(r"\1***", _IN_URL.sub(r"\1:***@", text))


def with_file(url: str, path: Path) -> str:
    """The URL with the file that holds its password; one that names a file stays as it is."""
    parts = urlsplit(url)
    if any(name == _FILE for name, _ in parse_qsl(parts.query)):
        return url
    return f"{url}{'&' if parts.query else '?'}{urlencode({_FILE: str(path)}, safe='/')}"


def split(url: str) -> tuple[str, str, Path | None]:
    """The URL as redis-py takes it, the user and the file; without a file, the URL as it is.

    Raises:
        ValueError: it has a password and a file, or cannot be read.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    files = [value for name, value in query if name == _FILE]
    if not files:
        return url, "", None
    if parts.password or "password" in dict(query):
        raise ValueError("it has a password and a password file; keep one of them")
    rest = urlencode([(name, value) for name, value in query if name != _FILE], safe="/")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=rest)
    # A socket's URL has an empty host, which urlunsplit would leave out.
    plain = urlunsplit(bare)
    if not bare.netloc and "://" not in plain:
        plain = plain.replace(":", "://", 1)
    return plain, unquote(parts.username or ""), Path(files[-1])


def read(path: Path) -> str:
    """The password in a file, without the line end.

    Raises:
        OSError: it cannot be read, or is empty.
    """
    text = path.read_text("utf-8").rstrip("\r\n")
    if not text:
        raise OSError(0, "the file is empty")
    return text


def of(url: str) -> str:
    """The password that a URL stands for now; empty where there is none or it cannot be read."""
    try:
        plain, _, path = split(url)
        if path is not None:
            return read(path)
        parts = urlsplit(plain)
        return unquote(parts.password or dict(parse_qsl(parts.query)).get("password", ""))
    except (OSError, ValueError):
        return ""
