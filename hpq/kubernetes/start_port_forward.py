"""Start the process behind `hpq connect`, and check that Redis answers through it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpq.access import connection_record
from hpq.access.connection_record import ConnectionRecord
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach, UserError
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.redis_access import recreate_secrets, secret_of
from hpq.redis import tls
from hpq.redis.client import FIRST_S, check_server, connect
from hpq.redis.credentials import with_file
from hpq.settings import Settings

_KINDS = {int(kind.exit_code): kind for kind in (UserError, NotFound, OutOfReach)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """The target: `context` None is the kubeconfig's current one, port 0 any free port."""

    context: str | None
    namespace: str
    role: str = "producer"
    port: int = 0


def start_port_forward(settings: Settings, request: ForwardRequest) -> ConnectionRecord:
    """Start a forwarder in the background, through which Redis answers.

    Raises:
        HpqError: the cluster cannot be reached or refuses, or its Redis does.
    """
    here = {"home": str(settings.home), "prefix": settings.prefix}
    command_line = [
        sys.executable,
        "-P",
        "-m",
        "hpq.kubernetes.port_forward",
        json.dumps(here | asdict(request)),
    ]
    done = subprocess.run(
        command_line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    answer: dict[str, Any] = {"error": "the connection ended before it was ready; try again"}
    if done.stdout:
        answer = json.loads(done.stdout)
    if "error" in answer:
        kind: type[HpqError] = _KINDS.get(answer.get("exit_code", 0), OutOfReach)
        raise kind(answer["error"], code=answer.get("code", "connection-lost"))
    connection = connection_record.read_record(settings.home)
    assert connection is not None
    try:
        _check_redis(connection, settings)
    except BaseException:
        connection_record.stop_background(settings.home)
        raise
    return connection


def _check_redis(connection: ConnectionRecord, settings: Settings) -> None:
    url = with_file(connection.url, Path(connection.password_file))
    try:
        check_server(connect(url, patience_s=FIRST_S), url)
    except Forbidden:
        secret = secret_of(connection.role)
        recreate = recreate_secrets(KubernetesApi(connection.context, connection.namespace))
        raise Forbidden(
            f"{connection.where}: Redis rejects the password of Secret {secret}: the Secret is"
            f" newer than the running server; restart it: {connection.kubectl} rollout restart"
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
        secret = f"Secret {secret_of(connection.role)}"
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
