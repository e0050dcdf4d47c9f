"""A TCP proxy before a Redis server that injects network faults.

It delays, cuts, drops and truncates data; the content of a request selects the reply to drop.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hpq.store.scripts import source

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset, as a vanished peer does


def sha_of(script: str) -> bytes:
    """Return bytes that identify a request for one of hpq's scripts."""
    return hashlib.sha1(source(script).encode()).hexdigest().encode()


@dataclass(slots=True, kw_only=True)
class Blow:
    """A reply to drop: the next one, after `skip` others, to a request with `needle`."""

    needle: bytes
    skip: int = 0
    torn: bool = False  # the first half arrives
    struck: threading.Event = field(default_factory=threading.Event)


class _Link:
    """One connection of a client, with its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self.proxy, self.client = proxy, client
        self.server = socket.socket(socket.AF_UNIX)
        try:
            self.server.connect(proxy.server)
        except OSError:
            self.server.close()
            raise
        self.blow: Blow | None = None
        self.is_deaf = False
        for pump in (self._ask, self._answer):
            threading.Thread(target=self._run, args=(pump,), daemon=True).start()

    def _run(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()
        if not self.is_deaf:
            self.cut()

    def _ask(self) -> None:
        for data in self._pieces(self.client):
            with self.proxy.lock:
                self.blow = self.blow or self.proxy.aimed_at(data)
            if not self.is_deaf:
                self.server.sendall(data)

    def _answer(self) -> None:
        for data in self._pieces(self.server):
            blow, self.blow = self.blow, None
            if blow is not None and data.startswith(b"-"):  # NOSCRIPT: the real call comes next
                self.blow = blow
            elif blow is not None:
                if blow.torn:
                    self.client.sendall(data[: len(data) // 2])
                blow.struck.set()
                return
            if not self.is_deaf:
                self.client.sendall(data)

    def _pieces(self, end: socket.socket) -> Iterator[bytes]:
        while data := end.recv(65_536):
            if self.proxy.delay_s:
                time.sleep(self.proxy.delay_s)
            self.proxy.is_open.wait()  # TCP later retransmits data lost in a black hole
            yield data

    def cut(self) -> None:
        """Reset both ends."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def deafen(self) -> None:
        """Close only the server's end, so that the client's connection is half open."""
        self.is_deaf = True
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on 127.0.0.1; clients connect to `url`."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.delay_s = 0.0  # per chunk and direction
        self.lock = threading.Lock()
        self.is_open = threading.Event()
        self.is_open.set()
        self._blows: list[Blow] = []
        self._links: list[_Link] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    self._links.append(_Link(self, client))
                except OSError:  # the server is down, so the proxy refuses, too
                    client.close()

    def aimed_at(self, request: bytes) -> Blow | None:
        """Return the fault for this request, if any; the caller holds the lock."""
        for blow in [b for b in self._blows if b.needle in request]:
            if not blow.skip:
                self._blows.remove(blow)
                return blow
            blow.skip -= 1
        return None

    # --- faults -------------------------------------------------------------------------------

    def lose(self, what: str | bytes, *, skip: int = 0, torn: bool = False) -> Blow:
        """Drop the next reply to a script, or to a request with these bytes, after `skip` others,
        and its connection."""
        needle = sha_of(what) if isinstance(what, str) else what
        blow = Blow(needle=needle, skip=skip, torn=torn)
        with self.lock:
            self._blows.append(blow)
        return blow

    def cut(self) -> None:
        """Reset every open connection; new ones are served."""
        links, self._links = self._links, []
        for link in links:
            link.cut()

    def hole(self) -> None:
        """Silently hold all data in both directions until `mend`."""
        self.is_open.clear()

    def mend(self) -> None:
        """End the black hole; deliver the data that was held."""
        self.is_open.set()

    def half_open(self) -> None:
        """Close the server's end of every connection without notice to clients."""
        for link in self._links:
            link.deafen()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        self.mend()
        self.cut()
