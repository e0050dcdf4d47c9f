"""`hpq redis-acl`."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from typer import Option

from hpq.connection import credentials as passwords_of
from hpq.connection.client import check_server, connect, guard
from hpq.connection.credentials import with_place
from hpq.connection.server import change_password
from hpq.errors import UserError
from hpq.notice import Notice
from hpq.sanitize import shell_line
from hpq.settings import Settings
from hpq_producer.commands.common_flags import Output
from hpq_producer.invitation import open_private
from hpq_producer.manifests.acl import ROLES, Version, line, users
from hpq_producer.session import load_settings
from hpq_producer.terminal.console import print_message, warn
from hpq_producer.terminal.output import Format, show_data

_HELP = """load it:   hpq redis-acl --passwords DIR | redis-cli -u ADMIN-URL
keep it:   ACL SAVE if the server has an aclfile, else CONFIG REWRITE; otherwise a restart loses it
use it:    HPQ_REDIS_URL=redis://{worker}@HOST HPQ_REDIS_PASSWORD_FILE=DIR/worker hpq worker
the user `default` is unchanged; with another administrator: ACL SETUSER default off"""


def redis_acl(
    server_version: Annotated[
        str | None,
        Option(
            metavar="X.Y",
            help="Version of Redis, e.g. 7.2. Default: that of HPQ_REDIS_URL's server.",
        ),
    ] = None,
    passwords: Annotated[
        Path | None, Option(metavar="DIR", help="Directory with a password file for each role.")
    ] = None,
    aclfile: Annotated[bool, Option(help="Print lines for an aclfile, not for redis-cli.")] = False,
    rotate: Annotated[
        bool, Option(help="Change the password of HPQ_REDIS_URL's user; disconnect its clients.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Print the ACL users for producers, workers, viewers and autoscalers.

    --rotate ends all tokens of `hpq invite`. It prints the new URL, or writes the new password
    into the password file. With --passwords DIR, it does so for the users of the roles in DIR.

    Examples:
      hpq redis-acl --passwords DIR | redis-cli -u ADMIN-URL
      eval "$(hpq redis-acl --rotate)"
      hpq redis-acl --server-version 7.2 --passwords DIR --aclfile > users.acl
    """
    settings = load_settings()
    if rotate:
        return _rotate(settings, passwords)
    found = users(settings.prefix, _version(settings, server_version))
    if output.is_data:
        return show_data([asdict(user) for user in found], output)
    known = _passwords(passwords) if passwords else {}
    for user in found:
        print(line(user, known, aclfile=aclfile))
    print_message(_HELP.format(worker=f"{settings.prefix}-worker"))
    if not known:
        print_message(
            "these lines have no passwords, so the server rejects them; add --passwords DIR"
        )


def _rotate(settings: Settings, folder: Path | None) -> None:
    """Change passwords on the server, and in the files that hold them."""
    url = settings.redis_url
    if not url:
        line = "no server whose password can change: set HPQ_REDIS_URL to the server's URL"
        raise UserError(line, code="setting-missing")
    plain, user, file = passwords_of.split(url)
    parts = urlsplit(plain)
    files: dict[str, Path | None] = {user or parts.username or "default": file}
    if folder is not None:
        files = {f"{settings.prefix}-{role}": folder / role for role in _passwords(folder)}
    is_saved = True
    with guard(url):
        redis = connect(url, retries=1)
        for name, path in files.items():
            new = secrets.token_urlsafe(32)
            draft = _draft(path, new) if path else None  # first: a full disk loses no password
            is_saved &= change_password(redis, name, new)
            if draft and path:
                draft.replace(path)
            else:
                who = "" if name == "default" else name
                netloc = f"{who}:{new}@{parts.netloc.rpartition('@')[2]}"
                changed = with_place(parts, netloc)
                print(shell_line(["export", f"HPQ_REDIS_URL={changed}"]))
    print_message(f"password changed: {', '.join(files)}; tokens with the old one no longer work")
    if not is_saved:
        line = "the server has no aclfile and no redis.conf: restart it with the new password only"
        warn(Notice("acl-unsaved", line))


def _draft(path: Path, password: str) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=open_private) as file:
        file.write(f"{password}\n")
    return draft


def _version(settings: Settings, text: str | None) -> Version:
    if text is None:
        if not settings.redis_url:
            line = "the server's version is unknown; set HPQ_REDIS_URL, or add --server-version 7.2"
            raise UserError(line, code="setting-missing")
        text = check_server(connect(settings.redis_url, retries=1), settings.redis_url)
    parts = re.match(r"(\d+)\.(\d+)", text)
    if parts is None or (int(parts[1]), int(parts[2])) < (6, 2):
        raise UserError(f"--server-version {text}: write 6.2 or later, e.g. 7.2")
    return int(parts[1]), int(parts[2])


def _passwords(folder: Path) -> dict[str, str]:
    found = {}
    for role in ROLES:
        try:
            found[role] = passwords_of.read(folder / role)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            text = f"{folder / role}: {why}; write the password of {role} to it"
            raise UserError(text, code="file-unreadable") from None
    return found
