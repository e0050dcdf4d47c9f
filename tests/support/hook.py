"""A webhook on loopback."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.support.constants import DEADLINE_S


class Hook:
    """A webhook on loopback: what was posted, and which answers it gives first."""

    def __init__(self) -> None:
        self.posted: queue.Queue[dict[str, Any]] = queue.Queue()
        self.answers: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = hook.answers.pop(0) if hook.answers else 200
                if not code:  # what a broken proxy says
                    self.wfile.write(b"nonsense\r\n\r\n")
                    return
                self.send_response(code)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                if code == 200:
                    hook.posted.put(body)

            def do_GET(self) -> None:  # where a redirect would lead
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/s3cret-path"

    def next(self) -> str:
        return str(self.posted.get(timeout=DEADLINE_S)["text"])


@contextmanager
def serving() -> Iterator[Hook]:
    """Serve a webhook."""
    one = Hook()
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        thread.join()
        one.server.server_close()
