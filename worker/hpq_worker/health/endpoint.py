"""/livez and /readyz on HPQ_PORT, in threads that cannot harm the supervisor.

A caller may hang or disconnect, and many may call at once. The server closes a connection that is
older than a few seconds, and refuses a connection when too many are open, since the supervisor
needs its file descriptors.
"""

from __future__ import annotations

import io
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from hpq.errors import UserError
from hpq_worker.health.health import Health

log = logging.getLogger("hpq.health")
_CALL_S = 10.0  # a connection's longest life, however slowly the caller sends
_MOST = 64  # connections at a time


def pages(health: Health) -> dict[str, WSGIApplication]:
    """Return the WSGI application of each path."""
    return {
        "/livez": _probe(health.not_alive),
        "/readyz": _probe(_Logged(health.not_ready)),
    }


class _Logged:
    """Logs why a pod is not ready: who sees its log often may not ask its port."""

    def __init__(self, why_not: Callable[[], str]) -> None:
        self._why_not = why_not
        self._last = ("", "")  # of the last two probes

    def __call__(self) -> str:
        """Return the reason; log it when two probes in a row have it, once."""
        why = self._why_not()
        before, last = self._last
        if why and why == last != before:
            log.warning("not ready: %s", why.replace("\n", "; "))
        self._last = (last, why)
        return why


def _probe(why_not: Callable[[], str]) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        why = why_not()
        status = "503 Service Unavailable" if why else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why or 'ok'}\n".encode()]

    return app


class Endpoint:
    """Serves WSGI pages on a port of IPv4 and IPv6, from a thread, until `close`."""

    def __init__(self, port: int, pages: Mapping[str, WSGIApplication]) -> None:
        """Raises UserError if the port cannot be used."""
        try:
            self._server = _Server(("", port), _Handler)
        except OSError as error:
            text = f"HPQ_PORT: cannot use port {port}: {error.strerror}; set another port"
            raise UserError(text, code="port-unusable") from None
        self._server.set_app(_one_app(pages))
        self.port = int(self._server.server_address[1])
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stop serving; calls under way continue."""
        self._server.shutdown()
        self._server.server_close()


def _one_app(pages: Mapping[str, WSGIApplication]) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"])
        if page is not None and environ["REQUEST_METHOD"] == "GET":
            return page(environ, start_response)
        status = "405 Method Not Allowed" if page else "404 Not Found"
        start_response(status, [("Content-Type", "text/plain"), ("Allow", "GET")])
        return [f"GET {', '.join(pages)}\n".encode()]

    return app


class _Server(ThreadingMixIn, WSGIServer):
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    allow_reuse_port = False  # a port that another process holds is an error
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._opened_at: dict[socket.socket, float] = {}
        super().__init__(*args)

    def server_bind(self) -> None:
        """Bind without HTTPServer's search for the host's name, which waits for DNS."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hpq", int(self.server_address[1])
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse a connection when too many are open."""
        if len(self._opened_at) >= _MOST:
            return False
        self._opened_at[request] = time.monotonic()
        return True

    def service_actions(self) -> None:
        """Close connections that are too old (called about twice a second)."""
        for request, opened_at in self._opened_at.copy().items():
            if time.monotonic() - opened_at > _CALL_S:
                with suppress(OSError):  # the handler has just closed it
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        self._opened_at.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that ended early, without a traceback on stderr."""
        log.debug("a call of HPQ_PORT ended early", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _CALL_S  # of one read or write

    def log_message(self, *_: object) -> None:
        """Log nothing: probes come every few seconds."""

    def get_stderr(self) -> _DebugLog:
        return _DebugLog()


class _DebugLog(io.StringIO):
    """Where wsgiref prints the traceback of a page or of a caller that does not read."""

    def flush(self) -> None:
        log.debug("%s", self.getvalue())
