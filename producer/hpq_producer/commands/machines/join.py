"""`hpq invite`, `hpq join` and `hpq leave`: let another machine work for this server."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq import __version__
from hpq.access import connection_record, invitation
from hpq.access.connection_record import ConnectionRecord
from hpq.access.invitation import CODE_KEY, Invitation
from hpq.access.session import load_settings
from hpq.code.command import interpreter, printed_by
from hpq.code.signing import fingerprint, key_of
from hpq.errors import Forbidden, OutOfReach, UserError
from hpq.notice import Notice, print_message, warn
from hpq.private_files import is_exposed, private_file
from hpq.redis.client import FIRST_S, check_server, connect
from hpq.redis.credentials import is_local, redact
from hpq.settings import Settings, read, variable
from hpq.shell import shell_hint
from hpq_producer.commands.machines.worker import start

_HOLDER = "a holder of this token can run code on your workers; `hpq redis-acl --rotate` revokes it"


def invite(
    file: Annotated[
        Path | None,
        Option(metavar="PATH", help="Write the token to a new file that only you can read."),
    ] = None,
) -> None:
    """Print a token that lets another machine join this server (`hpq join`).

    The token holds the server's URL and password, the prefix, the queue and the code key.

    Examples:
      hpq invite --file token
      hpq invite | ssh MACHINE-2 hpq join --no-worker
    """
    settings = load_settings()
    _refuse_unshared(settings)
    if file is None:
        _refuse_exposed(sys.stdout.fileno(), "stdout", "use --file PATH, which only you can read")
    check_server(connect(settings.redis_url, patience_s=FIRST_S), settings.redis_url)
    key, url = key_of(settings, make=True), settings.redis_url
    assert key is not None
    shared, versions = _shared(settings), _versions(settings)
    _deliver(Invitation.of(url, key.decode(), shared, versions).encode(), file)
    if is_local(settings.redis_url):
        warn(f"{redact(settings.redis_url)} is reachable only on this machine: use its host name")
    if file is not None or sys.stdout.isatty():
        warn(_HOLDER)


def _deliver(token: str, file: Path | None) -> None:
    """Print a token, or write it to a new file."""
    if file is None:
        print(token)
    else:
        try:
            with open(file, "x", opener=private_file) as out:
                print(token, file=out)
        except OSError as error:
            text = f"{file}: {error.strerror}; name a new file in a directory that you can write"
            raise UserError(text, code="file-unwritable") from None
        name = shell_hint([file.name])
        print_message(f"{file} written; copy it to the other machine, and type: hpq join {name}")


def join(
    file: Annotated[
        Path | None, Argument(metavar="FILE", help="File with the token. Default: stdin.")
    ] = None,
    no_worker: Annotated[
        bool, Option("--no-worker", help="Only record the server, for the other commands.")
    ] = False,
) -> None:
    """Join the server of a token that `hpq invite` printed, and start a worker.

    All commands of this machine then use that server, until `hpq leave`.

    Examples:
      hpq join token
      hpq join --no-worker < token
    """
    settings = read(os.environ)
    try:
        found = Invitation.decode(_token(file))
    except UserError as error:
        if error.code != "invitation-invalid":
            raise
        raise UserError(f"{file or 'stdin'}: {error}", code=error.code) from None
    home = settings.home.absolute()
    if settings.code_key and settings.code_key != found.files[CODE_KEY]:
        text = "HPQ_CODE_KEY would override the token; run `unset HPQ_CODE_KEY`"
        raise UserError(text, code="connected-already")
    connection_record.refuse_other_server(settings, found.url)
    draft = found.write(home)
    try:
        variables = invitation.joined(draft)
        joined = read({**os.environ, **variables})
        _check_answers(joined)
        invitation.keep(draft, home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    key = fingerprint(found.files[CODE_KEY].encode())
    print_message(
        f"joined {redact(found.url)}, prefix {joined.prefix}, key {key}; `hpq leave` disconnects"
    )
    _warn_of_differences(found.versions, _versions(settings))
    is_reachable = "://" in joined.store or Path(joined.store).is_dir()
    if "HPQ_STORE" in found.settings and not is_reachable:
        text = f"HPQ_STORE={joined.store} is not on this machine: a trial that moves between"
        warn(Notice("store-differs", f"{text} machines restarts; mount it at the same path"))
    if not no_worker:
        start()


def leave() -> None:
    """Stop the workers of this machine, and forget the server that it has joined.

    Example: hpq leave
    """
    settings = read(os.environ)
    folder = invitation.folder_of(settings.home)
    if not folder.exists():
        return print_message("this machine has joined no server")
    stopped = connection_record.stop_workers(settings.home, settings.grace_s)
    shutil.rmtree(folder)
    print_message(f"stopped {stopped} `hpq worker` and left the server")


def _refuse_unshared(settings: Settings) -> None:
    if not settings.redis_url:
        raise UserError(
            "no server to invite to: HPQ_REDIS_URL is not set, and no other machine reaches the"
            " private server. Start `redis-server --requirepass PASSWORD` and"
            " `export HPQ_REDIS_URL=redis://:PASSWORD@HOST:6379/0`; on Kubernetes,"
            f" {connection_record.scale_command()} starts workers",
            code="setting-missing",
        )
    if found := _connection(settings):
        scale = connection_record.scale_command(found.kubectl)
        text = f"the workers of {found.where} are pods: {scale} starts N of them"
        raise UserError(text, code="workers-are-pods")


def _connection(settings: Settings) -> ConnectionRecord | None:
    return connection_record.connection_of_url(settings.home, settings.redis_url)


def _shared(settings: Settings) -> dict[str, str]:
    """Return the settings that must be equal on all machines of a server, by variable."""
    lease = str(settings.lease_s) if settings.lease_s != Settings().lease_s else ""
    store = settings.store if "://" in settings.store else str(Path(settings.store).absolute())
    named = {"prefix": settings.prefix, "queue": settings.queue, "lease_s": lease}
    named["store"] = store if settings.store else ""
    return {variable(name): value for name, value in named.items() if value}


def _token(file: Path | None) -> str:
    if str(file).startswith(invitation.TOKEN_PREFIX):
        text = "other users can read a token on the command line (ps); name a file, or use stdin"
        raise UserError(f"{text}, and revoke it: hpq redis-acl --rotate", code="token-exposed")
    if file is None and sys.stdin.isatty():
        with suppress(EOFError):  # Ctrl-D: an empty token
            return getpass.getpass("Token: ")
        return ""
    try:
        with open(0 if file is None else file, "rb", closefd=file is not None) as source:
            name = shell_hint([str(file or "FILE")])
            _refuse_exposed(source.fileno(), str(file or "stdin"), f"run `chmod 600 {name}`")
            return source.read().decode("ascii", "replace")
    except OSError as error:
        remedy = "name a file that `hpq invite FILE` wrote, or type `hpq join` and paste the token"
        text = f"{file or 'stdin'}: {error.strerror}; {remedy}"
        raise UserError(text, code="file-unreadable") from None


def _refuse_exposed(fd: int, name: str, remedy: str) -> None:
    """Refuse a regular file that other users can read, as ssh refuses such a key."""
    if is_exposed(fd):
        text = f"{name}: other users can read this file, and a token is a secret; {remedy}"
        raise UserError(text, code="token-exposed")


def _check_answers(joined: Settings) -> None:
    url = joined.redis_url
    try:
        check_server(connect(url, patience_s=FIRST_S), url)
    except Forbidden:
        text = f"{redact(url)}: the server rejects the token's password, which was changed since"
        remedy = "run `hpq invite` again where the server is known"
        raise Forbidden(f"{text}; {remedy}", code="redis-password-refused") from None
    except OutOfReach as error:
        if error.code != "redis-unreachable":
            raise
        what = str(error).rpartition("; ")[0]
        text = f"{what}; is the server running, and do firewalls let this machine reach it?"
        raise OutOfReach(text, code="redis-unreachable") from None


_PROBE = """
import platform
from importlib import metadata
print(platform.python_version())
try:
    print(metadata.version("torch"))
except metadata.PackageNotFoundError:
    print()
"""


def _versions(settings: Settings) -> dict[str, str]:
    """Return the versions of hpq, and of the Python of programs and its torch ("": none)."""
    python, printed = interpreter(os.environ, settings.python), ""
    with suppress(OSError, subprocess.SubprocessError):
        printed = printed_by(python, _PROBE, os.environ)
    found = dict(zip(("python", "torch"), printed.splitlines(), strict=False))
    return {"hpq": __version__, **found}


def _warn_of_differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    remedies = {
        "hpq": "install the same version on both",
        "python": "start `hpq worker` in an environment with that Python, or set HPQ_PYTHON",
        "torch": "install the same version on both",
    }
    for name, remedy in remedies.items():
        there, here = (_short(name, one.get(name, "")) for one in (theirs, ours))
        if there and name in ours and there != here:
            text = f"{name} is {here or 'not installed'} here, and {there} on the other machine"
            warn(Notice("versions-differ", f"{text}; {remedy}"))


def _short(name: str, version: str) -> str:
    """Return the part of a version that matters: 3.11 of Python, 2.4.1 of torch 2.4.1+cu121."""
    return ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]
