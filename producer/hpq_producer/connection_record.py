"""What `hpq connect` leaves under HPQ_HOME for other commands: where a tunnel is and leads.

Each tunnel has a record, `background` or one named after its process, and a lock that the process
holds while it lives: a record whose lock is free is of one that was killed. Passwords lie in the
process's memory, where its owner's commands read them by /proc, so that nothing stays of them.
Standard library only: every command reads this.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from hpq.errors import OutOfReach
from hpq_producer.embedded_redis.keeper import open_lock, try_lock

NAMESPACE = "hpq"  # where no other is named
BACKGROUND = "background"
CONNECT = "HPQ_CONNECT"  # in a connected shell: CONTEXT/NAMESPACE:PORT
HOST = "127.0.0.1"
_STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """A local port that leads to a cluster's Redis; `trouble` is why it does not just now."""

    name: str
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
    ca_file: str = ""  # "" = whom this machine trusts

    @property
    def url(self) -> str:
        """For HPQ_REDIS_URL; the password is in the file."""
        ca = f"?ssl_ca_certs={quote(self.ca_file)}" if self.ca_file else ""
        return f"{self.scheme}://{self.user}@{HOST}:{self.port}/0{ca}"

    @property
    def role(self) -> str:
        """Whose password it has, as the user's name ends."""
        return self.user.rpartition("-")[2]

    @property
    def where(self) -> str:
        """What it leads to, for people."""
        return f"Service {self.service}, namespace {self.namespace}, context {self.context}"

    def environ(self) -> dict[str, str]:
        """The variables that make a command use it."""
        told = {
            "HPQ_REDIS_URL": self.url,
            "HPQ_REDIS_PASSWORD_FILE": self.password_file,
            "HPQ_PREFIX": self.prefix,
            CONNECT: f"{self.context}/{self.namespace}:{self.port}",
        }
        with suppress(OSError):  # without the key nothing is signed, and enqueue says so
            if self.code_key_file:
                told["HPQ_CODE_KEY"] = Path(self.code_key_file).read_text("utf-8").strip()
        return told


def folder(home: Path) -> Path:
    """Where the records lie."""
    return home / "connect"


def hold(home: Path, name: str) -> int | None:
    """The lock of a tunnel, for as long as this process lives; None where another has it."""
    folder(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = open_lock(folder(home) / f"{name}.lock")
    if try_lock(fd):
        os.ftruncate(fd, os.pwrite(fd, str(os.getpid()).encode(), 0))
        (folder(home) / f"{name}.json").unlink(missing_ok=True)  # of one that was killed
        return fd
    os.close(fd)
    return None


def holder(home: Path, name: str = BACKGROUND) -> int | None:
    """The process that took the lock last; a record may be of one before it."""
    try:
        return int((folder(home) / f"{name}.lock").read_text("ascii"))
    except (OSError, ValueError):
        return None


def write(home: Path, tunnel: Tunnel) -> None:
    """Replace the record as a whole."""
    path = folder(home) / f"{tunnel.name}.json"
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=_private) as file:
        json.dump(asdict(tunnel), file)
    draft.replace(path)


def forget(home: Path, name: str) -> None:
    """Remove the record; the lock's file, too, but for the one that others may be waiting for."""
    (folder(home) / f"{name}.json").unlink(missing_ok=True)
    if name != BACKGROUND:
        (folder(home) / f"{name}.lock").unlink(missing_ok=True)


def read(home: Path, name: str = BACKGROUND) -> Tunnel | None:
    """The record of that name, whether its process lives or not."""
    try:
        return Tunnel(**json.loads((folder(home) / f"{name}.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def trouble_of(home: Path, tunnel: Tunnel | None) -> str:
    """Why a tunnel does not lead to Redis just now; "" where nothing is known."""
    now = read(home, tunnel.name) if tunnel else None
    return now.trouble if now else ""


def is_alive(home: Path, name: str = BACKGROUND) -> bool:
    """True while the process of a tunnel lives."""
    try:
        fd = os.open(folder(home) / f"{name}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def sweep(home: Path) -> None:
    """Remove what tunnels of a shell left that were killed."""
    for path in folder(home).glob("*.lock"):
        if path.stem != BACKGROUND and not is_alive(home, path.stem):
            forget(home, path.stem)


def background(home: Path) -> Tunnel | None:
    """The tunnel in the background, where there is to be one.

    Raises:
        OutOfReach: it has ended and nobody said so, or is not there yet; another server would be
            a surprise.
    """
    found = read(home)
    if found is None and is_alive(home):
        raise OutOfReach(
            "the connection in the background is starting or ending; try again",
            code="connection-changing",
        )
    if found is not None and not is_alive(home):
        flags = "".join(told(found.context, found.namespace))
        raise OutOfReach(
            f"the connection in the background to {found.where} has ended; make it again"
            f" (hpq connect --background{flags}) or forget it (hpq connect --stop)",
            code="connection-ended",
        )
    return found


def of_url(home: Path, url: str) -> Tunnel | None:
    """The tunnel that a Redis URL goes through, if it does."""
    parts = urlsplit(url)
    if parts.hostname != HOST:
        return None
    return next((t for t in _all(home) if t.port == parts.port), None)


def see_shell(environ: Mapping[str, str], home: Path, url: str) -> None:
    """Where a command's shell is a connected one, see that its connection lives.

    Raises:
        OutOfReach: it has ended; what is current now may be another cluster, or its port another's.
    """
    where, _, port = environ.get(CONNECT, "").rpartition(":")
    parts = urlsplit(url)
    if not where or (parts.hostname, str(parts.port)) != (HOST, port):
        return  # another URL was set since
    found = of_url(home, url)
    if found is None or f"{found.context}/{found.namespace}" != where:
        context, _, namespace = where.rpartition("/")
        raise OutOfReach(
            f"the connection of this shell, to namespace {namespace}, context {context}, has ended;"
            f" exit, and `hpq connect{''.join(told(context, namespace))}` again",
            code="connection-ended",
        )


def of_shell(environ: Mapping[str, str], home: Path) -> Tunnel | None:
    """The tunnel of a connected shell, where HPQ_REDIS_URL is still that.

    Raises:
        OutOfReach: it has ended.
    """
    url = environ.get("HPQ_REDIS_URL", "")
    see_shell(environ, home, url)
    return of_url(home, url) if environ.get(CONNECT) and url else None


def stop(home: Path) -> Tunnel | None:
    """End the tunnel in the background; answers what it was, None where there was none."""
    found = read(home)
    number, until = signal.SIGTERM, time.monotonic()
    while is_alive(home):
        if time.monotonic() >= until and (pid := holder(home)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            number, until = signal.SIGKILL, time.monotonic() + _STOP_S
        time.sleep(0.02)
    forget(home, BACKGROUND)
    return found


def kubectl_in(context: str, namespace: str) -> str:
    """How a command of kubectl's begins that is told to people."""
    return f"kubectl --context {shlex.quote(context)} -n {namespace}"


def told(context: str, namespace: str) -> tuple[str, str]:
    """The two flags by which a command of hpq's that is told to people means that namespace."""
    return f" --context {shlex.quote(context)}", f" --namespace {namespace}"


def _all(home: Path) -> Iterator[Tunnel]:
    for path in folder(home).glob("*.json"):
        found = read(home, path.stem)
        if found is not None and is_alive(home, path.stem):
            yield found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def overlay(environ: Mapping[str, str], home: Path) -> Mapping[str, str]:
    """The environment with the tunnel in the background, which HPQ_REDIS_URL goes before."""
    if environ.get("HPQ_REDIS_URL", "").strip():
        return environ
    found = background(home)
    if found is None:
        return environ
    own_key = {"HPQ_CODE_KEY": environ["HPQ_CODE_KEY"]} if environ.get("HPQ_CODE_KEY") else {}
    return {**environ, **found.environ(), **own_key}
