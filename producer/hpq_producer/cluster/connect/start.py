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
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.redis_access import recreate_secrets
from hpq_producer.connection_record import ConnectionRecord

_KINDS = {int(kind.exit_code): kind for kind in (UserError, NotFound, OutOfReach)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """Where to; a `context` of None is the kubeconfig's current one, port 0 any free one."""

    context: str | None
    namespace: str
    role: str = "producer"
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningForward:
    """A forwarder that serves: in the background, or as long as a process has `alive` open."""

    connection: ConnectionRecord
    version: str
    alive: int


def start_forwarder(settings: Settings, request: ForwardRequest, name: str = "") -> RunningForward:
    """Start a forwarder through which Redis answers.

    Raises:
        HpqError: the cluster cannot be reached or refuses, or its Redis does.
    """
    connection_record.remove_stale_records(settings.home)
    request_record = {
        "home": str(settings.home),
        "prefix": settings.prefix,
        "name": name,
        "context": request.context,
        "namespace": request.namespace,
        "role": request.role,
        "port": request.port,
    }
    command_line = [
        sys.executable,
        "-P",
        "-m",
        "hpq_producer.cluster.connect.forwarder",
        json.dumps(request_record),
    ]
    process = subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:  # it leaves its place to another process, which ends when `alive` is closed
        assert process.stdin is not None and process.stdout is not None
        alive = os.dup(process.stdin.fileno())
        answer = json.loads(process.stdout.readline() or "{}")
    try:
        if "name" not in answer:
            kind: type[HpqError] = _KINDS.get(answer.get("exit_code", 0), OutOfReach)
            text = answer.get("error", "the connection ended before it began; try again")
            raise kind(text, code=answer.get("code", "connection-lost"))
        connection = connection_record.read_record(settings.home, answer["name"])
        assert connection is not None
        version = _check_redis(connection, settings)
    except BaseException:
        os.close(alive)
        if name and "name" in answer:
            connection_record.stop_background(settings.home)
        raise
    return RunningForward(connection=connection, version=version, alive=alive)


def _check_redis(connection: ConnectionRecord, settings: Settings) -> str:
    url = with_file(connection.url, Path(connection.password_file))
    try:
        return check_server(connect(url, patience_s=FIRST_S), url)
    except Forbidden:
        secret = f"hpq-redis-{connection.role}"
        kubectl = connection_record.kubectl_command(connection.context, connection.namespace)
        recreate = recreate_secrets(KubernetesApi(connection.context, connection.namespace))
        raise Forbidden(
            f"{connection.where}: Redis refuses the password of Secret {secret}:"
            f" it was made anew, and Redis has read Secret hpq-redis-users before; let it read it"
            f" again: {kubectl} rollout restart statefulset/hpq-redis; where {secret} alone was"
            f" made anew, {recreate}",
            code="redis-password-refused",
        ) from None
    except OutOfReach as error:
        why = connection_record.current_trouble(settings.home, connection) or _explain_certificate(
            connection, str(error)
        )
        raise OutOfReach(f"{connection.where}: {why or error}", code="connection-lost") from None


def _explain_certificate(connection: ConnectionRecord, message: str) -> str:
    """What to do where Redis's certificate is refused, since its URL is of hpq's making."""
    if tls.UNTRUSTED in message:
        secret = f"Secret hpq-redis-{connection.role}"
        why = f"{secret} has the CA of another" if connection.ca_file else f"{secret} has no ca.crt"
        remedy = recreate_secrets(KubernetesApi(connection.context, connection.namespace))
        return (
            f"Redis's certificate is not trusted: {why}; where you brought the certificate, put its"
            f" CA there under ca.crt; where hpq is to make it, {remedy}"
        )
    if tls.ANOTHER_HOST in message:
        return (
            f"Redis's certificate is not for {connection_record.HOST}, by which"
            " a connection reaches it; make"
            " it for that IP address, too"
        )
    return ""


def exec_command(
    started: RunningForward, command: Sequence[str], environ: dict[str, str]
) -> NoReturn:
    """Replace this process by a command, which keeps the connection open.

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


def status_exit_code(connection: ConnectionRecord | None) -> ExitCode:
    """Of `hpq connect --status`."""
    return ExitCode.OUT_OF_REACH if connection is None or connection.trouble else ExitCode.DONE
