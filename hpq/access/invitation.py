"""Invitations: what another machine needs to work for a server, as one line of text.

`hpq join` keeps an invitation under HPQ_HOME/join, readable by its owner only. Its settings apply
to all commands of the machine if neither HPQ_REDIS_URL nor a background connection is set.
Standard library only: every command reads this module.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from hpq.errors import UserError
from hpq.private_files import private_file
from hpq.redis import credentials, tls
from hpq.store.wire import decode

TOKEN_PREFIX = "hpq-invite-1-"
_ANY_TOKEN_PREFIX = re.compile(r"hpq-invite-\d+-")
_CHECK_BYTES = 8
_MOST_BYTES = 1 << 20
SETTINGS = frozenset({"HPQ_PREFIX", "HPQ_QUEUE", "HPQ_STORE", "HPQ_LEASE_S"})
PASSWORD, CODE_KEY = "password", "code.key"
_TLS = (tls.CA, tls.CERTIFICATE, tls.KEY)
_FILES = frozenset({PASSWORD, CODE_KEY, *_TLS})
_SCHEMES = ("redis", "rediss", "unix")  # redis+file reads the file that it names
# None names a file: a token would have this machine read it, and send it to the token's server.
_OPTIONS = frozenset(
    """db health_check_interval socket_connect_timeout socket_keepalive socket_timeout ssl_cert_reqs
    ssl_check_hostname ssl_min_version""".split()
)
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
# A directory or an object store: fsspec chains URLs, and opens what a file of some kinds names.
_STORE = re.compile(
    r"(?!.*::)((file://)?/((?!://).)*|(s3|s3a|gs|gcs|az|abfs|abfss|adl|oss|hdfs|webhdfs)://[^?#]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A server's URL without its password, settings by variable, and texts of files by name."""

    url: str
    settings: Mapping[str, str]
    files: Mapping[str, str]
    versions: Mapping[str, str]  # of the machine that invites: hpq, python, torch

    @classmethod
    def of(
        cls, url: str, key: str, settings: Mapping[str, str], versions: Mapping[str, str]
    ) -> Invitation:
        """Collect an invitation to the server of a URL; reads the TLS files that the URL names.

        Raises:
            UserError: another machine could not, or must not, use this URL or these settings.
        """
        parts = credentials.parse(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        files = {name: Path(path).read_text("utf-8") for name, path in query if name in _TLS}
        files[CODE_KEY] = key
        if parts.scheme != credentials.FILE_SCHEME and (password := credentials.of(url)):
            files[PASSWORD] = password
        rest = urlencode([(n, v) for n, v in query if n not in _TLS and n not in _SECRETS])
        user = f"{parts.username}@" if parts.username else ""
        host = parts.netloc.rpartition("@")[2]
        bare = credentials.with_place(parts._replace(query=rest), user + host)
        made = cls(url=bare, settings=settings, files=files, versions=versions)
        if why := _why_refused(made):
            text = f"{credentials.redact(url)}: {why}; `hpq join` would refuse the token"
            raise UserError(
                f"{text}: change or unset that for `hpq invite`", code="setting-invalid"
            )
        return made

    def encode(self) -> str:
        """Return the invitation as a token: one word."""
        body = zlib.compress(json.dumps(asdict(self)).encode())
        return TOKEN_PREFIX + base64.urlsafe_b64encode(_check(body) + body).decode()

    @classmethod
    def decode(cls, token: str) -> Invitation:
        """Read a token; white space in it is ignored.

        Raises:
            UserError: it is no token, incomplete, of another version of hpq, or would have this
                machine read a file or set another variable.
        """
        word = "".join(token.split())
        if not word.startswith(TOKEN_PREFIX):
            raise _invalid(
                "another version of hpq made this token; install the same version on both machines"
                if _ANY_TOKEN_PREFIX.match(word)
                else "this is no token, or not all of it; copy the whole output of `hpq invite`"
            )
        try:
            raw = base64.b64decode(word.removeprefix(TOKEN_PREFIX), b"-_", validate=True)
        except ValueError:
            raw = b""
        body = raw[_CHECK_BYTES:]
        if not body or _check(body) != raw[:_CHECK_BYTES]:
            raise _invalid("the token is incomplete or changed; copy all of it again")
        try:
            text = zlib.decompressobj().decompress(body, _MOST_BYTES).decode()
            found = _INVITATION.parse(text)
            why = _why_refused(found)
        except (ValueError, TypeError, RecursionError, zlib.error):
            why = "its text is no invitation"
        if why:
            text = (
                f"hpq did not make this token: {why}; do not use it, and ask its sender for another"
            )
            raise _invalid(text)
        return found

    def write(self, home: Path) -> Path:
        """Write the invitation into a new private directory of HPQ_HOME, and return it."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".join-", dir=home))  # 0700
        head = json.dumps({"url": self.url, "settings": dict(self.settings)})
        for name, text in {**self.files, _HEAD: head}.items():
            with open(folder / name, "x", encoding="utf-8", opener=private_file) as file:
                file.write(text)
        return folder


_INVITATION = decode.Record(
    Invitation,
    url=decode.text,
    settings=decode.by_name(decode.text),
    files=decode.by_name(decode.text),
    versions=decode.by_name(decode.text),
)
_HEAD = "server.json"
_SECRETS = ("password", "password_file")


def folder_of(home: Path) -> Path:
    """Return the directory of the server that this machine has joined."""
    return home / "join"


def keep(draft: Path, home: Path) -> None:
    """Make a directory that `write` returned the one in force."""
    folder, old = folder_of(home), draft.with_name(f"{draft.name}.old")
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def joined(folder: Path) -> dict[str, str]:
    """Return the environment variables of an invitation in a directory; {} if it has none.

    Raises:
        UserError: its files cannot be read.
    """
    try:
        head = json.loads((folder / _HEAD).read_text("utf-8"))
        url, variables = str(head["url"]), dict(head["settings"])
        if files := {n: str(folder / n) for n in _TLS if (folder / n).exists()}:
            url += ("&" if "?" in url else "?") + urlencode(files, safe="/")
        if (folder / PASSWORD).exists():
            variables["HPQ_REDIS_PASSWORD_FILE"] = str(folder / PASSWORD)
        key = (folder / CODE_KEY).read_text("utf-8")
        return {**variables, "HPQ_REDIS_URL": url, "HPQ_CODE_KEY": key}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{folder}: cannot read what `hpq join` wrote: {error}; run `hpq leave`"
        raise UserError(text, code="file-unreadable") from None


def _why_refused(found: Invitation) -> str:
    """Return why no machine may use an invitation, which a stranger may have made; "" if it may."""
    parts = credentials.parse(found.url)
    options = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    texts = [found.url, *found.settings.values(), *found.versions.values()]
    if not all(map(str.isprintable, texts)):
        return "a text in it cannot be printed"
    if any(_NO_TEXT.search(text) for text in found.files.values()):
        return "a text in it cannot be written to a file"
    if parts.scheme not in _SCHEMES:
        return f"its server is not of {', '.join(_SCHEMES)}, but {parts.scheme}:"
    if other := next((name for name in options if name not in _OPTIONS), None):
        return f"the URL of its server has the option {other!r}"
    if other := next(iter(set(found.settings) - SETTINGS), None):  # names of variables
        return f"it sets {other!r}"
    if other := next(iter(set(found.files) - _FILES), None):  # names of files
        return f"it has a file {other!r}"
    if CODE_KEY not in found.files:
        return "it has no code key"
    if not _STORE.fullmatch(store := found.settings.get("HPQ_STORE", "/")):
        return f"its HPQ_STORE, {credentials.redact(store)!r}, is no directory and no object store"
    return ""


def _check(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:_CHECK_BYTES]


def _invalid(text: str) -> UserError:
    return UserError(text, code="invitation-invalid")
