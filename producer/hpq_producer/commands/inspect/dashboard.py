"""`hpq dashboard`."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from hpq.access.session import Session, open_session
from hpq.errors import Forbidden, UserError, writing
from hpq.extras import library
from hpq.notice import print_message, warn
from hpq.private_files import create_secret, is_exposed
from hpq.redis.client import guard
from hpq.shell import shell_hint
from hpq_producer.actions import steer
from hpq_producer.actions.by_name import carry_out

_NO_OPTION = "read-only: started without --allow-actions"
_TOKEN = re.compile(r"[A-Za-z0-9._-]{16,}")  # for a URL and a cookie
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def dashboard(
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0: any free one.")] = 8765,
    no_token: Annotated[
        bool, Option("--no-token", help="Serve the pages without a token in the address.")
    ] = False,
    token_file: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File with the token, so that links last; created if missing."
            " Default: a new token at each start.",
        ),
    ] = None,
    allow_host: Annotated[
        str,
        Option(metavar="NAME", help="Host name by which a proxy in front serves the pages."),
    ] = "",
    allow_actions: Annotated[
        bool,
        Option("--allow-actions", help="Let the pages change sweeps as your commands may."),
    ] = False,
) -> None:
    """Serve live pages of all sweeps and workers, until Ctrl-C.

    The command prints a link. Its token opens the pages; the browser keeps it as a cookie. The
    pages change nothing without --allow-actions. If HPQ_PORT is set, that port serves the fleet's
    metrics for Prometheus, without a token.

    Examples:
      hpq dashboard
      hpq dashboard --host 0.0.0.0
      hpq dashboard --allow-actions
      hpq dashboard --token-file dashboard.token
      HPQ_PORT=9108 hpq dashboard
    """
    if allow_actions and no_token:
        raise UserError("--allow-actions needs the token; remove --no-token")
    if token_file and no_token:
        raise UserError("dashboard: use --token-file or --no-token, not both")
    if allow_host and not _HOST.fullmatch(allow_host):
        raise UserError(f"--allow-host {allow_host}: write the name alone, e.g. hpq.example.org")
    for name in ("starlette", "uvicorn", "jinja2", "plotly"):
        library(name, "hpq dashboard", "starlette uvicorn plotly jinja2")
    # Here, since the modules above may be missing.
    from hpq_views.page.clicks import Actions  # noqa: PLC0415
    from hpq_views.page.dashboard import serve  # noqa: PLC0415

    token = "" if no_token else _token(token_file)
    with open_session() as session, _listener(host, port) as listener:
        if metrics_port := session.settings.port:
            library("prometheus_client", "HPQ_PORT", "prometheus-client")
            from hpq_views.page.prometheus import serve_metrics  # noqa: PLC0415  likewise

            serve_metrics(session, host, metrics_port)
        refusal = _refusal(session) if allow_actions else Forbidden(_NO_OPTION)
        if allow_actions and refusal:
            warn(refusal.notice)
        actions = Actions(session, partial(carry_out, session), refusal)
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        name = f"[{name}]" if ":" in name else name
        query = f"?token={token}" if token else ""
        print(f"http://{name}:{listener.getsockname()[1]}/{query}", flush=True)
        who = "anyone with this link"
        if no_token:
            who = "every user of this machine" if _is_loopback(host) else "every machine in reach"
        acts = "" if refusal else f", and change sweeps as {session.settings.user}"
        print_message(f"hpq: {who} can read every sweep{acts}; Ctrl-C ends it")
        serve(session, {host, allow_host.lower()} - {""}, listener, token, actions)


def _token(file: Path | None) -> str:
    """Return the token of a file, which is created if it is missing; without a file, a new token.

    Raises:
        UserError: the file cannot be read or written, others can read it, or it has no token.
    """
    if file is None:
        return secrets.token_urlsafe(24)
    with writing(file):
        create_secret(file)
    try:
        with file.open("rb") as source:
            exposed, text = is_exposed(source.fileno()), source.read().decode("ascii", "replace")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}", code="file-unreadable") from None
    if exposed:
        remedy = f"run `chmod 600 {shell_hint([str(file)])}`"
        text = f"{file}: other users can read this file, and a token is a secret; {remedy}"
        raise UserError(text, code="token-exposed")
    if not _TOKEN.fullmatch(text.strip()):
        text = f"{file}: no token; write 16 or more of A-Z a-z 0-9 . _ -, or remove the file"
        raise UserError(text)
    return text.strip()


def _refusal(session: Session) -> Forbidden | None:
    """Return why this user may not write; None if Redis allows it."""
    try:
        with guard(session.url):
            steer.refuse_readers(session)
    except Forbidden as error:
        return Forbidden(f"read-only: {error}", code=error.code)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listener(host: str, port: int) -> socket.socket:
    """Listen on an address.

    Raises:
        UserError: this machine has no such address, or the port is taken.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]  # socket adds the address
        text = f"cannot listen on {host}:{port}: {why}; choose another --host or --port"
        raise UserError(text, code="port-unusable") from None
