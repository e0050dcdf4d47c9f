"""`hpq connect`: forward a cluster's Redis to this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from typer import Option

from hpq.access import connection_record
from hpq.error_codes import ExitCode
from hpq.errors import UserError
from hpq.kubernetes.start_port_forward import ForwardRequest, start_port_forward
from hpq.notice import print_message
from hpq.settings import Settings, read
from hpq_producer.commands.common_flags import Context, Namespace, Output
from hpq_views.text.output import Format, show_data

_ROLES = ("producer", "worker", "viewer", "admin")


def connect(
    context: Context = None,
    namespace: Namespace = None,
    role: Annotated[
        str | None,
        Option(metavar="ROLE", help="Redis user: producer, viewer or admin. Default: producer."),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Local port; 0 chooses a free one.")] = 0,
    stop: Annotated[bool, Option("--stop", help="End the connection.")] = False,
    status: Annotated[bool, Option("--status", help="Print the state of the connection.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Connect all hpq commands to a cluster's Redis, until --stop.

    Examples:
      hpq connect
      hpq connect --status
    """
    settings = read(os.environ)
    if stop and status:
        raise UserError("use only one of --stop and --status")
    if role is not None and role not in _ROLES:
        raise UserError(f"--role {role}: use one of {', '.join(_ROLES)}")
    if stop:
        return _stop(settings)
    if status:
        return _status(settings, output)
    request = ForwardRequest(
        context=context,
        namespace=namespace or connection_record.NAMESPACE,
        role=role or "producer",
        port=port,
    )
    record = _connect(settings, request, role, has_choice=bool(context or namespace))
    print_message(f"connected: {record.where}; `hpq connect --stop` ends the connection")


def _connect(
    settings: Settings, request: ForwardRequest, role: str | None, *, has_choice: bool
) -> connection_record.ConnectionRecord:
    current = connection_record.read_record(settings.home)
    if current is None or not connection_record.is_alive(settings.home):
        return start_port_forward(settings, request)
    asked = (request.context or current.context, request.namespace)
    is_other = has_choice and asked != (current.context, current.namespace)
    is_other |= role is not None and current.role in _ROLES and role != current.role
    if is_other or request.port not in (0, current.port):
        raise UserError(
            f"already connected to {current.where} as {current.user}, port {current.port};"
            " first run `hpq connect --stop`",
            code="connected-already",
        )
    return current


def _stop(settings: Settings) -> None:
    record = connection_record.stop_background(settings.home)
    print_message(f"disconnected: {record.where}" if record else "not connected")


def _status(settings: Settings, output: Format) -> None:
    record = connection_record.background_connection(settings.home)
    if output.is_data:
        show_data(_record(record), output)
    elif record is None:
        print_message("not connected; connect: hpq connect")
    else:
        print_message(f"{record.where}: {record.url}, process {record.pid}")
        if record.trouble:
            print_message(f"Redis does not answer now: {record.trouble}")
    is_open = record is not None and not record.trouble
    raise typer.Exit(int(ExitCode.DONE if is_open else ExitCode.OUT_OF_REACH))


def _record(record: connection_record.ConnectionRecord | None) -> dict[str, object] | None:
    if record is None:
        return None
    names = ("context", "namespace", "service", "url", "pid", "user", "prefix", "password_file")
    return {**{n: getattr(record, n) for n in names}, "trouble": record.trouble or None}
