"""`python -m producer.cluster.forwarder`: the process behind `hpq connect`.

It tells its starter in one line of JSON that it serves, or why it cannot. In a shell's service it
ends when the last process that inherited the other end of its input has; in the background when it
is told to. However it ends, port and passwords go with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpq.errors import HpqError, UserError
from producer.cluster import tunnel
from producer.cluster.access import Redis
from producer.cluster.api import Api
from producer.cluster.forward import Forward
from producer.cluster.tunnel import Tunnel

_FRESH_S = 30.0  # a password read so long ago is read again before the next connection


class Secret:
    """A text that the owner's other processes can read as a file, while this one lives."""

    def __init__(self, home: Path, name: str, text: str) -> None:
        self._text = ""
        self._kept: Path | None = None
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create(name)
            self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        else:  # no memory with a name on this system
            self._kept = tunnel.folder(home) / f"{name}.{os.getpid()}"
            self._fd = os.open(self._kept, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            self.path = str(self._kept)
        self.write(text)

    def write(self, text: str) -> None:
        """Replace the text."""
        if text != self._text:
            os.ftruncate(self._fd, os.pwrite(self._fd, text.encode(), 0))
            self._text = text

    def forget(self) -> None:
        """Remove the file where there is one."""
        if self._kept is not None:
            self._kept.unlink(missing_ok=True)


class Forwarder:
    """One tunnel, from its start to its end."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._home, self._role = Path(wanted["home"]), str(wanted["role"])
        self._prefix, self._lock = str(wanted["prefix"]), threading.Lock()
        self._redis = Redis(Api(wanted["context"], wanted["namespace"]))
        api = self._redis.api
        entry = self._redis.entry(self._role, self._prefix)
        self._read_at = time.monotonic()
        self._redis.dial().shutdown()  # what these credentials may not is said now, not later
        name = str(wanted["name"]) or str(os.getpid())
        self._held = tunnel.hold(self._home, name)
        if self._held is None:
            raise UserError(
                "another `hpq connect --background` is starting; see --status",
                code="connection-changing",
            )
        try:
            self._forward = Forward(self._dial, self._say, int(wanted["port"]))
        except OSError as error:
            raise UserError(
                f"--port {wanted['port']}: {error.strerror}", code="port-unusable"
            ) from None
        self._password = Secret(self._home, "password", entry.password)
        key = self._redis.code_key() if self._role == "producer" else ""
        self._key = Secret(self._home, "code-key", key) if key else None
        ca = entry.ca if self._redis.scheme == "rediss" else ""
        self._ca = Secret(self._home, "ca", ca) if ca else None
        self.tunnel = Tunnel(
            name=name,
            pid=os.getpid(),
            port=self._forward.port,
            context=api.context,
            namespace=api.namespace,
            service=self._redis.name,
            user=entry.user,
            prefix=entry.prefix(self._role),
            password_file=self._password.path,
            code_key_file=self._key.path if self._key else "",
            scheme=self._redis.scheme,
            ca_file=self._ca.path if self._ca else "",
        )
        tunnel.write(self._home, self.tunnel)

    def serve(self, until: int) -> None:
        """Forward until a descriptor becomes readable; then nothing of it is left."""
        try:
            self._forward.serve(until)
        finally:
            self._password.forget()
            for kept in (self._key, self._ca):
                if kept is not None:
                    kept.forget()
            tunnel.forget(self._home, self.tunnel.name)

    def _dial(self) -> Any:
        stream = self._redis.dial()
        with self._lock:
            is_old = time.monotonic() - self._read_at > _FRESH_S
            self._read_at = time.monotonic() if is_old else self._read_at
        if is_old:  # for who comes next: the password may have been changed
            with suppress(HpqError):
                entry = self._redis.entry(self._role, self._prefix)
                self._password.write(entry.password)
                if self._ca is not None and entry.ca:
                    self._ca.write(entry.ca)
        return stream

    def _say(self, trouble: str) -> None:
        with self._lock:
            if trouble != self.tunnel.trouble:
                self.tunnel = replace(self.tunnel, trouble=trouble)
                tunnel.write(self._home, self.tunnel)


def _on_signals() -> int:
    """A descriptor that is readable once this process is told to end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _ends_of(wanted: dict[str, Any]) -> int:
    told = _on_signals()
    if wanted["name"] == tunnel.BACKGROUND:
        return told
    both, end = os.pipe()

    def wait(fd: int) -> None:
        os.read(fd, 1)
        os.write(end, b".")

    for fd in (told, 0):  # a signal, or the shell has ended
        threading.Thread(target=wait, args=(fd,), daemon=True).start()
    return both


def _answer(words: dict[str, Any]) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):  # whoever started this may wait for their end
        os.dup2(null, fd)


def main() -> None:
    """Serve what the last argument says, as JSON."""
    wanted: dict[str, Any] = json.loads(sys.argv[-1])
    if os.fork():
        os._exit(0)  # whoever started this keeps no child to wait for
    os.setsid()
    os.umask(0o077)
    try:
        until = _ends_of(wanted)
        forwarder = Forwarder(wanted)
    except HpqError as error:
        return _answer({"error": str(error), "code": error.code, "exit_code": int(error.exit_code)})
    except Exception as error:  # nobody else would see it
        why = f"{type(error).__name__}: {error}"
        return _answer({"error": f"the connection, a fault of hpq's own: {why}"})
    _answer({"name": forwarder.tunnel.name})
    forwarder.serve(until)


if __name__ == "__main__":
    main()
