"""A local port whose connections go to a pod, each by a stream of its own through the API server.

So nothing has to be mended after a pod was replaced or the network was away: who connects again
gets a new stream, to the pod that is ready then.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hpq.errors import HpqError
from producer.cluster.tunnel import HOST

_CHUNK = 65_536
_MOST_WAITING = 32 << 20  # bytes that the pod sent and nobody here has read
_STALLED_S = 20.0  # a frame that began and does not end for so long: the stream is dead
_IDLE = ((socket.SO_KEEPALIVE, 1),)
_TCP = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_OK, _CLOSE = 2, 8  # opcodes of a binary frame and of the last one


class Forward:
    """Listens at once; `dial` opens a stream to the pod, `say` hears why that failed, or ""."""

    def __init__(self, dial: Callable[[], Any], say: Callable[[str], None], port: int = 0) -> None:
        """Raises OSError where the port cannot be had."""
        self._dial, self._say = dial, say
        self._listener = socket.create_server((HOST, port), backlog=32)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])

    def serve(self, until: int) -> None:
        """Take connections until a descriptor becomes readable."""
        while True:
            ready, _, _ = select.select([self._listener.fileno(), until], [], [])
            if until in ready:
                self._listener.close()
                return
            with suppress(OSError):
                local, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(local,), daemon=True).start()

    def _one(self, local: socket.socket) -> None:
        with local:
            try:
                stream = self._dial()
            except HpqError as error:
                self._say(str(error))
                return
            self._say("")
            try:
                _keep_alive(stream.sock)
                stream.settimeout(_STALLED_S)
                why = _Pump(local, stream).run()
            except Exception as error:  # whatever the library raises: that stream is over
                why = str(error)
            finally:
                with suppress(Exception):
                    stream.shutdown()
            if why:
                self._say(why)


class _Pump:
    """Carries bytes both ways until one side ends."""

    def __init__(self, local: socket.socket, stream: Any) -> None:
        self._local, self._stream = local, stream
        self._waiting = bytearray()
        self._named = set[int]()  # channels that have said which port they are

    def run(self) -> str:
        """Answers what the pod's side said against it; "" where there is nothing to say."""
        self._local.setblocking(False)
        self._local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll, here, there = select.poll(), self._local.fileno(), self._stream.sock.fileno()
        while True:
            room = len(self._waiting) < _MOST_WAITING
            poll.register(here, select.POLLIN | (select.POLLOUT if self._waiting else 0))
            poll.register(there, select.POLLIN if room else 0)
            pending = room and self._pending()
            ready = dict(poll.poll(0 if pending else None))
            if ready.get(here, 0) & ~select.POLLOUT and not self._up():
                return ""
            if pending or ready.get(there):
                said = self._down()
                if said is not None:
                    self._flush(final=True)
                    return said
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
    """A network that went without a word is noticed in half a minute."""
    for option, value in _IDLE:
        sock.setsockopt(socket.SOL_SOCKET, option, value)
    for name, value in _TCP:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
