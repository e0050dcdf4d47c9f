"""`hpq redis-acl`."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from hpq.connection import credentials as passwords_of
from hpq.connection.client import check_server, connect
from hpq.errors import UserError
from hpq.settings import Settings, read
from hpq_producer.commands.common_flags import Output
from hpq_producer.manifests.acl import ROLES, Version, line, users
from hpq_producer.terminal.console import print_message
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
    output: Output = Format.TABLE,
) -> None:
    """Print the ACL users for producers, workers, viewers and autoscalers.

    Examples:
      hpq redis-acl --passwords DIR | redis-cli -u ADMIN-URL
      hpq redis-acl --server-version 7.2 --passwords DIR --aclfile > users.acl
    """
    settings = read(os.environ)
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
