"""Forward a local port to a cluster's Redis: `python -m hpq.kubernetes.port_forward`.

The process prints one line of JSON when it serves or cannot. `hpq connect --stop` ends it by a
signal; the port and the passwords end with it.

Each connection opens its own stream through the API server to the pod that is ready then, so a
replaced pod or a network outage needs no repair.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpq.access import connection_record
from hpq.access.connection_record import HOST, ConnectionRecord
from hpq.errors import HpqError, UserError
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.redis_access import SERVICE, RedisService

_CHUNK = 65_536
_MOST_WAITING = 32 << 20  # bytes from the pod that the client has not read
_STALLED_S = 20.0  # a frame that takes longer means a dead stream
_TCP = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_OK, _CLOSE = 2, 8  # opcodes of a binary frame and of the last one


class PortForward:
    """A listener: `dial` opens a stream to the pod; `report` gets its error, "" on success."""

    def __init__(
        self, dial: Callable[[], Any], report: Callable[[str], None], port: int = 0
    ) -> None:
        """Listen on a port (0: any free one); raise OSError if that is impossible."""
        self._dial, self._report = dial, report
        self._listener = socket.create_server((HOST, port), backlog=32)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])

    def serve(self, until: int) -> None:
        """Accept connections until a descriptor becomes readable."""
        while True:
            ready, _, _ = select.select([self._listener.fileno(), until], [], [])
            if until in ready:
                self._listener.close()
                return
            with suppress(OSError):
                local, _ = self._listener.accept()
                threading.Thread(target=self._serve_connection, args=(local,), daemon=True).start()

    def _serve_connection(self, local: socket.socket) -> None:
        with local:
            try:
                stream = self._dial()
            except HpqError as error:
                self._report(str(error))
                return
            self._report("")
            try:
                _keep_alive(stream.sock)
                stream.settimeout(_STALLED_S)
                why = _Pump(local, stream).run()
            except Exception as error:  # the library raises many types; each ends the stream
                why = str(error)
            finally:
                with suppress(Exception):
                    stream.shutdown()
            if why:
                self._report(why)


class _Pump:
    """Carries bytes both ways until one side ends."""

    def __init__(self, local: socket.socket, stream: Any) -> None:
        self._local, self._stream = local, stream
        self._waiting = bytearray()
        self._named = set[int]()  # channels whose first frame, the port, has arrived

    def run(self) -> str:
        """Forward until one side ends; return the error of the pod's side, or ""."""
        self._local.setblocking(False)
        self._local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll = select.poll()
        local = self._local.fileno()
        remote = self._stream.sock.fileno()
        while True:
            room = len(self._waiting) < _MOST_WAITING
            poll.register(local, select.POLLIN | (select.POLLOUT if self._waiting else 0))
            poll.register(remote, select.POLLIN if room else 0)
            pending = room and self._pending()
            ready = dict(poll.poll(0 if pending else None))
            if ready.get(local, 0) & ~select.POLLOUT and not self._up():
                return ""
            if pending or ready.get(remote):
                error = self._down()
                if error is not None:
                    self._flush(final=True)
                    return error
            self._flush()

    def _up(self) -> bool:
        try:
            data = self._local.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self._stream.send_binary(b"\0" + data)
        return bool(data)

    def _down(self) -> str | None:
        opcode, frame = self._stream.recv_data_frame(True)
        if opcode == _CLOSE:
            return ""
        if opcode != _OK or not frame.data:
            return None
        channel, data = frame.data[0], frame.data[1:]
        if channel not in self._named:
            self._named.add(channel)
            return None
        if channel != 0:
            return str(data.decode("utf-8", "replace"))
        self._waiting += data
        return None

    def _flush(self, *, final: bool = False) -> None:
        if final:
            self._local.setblocking(True)
            self._local.settimeout(_STALLED_S)
            with suppress(OSError):
                self._local.sendall(self._waiting)
            return
        if self._waiting:
            with suppress(BlockingIOError):
                del self._waiting[: self._local.send(self._waiting[:_CHUNK])]

    def _pending(self) -> bool:
        sock = self._stream.sock
        return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0


def _keep_alive(sock: socket.socket) -> None:
    """Enable TCP keepalive: a silent network failure is detected within 30 s."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_FRESH_S = 30.0  # an older password is read again at the next connection


class SecretFile:
    """A text that the user's other processes can read as a file while this process lives."""

    def __init__(self, home: Path, name: str, text: str) -> None:
        self._text = ""
        self._kept: Path | None = None
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create(name)
            self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        else:  # this system has no memfd
            self._kept = connection_record.records_folder(home) / f"{name}.{os.getpid()}"
            self._fd = os.open(self._kept, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            self.path = str(self._kept)
        self.write(text)

    def write(self, text: str) -> None:
        """Replace the text."""
        if text != self._text:
            os.ftruncate(self._fd, os.pwrite(self._fd, text.encode(), 0))
            self._text = text

    def forget(self) -> None:
        """Remove the file, if the text is in one."""
        if self._kept is not None:
            self._kept.unlink(missing_ok=True)


class Forwarder:
    """One connection, from its start to its end."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._home, self._role = Path(request["home"]), str(request["role"])
        self._prefix, self._lock = str(request["prefix"]), threading.Lock()
        self._service = RedisService(KubernetesApi(request["context"], request["namespace"]))
        api = self._service.api
        credentials = self._service.credentials(self._role, self._prefix)
        self._read_at = time.monotonic()
        self._service.dial().shutdown()  # a missing permission fails here, not at the first use
        self._record_lock = connection_record.acquire_lock(self._home)
        if self._record_lock is None:
            text = "another `hpq connect` is starting; see: hpq connect --status"
            raise UserError(text, code="connection-changing")
        try:
            self._forward = PortForward(self._dial, self._report, int(request["port"]))
        except OSError as error:
            text = f"--port {request['port']}: {error.strerror}"
            raise UserError(text, code="port-unusable") from None
        self._password = SecretFile(self._home, "password", credentials.password)
        signs = self._role in ("producer", "admin")
        key = self._service.code_key() if signs else ""
        self._key = SecretFile(self._home, "code-key", key) if key else None
        ca = credentials.ca if self._service.scheme == "rediss" else ""
        self._ca = SecretFile(self._home, "ca", ca) if ca else None
        self.connection = ConnectionRecord(
            pid=os.getpid(),
            port=self._forward.port,
            context=api.context,
            namespace=api.namespace,
            service=SERVICE,
            user=credentials.user,
            prefix=credentials.prefix(self._role),
            password_file=self._password.path,
            code_key_file=self._key.path if self._key else "",
            scheme=self._service.scheme,
            ca_file=self._ca.path if self._ca else "",
        )
        connection_record.write_record(self._home, self.connection)

    def serve(self, until: int) -> None:
        """Forward until a descriptor becomes readable, then remove all files."""
        try:
            self._forward.serve(until)
        finally:
            for kept in filter(None, (self._password, self._key, self._ca)):
                kept.forget()
            connection_record.remove_record(self._home)

    def _dial(self) -> Any:
        stream = self._service.dial()
        with self._lock:
            is_old = time.monotonic() - self._read_at > _FRESH_S
            self._read_at = time.monotonic() if is_old else self._read_at
        if is_old:  # the next client gets the new password, if it has changed
            with suppress(HpqError):
                credentials = self._service.credentials(self._role, self._prefix)
                self._password.write(credentials.password)
                if self._ca is not None and credentials.ca:
                    self._ca.write(credentials.ca)
        return stream

    def _report(self, trouble: str) -> None:
        with self._lock:
            if trouble != self.connection.trouble:
                self.connection = replace(self.connection, trouble=trouble)
                connection_record.write_record(self._home, self.connection)


def _signal_descriptor() -> int:
    """Return a descriptor that is readable once a signal asks this process to end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _reply(words: dict[str, Any]) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):  # a parent may read them to their end
        os.dup2(null, fd)


def main() -> None:
    """Serve the request in the last argument, as JSON."""
    request: dict[str, Any] = json.loads(sys.argv[-1])
    if os.fork():
        os._exit(0)  # the parent keeps no child to wait for
    os.setsid()
    os.umask(0o077)
    try:
        until = _signal_descriptor()
        forwarder = Forwarder(request)
    except HpqError as error:
        return _reply({"error": str(error), "code": error.code, "exit_code": int(error.exit_code)})
    except Exception as error:  # stderr is not shown
        why = f"{type(error).__name__}: {error}"
        return _reply({"error": f"the connection failed by an error in hpq: {why}"})
    _reply({})
    forwarder.serve(until)


if __name__ == "__main__":
    main()
