"""Starts the process behind `hpq connect`, and sees that Redis answers through it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hpq.connection import tls
from hpq.connection.client import FIRST_S, check_server, connect
from hpq.connection.credentials import with_file
from hpq.errors import ExitCode, Forbidden, HpqError, NotFound, OutOfReach, UserError
from hpq.settings import Settings
from hpq_producer import connection_record
from hpq_producer.cluster.api import Api
from hpq_producer.cluster.redis_access import anew
from hpq_producer.connection_record import Tunnel

_KINDS = {int(kind.exit_code): kind for kind in (UserError, NotFound, OutOfReach)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where to; a `context` of None is the kubeconfig's current one, port 0 any free one."""

    context: str | None
    namespace: str
    role: str = "producer"
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A tunnel that serves; unless in the background, as long as anybody has `alive` open."""

    tunnel: Tunnel
    version: str
    alive: int


def start(settings: Settings, wanted: Wanted, name: str = "") -> Started:
    """A tunnel through which Redis answers.

    Raises:
        HpqError: the cluster cannot be reached or refuses, or its Redis does.
    """
    connection_record.sweep(settings.home)
    told = {
        "home": str(settings.home),
        "prefix": settings.prefix,
        "name": name,
        "context": wanted.context,
        "namespace": wanted.namespace,
        "role": wanted.role,
        "port": wanted.port,
    }
    words = [sys.executable, "-P", "-m", "hpq_producer.cluster.connect.forwarder", json.dumps(told)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        answer = json.loads(process.stdout.readline() or "{}")
    finally:
        process.stdout.close()
        process.wait()  # it has left its place to another
    if "name" not in answer:
        kind: type[HpqError] = _KINDS.get(answer.get("exit_code", 0), OutOfReach)
        text = answer.get("error", "the connection ended before it began; try again")
        raise kind(text, code=answer.get("code", "connection-lost"))
    found = connection_record.read(settings.home, answer["name"])
    assert found is not None
    try:
        version = _answers(found, settings)
    except BaseException:
        if name:
            connection_record.stop(settings.home)
        raise
    return Started(tunnel=found, version=version, alive=os.dup(process.stdin.fileno()))


def _answers(found: Tunnel, settings: Settings) -> str:
    url = with_file(found.url, Path(found.password_file))
    try:
        return check_server(connect(url, patience_s=FIRST_S), url)
    except Forbidden:
        secret = f"hpq-redis-{found.role}"
        kubectl = connection_record.kubectl_in(found.context, found.namespace)
        raise Forbidden(
            f"{found.where}: Redis refuses the password of Secret {secret}:"
            f" it was made anew, and Redis has read Secret hpq-redis-users before; let it read it"
            f" again: {kubectl} rollout restart statefulset/hpq-redis; where {secret} alone was"
            f" made anew, {anew(Api(found.context, found.namespace))}",
            code="redis-password-refused",
        ) from None
    except OutOfReach as error:
        why = connection_record.trouble_of(settings.home, found) or _of_certificate(
            found, str(error)
        )
        raise OutOfReach(f"{found.where}: {why or error}", code="connection-lost") from None


def _of_certificate(found: Tunnel, said: str) -> str:
    """What to do where Redis's certificate is refused, since its URL is of hpq's making."""
    if tls.UNTRUSTED in said:
        secret = f"Secret hpq-redis-{found.role}"
        why = f"{secret} has the CA of another" if found.ca_file else f"{secret} has no ca.crt"
        remedy = anew(Api(found.context, found.namespace))
        return (
            f"Redis's certificate is not trusted: {why}; where you brought the certificate, put its"
            f" CA there under ca.crt; where hpq is to make it, {remedy}"
        )
    if tls.ANOTHER_HOST in said:
        return (
            f"Redis's certificate is not for {connection_record.HOST}, by which"
            " a connection reaches it; make"
            " it for that IP address, too"
        )
    return ""


def become(started: Started, command: Sequence[str], environ: dict[str, str]) -> NoReturn:
    """Go on as a command that holds the tunnel open.

    Raises:
        UserError: it cannot be started.
    """
    os.set_inheritable(started.alive, True)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # as Python found them, not as it set them
    try:
        os.execvpe(command[0], list(command), environ)
    except OSError as error:
        raise UserError(f"{command[0]}: {error.strerror}", code="program-missing") from None


def exit_code_of(found: Tunnel | None) -> ExitCode:
    """Of `hpq connect --status`."""
    return ExitCode.OUT_OF_REACH if found is None or found.trouble else ExitCode.DONE
