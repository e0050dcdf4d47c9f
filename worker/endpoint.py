"""The HTTP server behind HPQ_PORT: small, in threads of its own, and no way to harm the fleet.

Whoever calls may hang, leave in the middle or come in crowds. A call has a few seconds in all, and
so many at a time are answered; the rest are hung up on, since the fleet needs its file descriptors.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Any

from hpq.errors import UserError

log = logging.getLogger("hpq.health")
Page = Callable[[], tuple[int, bytes]]
_TEXT = "text/plain; version=0.0.4; charset=utf-8"  # the version is of Prometheus's text format
_CALL_S = 10.0  # a call takes at most so long, however it dribbles
_MOST = 64  # calls at a time
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class Endpoint:
    """Answers GET and HEAD of some pages on a port, of IPv4 and IPv6."""

    def __init__(self, port: int, pages: Mapping[str, Page]) -> None:
        """Raises UserError where the port cannot be had."""
        try:
            self._server = _listen(port, _handler(pages))
        except OSError as error:
            raise UserError(
                f"HPQ_PORT: {port} cannot be used: {error.strerror}", code="port-unusable"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, name="health", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more; calls under way are left to themselves."""
        self._server.shutdown()
        self._server.server_close()


def _listen(port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    if socket.has_dualstack_ipv6():
        try:
            return _DualStack(("", port), handler)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return _Server(("", port), handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False  # a port that is taken is to be said
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._calls: dict[socket.socket, float] = {}
        self._lock = Lock()
        super().__init__(*args)

    def server_bind(self) -> None:
        """Without HTTPServer's look for the host's name, which waits for DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hpq", int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """False where too many call."""
        with self._lock:
            if len(self._calls) >= _MOST:
                return False
            self._calls[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Hang up on calls that take too long (called about twice a second)."""
        with self._lock:
            for request, since in self._calls.items():
                if time.monotonic() - since > _CALL_S:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._calls.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One who hung up is nothing to tell of, anything else is a fault of ours."""
        log.debug("a call of HPQ_PORT ended early", exc_info=True)


class _DualStack(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CALL_S  # of a caller that says nothing, or does not listen
        server_version, sys_version = "hpq", ""

        def do_GET(self) -> None:
            self.wfile.write(self._head())

        def do_HEAD(self) -> None:
            self._head()

        def _head(self) -> bytes:
            page = pages.get(self.path.partition("?")[0])
            status, body = page() if page else (404, f"{', '.join(pages)}\n".encode())
            self.send_response(status)
            self.send_header("Content-Type", _TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return body

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds: no line for each."""

    return Handler
