"""`hpq redis-acl`."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from hpq.access import invitation
from hpq.access.session import load_settings
from hpq.code.signing import fingerprint, key_of
from hpq.errors import UserError
from hpq.notice import Notice, print_message, warn
from hpq.private_files import private_file
from hpq.redis import credentials as passwords_of
from hpq.redis.acl import ROLES, Version, line, personal_role, users
from hpq.redis.client import check_server, connect, guard
from hpq.redis.credentials import with_place
from hpq.redis.server import change_password
from hpq.settings import Settings
from hpq.shell import shell_line
from hpq_producer.commands.common_flags import Output, checked_name
from hpq_views.text.output import Format, show_data

_HELP = """load it:   hpq redis-acl --passwords DIR | redis-cli -u ADMIN-URL
keep it:   ACL SAVE if the server has an aclfile, else CONFIG REWRITE; otherwise a restart loses it
use it:    HPQ_REDIS_URL=redis://{worker}@HOST HPQ_REDIS_PASSWORD_FILE=DIR/worker hpq worker
the user `default` is unchanged; with another administrator: ACL SETUSER default off"""


_REMOVE = "remove {user}: ACL DELUSER {user}, and delete its line of the aclfile"
_KEY_CHANGED = """code key changed: {old} to {new}; invite each machine again, restart its workers
workers that started with key {old} run the sweeps that it signed; for other workers, enqueue the
sweep's file again with --new --reuse"""


def redis_acl(
    server_version: Annotated[
        str | None,
        Option(
            metavar="X.Y",
            help="Version of Redis, e.g. 7.2. Default: that of HPQ_REDIS_URL's server.",
        ),
    ] = None,
    passwords: Annotated[
        Path | None,
        Option(metavar="DIR", help="Directory with a password file for each role: DIR/worker."),
    ] = None,
    user: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="One more user, for a person: a producer's rights, password in DIR/user-NAME."
            " Repeatable.",
        ),
    ] = None,
    aclfile: Annotated[bool, Option(help="Print lines for an aclfile, not for redis-cli.")] = False,
    rotate: Annotated[
        bool,
        Option(help="Change the password of HPQ_REDIS_URL's user, and disconnect its clients."),
    ] = False,
    new_code_key: Annotated[
        bool,
        Option("--new-code-key", help="With --rotate: replace the code key, too."),
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Print the ACL users for producers, workers, viewers and autoscalers.

    --user ana prints a user that you can remove alone: delete its line of the aclfile and run ACL
    LOAD, or run ACL DELUSER.

    --rotate ends all tokens of `hpq invite`: it changes the password, disconnects the user's
    clients, and writes the password into its file, or prints it if HPQ_REDIS_URL holds it. With
    --passwords DIR, it changes the passwords in DIR. Sweeps that run go on: the code
    key stays. Add --new-code-key if a former holder must not sign code any more.

    Examples:
      hpq redis-acl --passwords DIR | redis-cli -u ADMIN-URL
      hpq redis-acl --passwords DIR --user ana --user ben | redis-cli -u ADMIN-URL
      eval "$(hpq redis-acl --rotate)"
      hpq redis-acl --server-version 7.2 --passwords DIR --aclfile >> users.acl
    """
    settings = load_settings()
    if new_code_key and not rotate:
        raise UserError("--new-code-key: add --rotate")
    people = [checked_name("--user", name) for name in user or ()]
    if rotate:
        if people and passwords is None:
            raise UserError("--user: with --rotate, add --passwords DIR")
        return _rotate(settings, passwords, people, new_code_key=new_code_key)
    found = users(settings.prefix, version_of(settings, server_version), people)
    if output.is_data:
        return show_data([asdict(one) for one in found], output)
    known = _passwords(passwords, people) if passwords else {}
    for one in found:
        print(line(one, known, aclfile=aclfile))
    print_message(_HELP.format(worker=f"{settings.prefix}-worker"))
    for name in people:
        print_message(_REMOVE.format(user=f"{settings.prefix}-{personal_role(name)}"))
    if not known:
        print_message(
            "these lines have no passwords, so the server rejects them; add --passwords DIR"
        )


def _rotate(
    settings: Settings, folder: Path | None, people: Sequence[str], *, new_code_key: bool
) -> None:
    """Change passwords on the server and in the files that hold them, and the code key if asked."""
    url = settings.redis_url
    if not url:
        line = "no server whose password can change: set HPQ_REDIS_URL to the server's URL"
        raise UserError(line, code="setting-missing")
    plain, user, file = passwords_of.split(url)
    parts = passwords_of.parse(plain)
    files: dict[str, Path | None] = {user or parts.username or "default": file}
    if folder is not None:
        files = {f"{settings.prefix}-{role}": folder / role for role in _passwords(folder, people)}
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
    if new_code_key:
        _change_key(settings)
    if not is_saved:
        line = "the server has no aclfile and no redis.conf: restart it with the new password only"
        warn(Notice("acl-unsaved", line))


def _change_key(settings: Settings) -> None:
    """Replace the code key where it is kept: under HPQ_HOME, by `hpq join`, or in a variable."""
    old, new = key_of(settings, make=False), secrets.token_hex(32)
    if not old:
        return
    joined = invitation.folder_of(settings.home)
    is_joined = invitation.joined(joined).get("HPQ_CODE_KEY") == settings.code_key
    if settings.code_key and not is_joined:
        print(shell_line(["export", f"HPQ_CODE_KEY={new}"]))
    else:
        path = (joined if settings.code_key else settings.home) / invitation.CODE_KEY
        _draft(path, new).replace(path)
    fingerprints = {"new": fingerprint(new.encode()), "old": fingerprint(old)}
    print_message(_KEY_CHANGED.format(**fingerprints))


def _draft(path: Path, password: str) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=private_file) as file:
        file.write(f"{password}\n")
    return draft


def version_of(settings: Settings, text: str | None = None) -> Version:
    """Return the version of Redis in a text, or of the server.

    Raises:
        UserError: it is below 6.2, or no server is known.
    """
    if text is None:
        if not settings.redis_url:
            line = "the server's version is unknown; set HPQ_REDIS_URL, or add --server-version 7.2"
            raise UserError(line, code="setting-missing")
        text = check_server(connect(settings.redis_url, retries=1), settings.redis_url)
    parts = re.match(r"(\d+)\.(\d+)", text)
    if parts is None or (int(parts[1]), int(parts[2])) < (6, 2):
        raise UserError(f"--server-version {text}: write 6.2 or later, e.g. 7.2")
    return int(parts[1]), int(parts[2])


def _passwords(folder: Path, people: Sequence[str]) -> dict[str, str]:
    found = {}
    for role in (*ROLES, *map(personal_role, people)):
        try:
            found[role] = passwords_of.read(folder / role)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            text = f"{folder / role}: {why}; write the password of {role} to it"
            raise UserError(text, code="file-unreadable") from None
    return found
