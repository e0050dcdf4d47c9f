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

from hpq.connection import credentials, tls
from hpq.errors import UserError
from hpq.process import private_file

MARK = "hpq-invite-1-"
_ANY_MARK = re.compile(r"hpq-invite-\d+-")
_CHECK_BYTES = 8
_MOST_BYTES = 1 << 20
SETTINGS = frozenset({"HPQ_PREFIX", "HPQ_QUEUE", "HPQ_STORE", "HPQ_LEASE_S", "HPQ_WAIT_REPLICAS"})
PASSWORD, CODE_KEY = "password", "code.key"
_TLS = (tls.CA, tls.CERTIFICATE, tls.KEY)
_FILES = frozenset({PASSWORD, CODE_KEY, *_TLS})


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
        """Collect an invitation to the server of a URL; reads the TLS files that the URL names."""
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
        return cls(url=bare, settings=settings, files=files, versions=versions)

    def encode(self) -> str:
        """Return the invitation as a token: one word."""
        body = zlib.compress(json.dumps(asdict(self)).encode())
        return MARK + base64.urlsafe_b64encode(_check(body) + body).decode()

    @classmethod
    def decode(cls, token: str) -> Invitation:
        """Read a token; white space in it is ignored.

        Raises:
            UserError: it is no token, incomplete, or of another version of hpq.
        """
        word = "".join(token.split())
        if not word.startswith(MARK):
            raise _invalid(
                "another version of hpq made this token; install the same version on both machines"
                if _ANY_MARK.match(word)
                else "this is no token, or not all of it; copy the whole output of `hpq invite`"
            )
        try:
            raw = base64.b64decode(word.removeprefix(MARK), b"-_", validate=True)
        except ValueError:
            raw = b""
        body = raw[_CHECK_BYTES:]
        if not body or _check(body) != raw[:_CHECK_BYTES]:
            raise _invalid("the token is incomplete or changed; copy all of it again")
        try:
            found = cls(**json.loads(zlib.decompressobj().decompress(body, _MOST_BYTES)))
            # Names become variables and paths.
            unknown = (set(found.settings) - SETTINGS) | (set(found.files) - _FILES)
            if unknown or CODE_KEY not in found.files:
                raise ValueError
            credentials.parse(found.url)
        except (ValueError, TypeError, zlib.error):
            raise _invalid("hpq did not make this token; run `hpq invite` again") from None
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


def _check(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:_CHECK_BYTES]


def _invalid(text: str) -> UserError:
    return UserError(text, code="invitation-invalid")
