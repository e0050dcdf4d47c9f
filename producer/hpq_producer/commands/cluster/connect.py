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
from hpq_producer.cluster.connect.start import Started, Wanted, become, exit_code_of, start
from hpq_producer.commands.options import AsJson, Context, Namespace
from hpq_producer.terminal.console import talk

app = typer.Typer()
_ROLES = ("producer", "worker", "viewer")


@app.command("connect")
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
    wanted = Wanted(
        context=context,
        namespace=namespace or connection_record.NAMESPACE,
        role=role or "producer",
        port=port,
    )
    if background or url:
        found = _background(settings, wanted, role, has_choice=bool(context or namespace))
        return _exports(found) if url else talk(f"connected: {found.where}; `hpq connect --stop`")
    started = start(settings, wanted)
    _talk(started)
    words = command or [os.environ.get("SHELL") or "/bin/sh"]
    become(started, words, {**os.environ, **started.tunnel.environ()})


def _background(
    settings: Settings, wanted: Wanted, role: str | None, *, has_choice: bool
) -> connection_record.Tunnel:
    there = connection_record.read(settings.home)
    if there is not None and connection_record.is_alive(settings.home):
        asked = (wanted.context or there.context, wanted.namespace)
        is_other = has_choice and asked != (there.context, there.namespace)
        is_other |= role is not None and there.role in _ROLES and role != there.role
        if is_other or wanted.port not in (0, there.port):
            raise UserError(
                f"connected already, to {there.where}, as {there.user}, port {there.port};"
                " first: hpq connect --stop",
                code="connected-already",
            )
        return there
    started = start(settings, wanted, connection_record.BACKGROUND)
    return started.tunnel


def _talk(started: Started) -> None:
    if sys.stderr.isatty():
        talk(f"connected: {started.tunnel.where}, Redis {started.version}; exit leaves it")


def _stop(settings: Settings) -> None:
    found = connection_record.stop(settings.home)
    talk(f"disconnected: {found.where}" if found else "no connection is in the background")


def _status(settings: Settings, json: bool) -> None:
    found = connection_record.of_shell(os.environ, settings.home)
    is_shells = found is not None
    try:
        found = found or connection_record.background(settings.home)
    finally:
        connection_record.sweep(settings.home)
    if json:
        print(jsonlib.dumps(_record(found)))
    elif found is None:
        talk("no connection is in the background; `hpq connect --background` makes one")
    else:
        shell = "this shell: " if is_shells else ""
        talk(f"{shell}{found.where}: {found.url}, process {found.pid}")
        if found.trouble:
            talk(f"out of reach just now: {found.trouble}")
    raise typer.Exit(int(exit_code_of(found)))


def _record(found: connection_record.Tunnel | None) -> dict[str, object] | None:
    if found is None:
        return None
    names = ("context", "namespace", "service", "url", "pid", "user", "prefix", "password_file")
    return {**{n: getattr(found, n) for n in names}, "trouble": found.trouble or None}


def _exports(found: connection_record.Tunnel) -> None:
    told = found.environ()
    if sys.stdout.isatty():
        told.pop("HPQ_CODE_KEY", None)  # a secret is no thing to show
    for name, value in told.items():
        print(f"export {name}={shlex.quote(value)}")
