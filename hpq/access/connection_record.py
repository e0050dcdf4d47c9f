"""The record of the connection that `hpq connect` keeps under HPQ_HOME for other commands.

Its process holds a lock while it lives: a record with a free lock belongs to a killed process.
Passwords are in the process's memory, where the same user's commands read them through /proc, never
on disk. The locks of this machine's workers are beside it.
Standard library only: every command reads this module.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from hpq.access.invitation import folder_of, joined
from hpq.domain.sweep import DEFAULT_QUEUE
from hpq.errors import OutOfReach, UserError
from hpq.private_files import make_private, replace_private
from hpq.private_server.keeper import open_lock, try_lock
from hpq.redis.credentials import parse, redact
from hpq.settings import Settings
from hpq.shell import shell_hint
from hpq.store.wire import decode

NAMESPACE = "hpq"  # the default
BACKGROUND = "background"
HOST = "127.0.0.1"
KUBECTL = "kubectl -n NAMESPACE"  # of a cluster that is not known
_STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRecord:
    """A local port forwarded to a cluster's Redis; `trouble` is the current error, if any."""

    pid: int
    port: int
    context: str
    namespace: str
    service: str
    user: str
    prefix: str
    password_file: str
    code_key_file: str = ""
    trouble: str = ""
    scheme: str = "redis"
    ca_file: str = ""  # "": the system's CAs

    @property
    def url(self) -> str:
        """The value of HPQ_REDIS_URL; the password is in `password_file`."""
        ca = f"?ssl_ca_certs={quote(self.ca_file)}" if self.ca_file else ""
        user = quote(self.user, safe="")  # the cluster names it, and it must stay a name
        return f"{self.scheme}://{user}@{HOST}:{self.port}/0{ca}"

    @property
    def role(self) -> str:
        """The role, which is the end of the user's name."""
        return self.user.removeprefix(f"{self.prefix}-")

    @property
    def where(self) -> str:
        """The target, for messages."""
        return f"Service {self.service}, namespace {self.namespace}, context {self.context}"

    @property
    def kubectl(self) -> str:
        """`kubectl` with the context and the namespace, for messages."""
        return kubectl_command(self.context, self.namespace)

    def environ(self) -> dict[str, str]:
        """Return the environment variables that make a command use this connection."""
        variables = {
            "HPQ_REDIS_URL": self.url,
            "HPQ_REDIS_PASSWORD_FILE": self.password_file,
            "HPQ_PREFIX": self.prefix,
        }
        with suppress(OSError):  # without the key, enqueue reports unsigned code
            if self.code_key_file:
                variables["HPQ_CODE_KEY"] = Path(self.code_key_file).read_text("utf-8").strip()
        return variables


_RECORD = decode.Record(
    ConnectionRecord,
    pid=decode.whole,
    port=decode.whole,
    context=decode.text,
    namespace=decode.text,
    service=decode.text,
    user=decode.text,
    prefix=decode.text,
    password_file=decode.text,
    code_key_file=decode.text,
    trouble=decode.text,
    scheme=decode.text,
    ca_file=decode.text,
)


def records_folder(home: Path) -> Path:
    """Return the directory of the records."""
    return home / "connect"


def _lock(home: Path, name: str) -> Path:
    return records_folder(home) / f"{name}.lock"


def _record(home: Path) -> Path:
    return records_folder(home) / "background.json"


def acquire_lock(home: Path, name: str = BACKGROUND) -> int | None:
    """Lock a name as long as this process lives; None if another process holds the lock."""
    make_private(records_folder(home))
    fd = open_lock(_lock(home, name))
    if try_lock(fd):
        os.ftruncate(fd, os.pwrite(fd, str(os.getpid()).encode(), 0))
        if name == BACKGROUND:
            remove_record(home)  # left by a killed process
        return fd
    os.close(fd)
    return None


def lock_holder(home: Path, name: str = BACKGROUND) -> int | None:
    """Return the id of the last process that took the lock; the record may be older."""
    try:
        return int(_lock(home, name).read_text("ascii"))
    except (OSError, ValueError):
        return None


def write_record(home: Path, record: ConnectionRecord) -> None:
    """Replace the record atomically."""
    replace_private(_record(home), json.dumps(asdict(record)).encode())


def remove_record(home: Path) -> None:
    """Remove the record; its lock file stays for waiters."""
    _record(home).unlink(missing_ok=True)


def read_record(home: Path) -> ConnectionRecord | None:
    """Return the record, whether its process lives or not."""
    try:
        return _RECORD(json.loads(_record(home).read_bytes()))  # of any version
    except (OSError, ValueError, TypeError):
        return None


def current_trouble(home: Path, record: ConnectionRecord | None) -> str:
    """Return why a connection does not reach Redis at present; "" if unknown."""
    now = read_record(home) if record else None
    return now.trouble if now else ""


def is_alive(home: Path, name: str = BACKGROUND) -> bool:
    """Return True while the process that holds a lock lives."""
    try:
        fd = os.open(_lock(home, name), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def background_connection(home: Path) -> ConnectionRecord | None:
    """Return the connection in the background, if the user has started one.

    Raises:
        OutOfReach: the connection has died or is not ready yet; another server is never used.
    """
    record = read_record(home)
    if record is None and is_alive(home):
        text = "the connection in the background is starting or ending; try again"
        raise OutOfReach(text, code="connection-changing")
    if record is not None and not is_alive(home):
        flags = "".join(namespace_flags(record.context, record.namespace))
        raise OutOfReach(
            f"the connection in the background to {record.where} has ended; restart it"
            f" (hpq connect{flags}) or remove it (hpq connect --stop)",
            code="connection-ended",
        )
    return record


def connection_of_url(home: Path, url: str) -> ConnectionRecord | None:
    """Return the live connection that a Redis URL uses, if any."""
    parts = parse(url) if url else None
    if parts is None or parts.hostname != HOST:
        return None
    record = read_record(home)
    return record if record and record.port == parts.port and is_alive(home) else None


def stop_background(home: Path) -> ConnectionRecord | None:
    """End the connection in the background; return its record, None if there was none."""
    record = read_record(home)
    _end(home, BACKGROUND, _STOP_S, signal.SIGKILL)
    remove_record(home)
    return record


def _end(home: Path, name: str, patience_s: float, last: signal.Signals) -> None:
    """Send SIGTERM to the process that holds a lock, then `last` at each end of its patience."""
    number, until = signal.SIGTERM, time.monotonic()
    while is_alive(home, name):
        if time.monotonic() >= until and (pid := lock_holder(home, name)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            number, until = last, time.monotonic() + patience_s
        time.sleep(0.02)


def doctor_command(context: str, namespace: str) -> str:
    """Return the command that explains the state of a namespace, for a message."""
    return shell_hint(["hpq", "doctor", "--cluster", "--context", context, "-n", namespace])


def kubectl_command(context: str, namespace: str) -> str:
    """Return `kubectl` with a context and a namespace, for a message."""
    return f"kubectl --context {shell_hint([context])} -n {namespace}"


def deployment_name(queue: str = DEFAULT_QUEUE) -> str:
    """Return the name of a queue's Deployment, its disruption budget and its scaler."""
    return "hpq-worker" if queue == DEFAULT_QUEUE else f"hpq-worker-{queue}"


def scale_command(kubectl: str = KUBECTL, deployment: str = deployment_name()) -> str:
    """Return the command that sets the number of worker pods to N, for a message."""
    return f"`{kubectl} scale {shell_hint([f'deployment/{deployment}'])} --replicas=N`"


def namespace_flags(context: str, namespace: str) -> tuple[str, str]:
    """Return the two options that select a namespace in an hpq command, for a message."""
    return f" --context {shell_hint([context])}", f" --namespace {namespace}"


def with_connection(environ: Mapping[str, str], home: Path) -> Mapping[str, str]:
    """Return the environment with the URL of the server in use, unless HPQ_REDIS_URL is set.

    The background connection comes before the server that `hpq join` recorded.
    """
    if environ.get("HPQ_REDIS_URL", "").strip():
        return environ
    record = background_connection(home)
    if record is None:
        return with_joined(environ, home)
    key = environ.get("HPQ_CODE_KEY")
    return {**environ, **record.environ(), **({"HPQ_CODE_KEY": key} if key else {})}


def with_joined(environ: Mapping[str, str], home: Path) -> Mapping[str, str]:
    """Return the environment with the settings of `hpq join`; variables that are set win."""
    found = joined(folder_of(home))
    return {**environ, **{n: v for n, v in found.items() if not environ.get(n)}}


def refuse_other_server(settings: Settings, url: str) -> None:
    """Raise an error if this machine uses another server than that of a URL, to be joined.

    `settings` are those of the environment.
    """
    if settings.redis_url:
        text = "HPQ_REDIS_URL would override the server to be joined; run `unset HPQ_REDIS_URL`"
        raise UserError(text, code="connected-already")
    if connection := background_connection(settings.home):
        text = f"connected to {connection.where}; first run `hpq connect --stop`"
        raise UserError(text, code="connected-already")
    now = joined(folder_of(settings.home)).get("HPQ_REDIS_URL", "")
    if now and parse(now)[:3] != parse(url)[:3]:
        text = f"this machine has joined {redact(now)}; first run `hpq leave`"
        raise UserError(text, code="connected-already")


_WORKER = f"worker-{socket.gethostname()}-"  # several machines may share the disk of HPQ_HOME


def register_worker(home: Path) -> None:
    """Record this process, and the program that it execs, as a worker that `hpq leave` stops."""
    fd = acquire_lock(home, f"{_WORKER}{os.getpid()}")
    if fd is not None:
        os.set_inheritable(fd, True)


def stop_workers(home: Path, grace_s: float) -> int:
    """Stop the recorded workers of this machine, which return their trials; return their number."""
    names = [path.stem for path in records_folder(home).glob(f"{_WORKER}*.lock")]
    live = [name for name in names if is_alive(home, name)]
    for name in names:
        _end(home, name, grace_s, signal.SIGTERM)  # a second one ends a worker at once
        _lock(home, name).unlink(missing_ok=True)
    return len(live)
