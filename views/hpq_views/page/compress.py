"""Compress what the dashboard answers.

Starlette's GZipMiddleware would compress the files of trials, too, and does so for a browser that
refuses it (`gzip;q=0`).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

_ACCEPTS_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|\Z))")
_LEAST_BYTES = 1_000  # a shorter answer fits one packet
_LEVEL = 5  # of gzip: higher ones cost more and save next to nothing


def compressed(page: Callable[[Request], Response], request: Request) -> Response:
    """Answer a page, compressed if the browser accepts that and the page is long enough."""
    response = page(request)
    response.headers["Vary"] = "Accept-Encoding"
    accepts = _ACCEPTS_GZIP.search(request.headers.get("accept-encoding", ""))
    if accepts and len(response.body) >= _LEAST_BYTES:
        response.body = gzip.compress(response.body, _LEVEL, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response
