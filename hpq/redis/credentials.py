"""Parse the server's URL; find its password and those of file-store URLs, and hide them in text.

Standard library only. The server's password is in its URL, or in a file that the URL names as
`?password_file=PATH` (settings writes that for HPQ_REDIS_PASSWORD_FILE). The file is read at every
connect, so that a rotated password needs no restart. A redis+file:// URL names a file with the
address, the password and the proof of a server (hpq.redis.address_file).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import (
    SplitResult,
    parse_qsl,
    quote,
    unquote,
    unquote_plus,
    urlencode,
    urlsplit,
    urlunsplit,
)

# Settings, by variable.
SECRETS = frozenset({"HPQ_CODE_KEY", "HPQ_NOTIFY", "HPQ_REDIS_URL"})
_FILE = "password_file"
FILE_SCHEME = "redis+file"
_ADDRESS_WORDS = 3  # HOST:PORT, password and proof
_PLACE = re.compile(r"[A-Za-z0-9._-]+:[0-9]+")
_ENDED = re.compile(r"Redis job [0-9_]* on [A-Za-z0-9._-]+ has ended")
_USER = r"(?:[^\s/?#\[\]]*@)?"  # with the password; the last @ ends it
_HOST = r"(?:\[[^\s/?#\[\]@]*\]|[^\s/?#\[\]@:,]*)(?::[0-9]*)?"
_QUERY = r"(?:\?[^@#]*)?"
# An @ behind the host would belong to a password that has a / ? or #.
_REDIS_URL = re.compile(
    rf"rediss?://{_USER}{_HOST}(?:/[0-9]*)?/?{_QUERY}"
    rf"|unix://(?:{_USER}/[^?#@]*|/[^?#]*){_QUERY}"
    rf"|{re.escape(FILE_SCHEME)}:///[^?#]*{_QUERY}"
)
_FORMS = (
    "use redis://USER:PASSWORD@HOST:6379/0, rediss:// or unix:///PATH; write special characters of"
    " the user and the password as %XX: %20 for a space, %2F for /, %40 for @"
)
_TO_USER = re.compile("://[^:]*:")
# Names of secrets in fsspec's file systems: secret, token, account_key, X-Amz-Signature; no files.
_TELLING = re.compile("key|secret|token|passw|passphrase|credential|sig", re.IGNORECASE)
_NAME = re.compile(r"[?&]([\w.-]+)=")
_VALUE = re.compile("[^&]*")
_IN_STORE = re.compile(r"://[^:]*:(?:(?=([^/]*)@)|)(?=(.*)@)", re.DOTALL)
_WORD = re.compile(r"\S+")
_SHORTEST = 4  # characters; hiding less would eat ordinary words


def parse(url: str) -> SplitResult:
    """Return the parts of a Redis URL, in which no character can be misread.

    Raises:
        ValueError: the URL is malformed; the text names what to write, and nothing of the URL.
    """
    if not url.isprintable() or not _REDIS_URL.fullmatch(url):
        raise ValueError(_FORMS)
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port above 65535
    except ValueError:  # its text has the password
        raise ValueError(_FORMS) from None
    return parts


def checked(url: str) -> str:
    """Return a Redis URL as it is. Raises as `parse`."""
    parse(url)
    return url


def redact(url: str) -> str:
    """Return a URL with its password hidden: all up to the last @, as it may be malformed."""
    head, at, rest = url.rpartition("@")  # the last: a password may hold one that is not %40
    if user := _TO_USER.search(head):
        url = f"{head[: user.end()]}***{at}{rest}"
    shown, end = list[str](), 0
    for start, stop in _in_query(url):
        shown += (url[end:start], "***")
        end = stop
    return "".join((*shown, url[end:]))


def _in_query(url: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each value of a query whose name is that of a secret."""
    end = 0
    for found in _NAME.finditer(url):
        is_file = found[1].lower().endswith(("file", "path"))
        if found.start() >= end and not is_file and _TELLING.search(found[1]):
            value = _VALUE.match(url, found.end())
            assert value is not None
            end = value.end()
            yield value.start(), end


def carried(url: str) -> tuple[str, ...]:
    """Return the passwords, keys and tokens in the URL of a store, as written and decoded."""
    if "://" not in url:  # a directory
        return ()
    raw = [text for found in _IN_STORE.findall(url) for text in found]
    raw += [url[start:end] for start, end in _in_query(url)]
    plain = [way(text) for text in raw for way in (unquote, unquote_plus)]
    found = [*raw, *plain, *(quote(text, safe="") for text in plain)]
    return tuple(dict.fromkeys(text for text in found if text))


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return the text with these secrets, and the passwords of its URLs, hidden."""
    for one in sorted((s for s in secrets if len(s) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(one, "***")
    return _WORD.sub(lambda found: redact(found[0]), text)


def with_file(url: str, path: Path) -> str:
    """Add a password file to a URL, unless the URL names one."""
    parts = parse(url)
    if any(name == _FILE for name, _ in parse_qsl(parts.query)):
        return url
    return f"{url}{'&' if parts.query else '?'}{urlencode({_FILE: str(path)}, safe='/')}"


def split(url: str) -> tuple[str, str, Path | None]:
    """Return the URL for redis-py, the user and the file; without a file, the URL as it is.

    Raises:
        ValueError: the URL has a password and a file, or is malformed.
    """
    parts = parse(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    files = [value for name, value in query if name == _FILE]
    if not files:
        return url, "", None
    if parts.password or "password" in dict(query):
        raise ValueError("it has a password and a password file; keep one of them")
    rest = urlencode([(name, value) for name, value in query if name != _FILE], safe="/")
    plain = with_place(parts._replace(query=rest), parts.netloc.rpartition("@")[2])
    return plain, unquote(parts.username or ""), Path(files[-1])


def with_place(parts: SplitResult, netloc: str) -> str:
    """Return a URL with another user, password and host."""
    # A socket's URL has an empty host, which urlunsplit would leave out.
    plain = urlunsplit(parts._replace(netloc=netloc))
    return plain if "://" in plain else plain.replace(":", "://", 1)


def read(path: Path) -> str:
    """Return the password in a file, without the line end.

    Raises:
        OSError: the file cannot be read, or is empty.
    """
    text = path.read_text("utf-8").rstrip("\r\n")
    if not text:
        raise OSError(0, "the file is empty")
    return text


def read_address(path: Path) -> tuple[str, str, str]:
    """Return HOST:PORT, the password and the proof of the server that a file names.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has a sentence, why there is no server; or it is another file.
    """
    text = path.read_text("utf-8", "replace").strip()
    words = text.split()
    if len(words) != _ADDRESS_WORDS or not _PLACE.fullmatch(words[0]):
        # Another file is not quoted: it may hold a secret.
        raise ValueError(text if _ENDED.fullmatch(text) else f"{path}: no address of a Redis job")
    place, password, proof = words
    return place, password, proof


def of(url: str) -> str:
    """Return the current password of a URL; "" if it has none, or the file cannot be read."""
    try:
        if url.startswith(FILE_SCHEME):
            return read_address(Path(unquote(parse(url).path)))[1]
        plain, _, path = split(url)
        if path is not None:
            return read(path)
        parts = parse(plain)
        return unquote(parts.password or dict(parse_qsl(parts.query)).get("password", ""))
    except (OSError, ValueError):
        return ""


def is_local(url: str) -> bool:
    """Return True if a URL names a server that only its own machine reaches."""
    parts = parse(url)
    host = parts.hostname or "localhost"  # a socket's URL has none
    return parts.scheme != FILE_SCHEME and (host in ("localhost", "::1") or host.startswith("127."))
