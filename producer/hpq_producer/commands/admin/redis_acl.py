"""`hpq redis-acl`."""

from __future__ import annotations

import json as jsonlib
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hpq.connection import credentials as passwords_of
from hpq.connection.client import check_server, connect
from hpq.errors import UserError
from hpq.settings import Settings, read
from hpq_producer.commands.common_flags import AsJson
from hpq_producer.manifests.acl import ROLES, Version, line, users
from hpq_producer.terminal.console import print_message

_HELP = """load it:   hpq redis-acl --passwords DIR | redis-cli -u ADMIN-URL
keep it:   ACL SAVE where the server has an aclfile, else CONFIG REWRITE; a restart forgets the rest
use it:    HPQ_REDIS_URL=redis://{worker}@HOST HPQ_REDIS_PASSWORD_FILE=DIR/worker hpq worker
the user `default` stays as it is; once you have an administrator: ACL SETUSER default off"""


def redis_acl(
    server_version: Annotated[
        str | None, typer.Option(help="Such as 6.2; without: that of HPQ_REDIS_URL's server.")
    ] = None,
    passwords: Annotated[
        Path | None, typer.Option(help="A directory with a file for each role's password.")
    ] = None,
    aclfile: Annotated[bool, typer.Option(help="Lines for an aclfile, not for redis-cli.")] = False,
    json: AsJson = False,
) -> None:
    """Print an ACL user each for producer, worker, viewer and autoscaler."""
    settings = read(os.environ)
    found = users(settings.prefix, _version(settings, server_version))
    if json:
        print(jsonlib.dumps([asdict(user) for user in found]))
        return
    known = _passwords(passwords) if passwords else {}
    for user in found:
        print(line(user, known, aclfile=aclfile))
    print_message(_HELP.format(worker=f"{settings.prefix}-worker"))
    if not known:
        print_message("without --passwords the server refuses these lines")


def _version(settings: Settings, text: str | None) -> Version:
    if text is None:
        if not settings.redis_url:
            line = "set HPQ_REDIS_URL, or say which server: --server-version 7.2"
            raise UserError(line, code="setting-missing")
        text = check_server(connect(settings.redis_url, retries=1), settings.redis_url)
    parts = re.match(r"(\d+)\.(\d+)", text)
    if parts is None or (int(parts[1]), int(parts[2])) < (6, 2):
        raise UserError(f"--server-version {text}: write 6.2 or a later one, such as 7.2")
    return int(parts[1]), int(parts[2])


def _passwords(folder: Path) -> dict[str, str]:
    found = {}
    for role in ROLES:
        try:
            found[role] = passwords_of.read(folder / role)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            text = f"{folder / role}: {why}; it holds the password of {role}"
            raise UserError(text, code="file-unreadable") from None
    return found
