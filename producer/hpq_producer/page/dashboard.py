"""Serve the dashboard: pages of sweeps and workers, and what changed of each."""

from __future__ import annotations

import hmac
import ipaddress
import platform
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import uvicorn
from markupsafe import Markup
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hpq.connection.client import short_reason
from hpq.domain.trial import TrialId
from hpq.errors import HpqError, NotFound
from hpq.store.reader import StoreReader
from hpq_producer.analysis.attempts import attempts_of
from hpq_producer.page.curves import pack_curves
from hpq_producer.page.live import Listing, LiveSweep
from hpq_producer.page.render import (
    asset,
    live_policy,
    page_script,
    part,
    plotly_gzip,
    sweep_page,
    template,
)
from hpq_producer.page.sweep_data import SweepData, read_more
from hpq_producer.reports.logs import read_log
from hpq_producer.reports.show import artifact_lines, attempt_lines
from hpq_producer.reports.sweep_table import COLUMNS, read_sweeps
from hpq_producer.session import Session, reader_of
from hpq_producer.terminal.style import plain
from hpq_producer.terminal.text import clean, clean_block

_SWEEPS, _LOG_LINES = 200, 60
_KEPT_S = 300.0  # a sweep that no tab asks for stays in memory: a tab may come back
Page = Callable[[Request], Response]
_NO_TOKEN = """\
This page needs the token of this dashboard.
Open the link that `hpq dashboard` printed in its terminal; each start prints a new link.
"""
_LISTINGS = {"/": "All sweeps", "/workers": "Workers"}


class Dashboard:
    """The pages of one server, and what their tabs share.

    Starlette runs each page in a thread of its own, since no page is a coroutine.
    """

    def __init__(self, session: Session, host: str, token: str) -> None:
        self._session, self._reader, self._token = session, session.reader, token
        self._hosts = {"localhost", host, platform.node()}
        self._headers = {
            "Content-Security-Policy": live_policy(),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        self._lists = {"/": Listing(self._sweeps), "/workers": Listing(self._workers)}
        self._lock = threading.Lock()  # of the next
        self._live: dict[str, LiveSweep] = {}

    def app(self) -> Starlette:
        """Return the application; its routes answer GET and HEAD only."""
        pages = {
            "/": self._listing,
            "/workers": self._listing,
            "/sweep/{sid}": self._sweep,
            **dict.fromkeys(
                ("/changes", "/workers/changes", "/sweep/{sid}/changes"), self._changes
            ),
            "/trial/{sid}/{number:int}": self._trial,
            "/curves/{sid}": self._curves,
            "/plotly.js": self._plotly,
        }
        return Starlette(routes=[Route(path, self._guarded(page)) for path, page in pages.items()])

    def _guarded(self, page: Page) -> Page:
        """Return the page for requests of this host that know the token, if there is one."""

        def answer(request: Request) -> Response:
            try:
                response = self._refusal(request) or page(request)
            except (RedisError, HpqError) as error:
                status = 404 if isinstance(error, NotFound) else 503
                response = PlainTextResponse(f"{short_reason(error)}\n", status)
            for name, text in self._headers.items():
                response.headers.setdefault(name, text)
            return response

        return answer

    def _refusal(self, request: Request) -> Response | None:
        """Return why a request is refused, or the page that stores the token; else None."""
        try:
            host = urlsplit(f"//{request.headers.get('host', '')}")
            name, cookie = host.hostname or "", f"hpq-dashboard-{host.port or 80}"
        except ValueError:
            return PlainTextResponse("the Host header is malformed\n", 421)
        if name not in self._hosts and not _is_address(name):  # DNS rebinding
            return PlainTextResponse(f"this is not {name}\n", 421)
        given = request.query_params.get("token", "")
        if not self._token or _is_same(request.cookies.get(cookie, ""), self._token):
            return None
        if not _is_same(given, self._token):
            return PlainTextResponse(_NO_TOKEN, 403)
        # Not a redirect: after a link from another site, it would carry no strict cookie.
        there = Markup('<meta http-equiv="refresh" content="0;url={}">').format(request.url.path)
        page = HTMLResponse(there)
        page.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        return page

    def _listing(self, request: Request) -> Response:
        path, shown = request.url.path, self._lists[request.url.path]
        with shown.fresh():
            page = template("listing.html").render(
                title=_LISTINGS[path],
                path=path,
                style=Markup(asset("page.css")),
                script=Markup(page_script(is_live=True, is_list=True)),
                listing=Markup(shown.html),
            )
        return HTMLResponse(page)

    def _shared(self, sid: str) -> LiveSweep:
        """Return what the tabs of a sweep share; forget the sweeps that no tab asks for."""
        with self._lock:
            now = time.monotonic()
            self._live = {s: one for s, one in self._live.items() if now - one.asked_s < _KEPT_S}
            settings = self._session.settings
            new = LiveSweep(reader_of(self._session.redis, settings), sid, settings)
            live = self._live.setdefault(sid, new)
            live.asked_s = now
            return live

    def _data(self, request: Request) -> tuple[SweepData, StoreReader]:
        shared = self._shared(request.path_params["sid"])
        with shared.fresh():
            return shared.data, shared.reader

    def _changes(self, request: Request) -> Response:
        sid, path = request.path_params.get("sid"), request.url.path.removesuffix("/changes")
        shared = self._shared(sid) if sid else self._lists[path or "/"]
        found = shared.changes(request.query_params.get("since", ""))
        return Response(status_code=304) if found is None else JSONResponse(found)

    def _sweep(self, request: Request) -> Response:
        return HTMLResponse(sweep_page([self._data(request)[0]], is_live=True))

    def _curves(self, request: Request) -> Response:
        name = request.query_params.get("metric", "")
        data, reader = self._data(request)
        more = read_more(reader, data, [name])
        return JSONResponse(pack_curves(more[name]))

    def _trial(self, request: Request) -> Response:
        trial = TrialId(sweep=request.path_params["sid"], number=request.path_params["number"])
        _, reader = self._data(request)
        view = reader.trials.get(trial)
        attempts = attempts_of(reader.events.of_trial(trial), view)
        log, _ = read_log(reader, trial, _LOG_LINES)
        shown = part(
            "trial",
            "\n".join(map(plain, attempt_lines(attempts))),
            "\n".join(map(plain, artifact_lines(view))),
            clean_block(log.decode("utf-8", "replace")),
        )
        return HTMLResponse(shown)

    def _sweeps(self) -> str:
        found = read_sweeps(self._reader, _SWEEPS, self._session.server)
        rows = [(f"/sweep/{row[0].text}", [cell.text for cell in row]) for row in found.rows()]
        return part("listing", [c.title for c in COLUMNS], rows, "No sweep yet: hpq enqueue FILE")

    def _workers(self) -> str:
        rows = []
        for w in self._reader.workers.live():
            sid, _, number = w.trial.partition("/")
            cells = (w.trial or "none", w.state, w.name, w.host, w.queue, w.device)
            rows.append((f"/sweep/{sid}#{sid}/{number}" if sid else "", [clean(c) for c in cells]))
        columns = ["trial", "state", "worker", "host", "queue", "device"]
        return part("listing", columns, rows, "No worker is running: hpq worker")

    def _plotly(self, request: Request) -> Response:
        headers = {"Content-Encoding": "gzip", "Cache-Control": "max-age=86400"}
        return Response(plotly_gzip(), media_type="text/javascript", headers=headers)


def _is_same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def serve(session: Session, host: str, listener: socket.socket, token: str) -> None:
    """Serve until a signal; it may come while a page waits for Redis.

    uvicorn would wait for that page. Its threads are daemons, which the end of the process stops:
    a dashboard only reads, so nothing is lost.
    """
    app = Dashboard(session, host, token).app()
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    server = threading.Thread(target=uvicorn.Server(config).run, args=([listener],), daemon=True)
    server.start()
    server.join()
