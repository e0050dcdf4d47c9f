"""Start the process behind `hpq connect`, and check that Redis answers through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from hpq.connection import tls
from hpq.connection.client import FIRST_S, check_server, connect
from hpq.connection.credentials import with_file
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach, UserError
from hpq.settings import Settings
from hpq_producer import connection_record
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.redis_access import recreate_secrets
from hpq_producer.connection_record import ConnectionRecord

_KINDS = {int(kind.exit_code): kind for kind in (UserError, NotFound, OutOfReach)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """The target: `context` None is the kubeconfig's current one, port 0 any free port."""

    context: str | None
    namespace: str
    role: str = "producer"
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningForward:
    """A running forwarder: in the background, or as long as a process holds `alive` open."""

    connection: ConnectionRecord
    alive: int


def start_forwarder(settings: Settings, request: ForwardRequest, name: str = "") -> RunningForward:
    """Start a forwarder through which Redis answers.

    Raises:
        HpqError: the cluster cannot be reached or refuses, or its Redis does.
    """
    connection_record.remove_stale_records(settings.home)
    here = {"home": str(settings.home), "prefix": settings.prefix, "name": name}
    command_line = [
        sys.executable,
        "-P",
        "-m",
        "hpq_producer.cluster.connect.forwarder",
        json.dumps(here | asdict(request)),
    ]
    process = subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:  # it forks; the child ends when `alive` is closed
        assert process.stdin is not None and process.stdout is not None
        alive = os.dup(process.stdin.fileno())
        answer = json.loads(process.stdout.readline() or "{}")
    try:
        if "name" not in answer:
            kind: type[HpqError] = _KINDS.get(answer.get("exit_code", 0), OutOfReach)
            text = answer.get("error", "the connection ended before it was ready; try again")
            raise kind(text, code=answer.get("code", "connection-lost"))
        connection = connection_record.read_record(settings.home, answer["name"])
        assert connection is not None
        _check_redis(connection, settings)
    except BaseException:
        os.close(alive)
        if name and "name" in answer:
            connection_record.stop_background(settings.home)
        raise
    return RunningForward(connection=connection, alive=alive)


def _check_redis(connection: ConnectionRecord, settings: Settings) -> None:
    url = with_file(connection.url, Path(connection.password_file))
    try:
        check_server(connect(url, patience_s=FIRST_S), url)
    except Forbidden:
        secret = f"hpq-redis-{connection.role}"
        kubectl = connection_record.kubectl_command(connection.context, connection.namespace)
        recreate = recreate_secrets(KubernetesApi(connection.context, connection.namespace))
        raise Forbidden(
            f"{connection.where}: Redis rejects the password of Secret {secret}: the Secret is"
            f" newer than the running server; restart it: {kubectl} rollout restart"
            f" statefulset/hpq-redis; if only {secret} was recreated, {recreate}",
            code="redis-password-refused",
        ) from None
    except OutOfReach as error:
        why = connection_record.current_trouble(settings.home, connection) or _explain_certificate(
            connection, str(error)
        )
        raise OutOfReach(f"{connection.where}: {why or error}", code="connection-lost") from None


def _explain_certificate(connection: ConnectionRecord, message: str) -> str:
    """Return the remedy for a rejected certificate of Redis."""
    if tls.UNTRUSTED in message:
        secret = f"Secret hpq-redis-{connection.role}"
        why = f"{secret} has the CA of another" if connection.ca_file else f"{secret} has no ca.crt"
        remedy = recreate_secrets(KubernetesApi(connection.context, connection.namespace))
        return (
            f"Redis's certificate is not trusted: {why}; if the certificate is your own, add its"
            f" CA to the Secret as ca.crt; if hpq created it, {remedy}"
        )
    if tls.ANOTHER_HOST in message:
        return (
            f"Redis's certificate is not valid for {connection_record.HOST}, the address of a"
            " connection; add that IP address to the certificate"
        )
    return ""
