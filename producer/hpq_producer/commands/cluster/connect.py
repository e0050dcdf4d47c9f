"""`hpq connect`: the Redis of a cluster, as if it were here."""

from __future__ import annotations

import json as jsonlib
import os
import shlex
import sys
from typing import Annotated

import typer

from hpq.errors import UserError
from hpq.settings import Settings, read
from hpq_producer import connection_record
from hpq_producer.cluster.connect.start import (
    ForwardRequest,
    RunningForward,
    exec_command,
    start_forwarder,
    status_exit_code,
)
from hpq_producer.commands.common_flags import AsJson, Context, Namespace
from hpq_producer.terminal.console import print_message

_ROLES = ("producer", "worker", "viewer")


def connect(
    command: Annotated[
        list[str] | None, typer.Argument(help="A command, after --; without: a shell.")
    ] = None,
    context: Context = None,
    namespace: Namespace = None,
    role: Annotated[
        str | None, typer.Option(help="Whose password: producer (default) or viewer.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Here; 0: a free one.")] = 0,
    background: Annotated[
        bool, typer.Option("--background", help="Keep it for every command, until --stop.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End the one in the background.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Say how that one is, or this shell's.")
    ] = False,
    url: Annotated[
        bool, typer.Option("--url", help='In the background, and print exports: eval "$(…)".')
    ] = False,
    json: AsJson = False,
) -> None:
    """Reach a cluster's Redis: for a shell, for one command after --, or in the background."""
    settings = read(os.environ)
    if sum((background, stop, status, url, bool(command))) > 1:
        raise UserError("one of --background, --stop, --status, --url and a command at a time")
    if role is not None and role not in _ROLES:
        raise UserError(f"--role {role}: use one of {', '.join(_ROLES)}")
    if stop:
        return _stop(settings)
    if status:
        return _status(settings, json)
    request = ForwardRequest(
        context=context,
        namespace=namespace or connection_record.NAMESPACE,
        role=role or "producer",
        port=port,
    )
    if background or url:
        record = _connect_in_background(
            settings, request, role, has_choice=bool(context or namespace)
        )
        return (
            _exports(record)
            if url
            else print_message(f"connected: {record.where}; `hpq connect --stop`")
        )
    started = start_forwarder(settings, request)
    _print_connected(started)
    words = command or [os.environ.get("SHELL") or "/bin/sh"]
    exec_command(started, words, {**os.environ, **started.connection.environ()})


def _connect_in_background(
    settings: Settings, request: ForwardRequest, role: str | None, *, has_choice: bool
) -> connection_record.ConnectionRecord:
    current = connection_record.read_record(settings.home)
    if current is not None and connection_record.is_alive(settings.home):
        asked = (request.context or current.context, request.namespace)
        is_other = has_choice and asked != (current.context, current.namespace)
        is_other |= role is not None and current.role in _ROLES and role != current.role
        if is_other or request.port not in (0, current.port):
            raise UserError(
                f"connected already, to {current.where}, as {current.user}, port {current.port};"
                " first: hpq connect --stop",
                code="connected-already",
            )
        return current
    started = start_forwarder(settings, request, connection_record.BACKGROUND)
    return started.connection


def _print_connected(started: RunningForward) -> None:
    if sys.stderr.isatty():
        print_message(
            f"connected: {started.connection.where}, Redis {started.version}; exit leaves it"
        )


def _stop(settings: Settings) -> None:
    record = connection_record.stop_background(settings.home)
    print_message(
        f"disconnected: {record.where}" if record else "no connection is in the background"
    )


def _status(settings: Settings, json: bool) -> None:
    record = connection_record.shell_connection(os.environ, settings.home)
    is_shells = record is not None
    try:
        record = record or connection_record.background_connection(settings.home)
    finally:
        connection_record.remove_stale_records(settings.home)
    if json:
        print(jsonlib.dumps(_record(record)))
    elif record is None:
        print_message("no connection is in the background; `hpq connect --background` makes one")
    else:
        shell = "this shell: " if is_shells else ""
        print_message(f"{shell}{record.where}: {record.url}, process {record.pid}")
        if record.trouble:
            print_message(f"out of reach just now: {record.trouble}")
    raise typer.Exit(int(status_exit_code(record)))


def _record(record: connection_record.ConnectionRecord | None) -> dict[str, object] | None:
    if record is None:
        return None
    names = ("context", "namespace", "service", "url", "pid", "user", "prefix", "password_file")
    return {**{n: getattr(record, n) for n in names}, "trouble": record.trouble or None}


def _exports(record: connection_record.ConnectionRecord) -> None:
    variables = record.environ()
    if sys.stdout.isatty():
        variables.pop("HPQ_CODE_KEY", None)  # a secret is no thing to show
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
