"""Serve the dashboard: pages of sweeps and workers, and a stream of changes for each."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import platform
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from types import FrameType
from urllib.parse import urlsplit

import uvicorn
from markupsafe import Markup
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from hpq.connection.client import short_reason
from hpq.domain.trial import TrialId
from hpq.errors import HpqError, NotFound
from hpq_producer.analysis.attempts import attempts_of
from hpq_producer.page.curves import pack_curves
from hpq_producer.page.live import Hub, Message, Subscriber
from hpq_producer.page.render import (
    asset,
    live_policy,
    page_script,
    part,
    plotly_gzip,
    sweep_page,
    template,
)
from hpq_producer.page.sweep_data import read_more
from hpq_producer.reports.logs import read_log
from hpq_producer.reports.show import artifact_lines, attempt_lines
from hpq_producer.reports.sweep_table import COLUMNS, read_sweeps
from hpq_producer.session import Session
from hpq_producer.terminal.style import plain
from hpq_producer.terminal.text import clean, clean_block

_SWEEPS, _LOG_LINES = 200, 60
_QUIET_S = 15.0  # between comments that keep a stream open
_LAST_S = 0.8  # from a signal to the end: a call of Redis may hang, and nothing is lost
Page = Callable[[Request], Awaitable[Response]]
_NO_TOKEN = """\
This page needs the token of this dashboard.
Open the link that `hpq dashboard` printed in its terminal; each start prints a new link.
"""
_LISTINGS = {"/": "All sweeps", "/workers": "Workers"}


class Dashboard:
    """The pages of one server, and the streams that keep them up to date."""

    def __init__(self, session: Session, host: str, token: str) -> None:
        self._reader, self._server, self._token = session.reader, session.server, token
        self._hosts = {"localhost", host, platform.node()}
        self._headers = {
            "Content-Security-Policy": live_policy(),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        self._lists = {"/": self._sweeps, "/workers": self._workers}
        self.hub = Hub(session.reader, session.settings, self._lists)

    def app(self) -> Starlette:
        """Return the application; its routes answer GET and HEAD only."""
        pages = {
            **dict.fromkeys(_LISTINGS, self._listing),
            "/sweep/{sid}": self._sweep,
            "/trial/{sid}/{number:int}": self._trial,
            "/curves/{sid}": self._curves,
            "/events": self._events,
            "/plotly.js": self._plotly,
        }
        return Starlette(routes=[Route(path, self._guarded(page)) for path, page in pages.items()])

    def _guarded(self, page: Page) -> Page:
        """Return the page for requests of this host that know the token, if there is one."""

        async def answer(request: Request) -> Response:
            try:
                response = self._refusal(request) or await page(request)
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

    async def _listing(self, request: Request) -> Response:
        path = request.url.path
        page = template("listing.html").render(
            title=_LISTINGS[path],
            live=path,
            style=Markup(asset("page.css")),
            script=Markup(page_script(is_live=True, is_list=True)),
            listing=Markup(await run_in_threadpool(self._lists[path])),
        )
        return HTMLResponse(page)

    async def _sweep(self, request: Request) -> Response:
        live = await run_in_threadpool(self.hub.sweep, request.path_params["sid"])
        return HTMLResponse(await run_in_threadpool(sweep_page, [live.data], is_live=True))

    async def _trial(self, request: Request) -> Response:
        trial = TrialId(sweep=request.path_params["sid"], number=request.path_params["number"])
        return HTMLResponse(await run_in_threadpool(self._trial_part, trial))

    async def _curves(self, request: Request) -> Response:
        name = request.query_params.get("metric", "")
        live = await run_in_threadpool(self.hub.sweep, request.path_params["sid"])
        more = await run_in_threadpool(read_more, self._reader, live.data, [name])
        return JSONResponse(await run_in_threadpool(pack_curves, more[name]))

    def _trial_part(self, trial: TrialId) -> str:
        view = self._reader.trials.get(trial)
        attempts = attempts_of(self._reader.events.of_trial(trial), view)
        log, _ = read_log(self._reader, trial, _LOG_LINES)
        return part(
            "trial",
            "\n".join(map(plain, attempt_lines(attempts))),
            "\n".join(map(plain, artifact_lines(view))),
            clean_block(log.decode("utf-8", "replace")),
        )

    def _sweeps(self) -> str:
        found = read_sweeps(self._reader, _SWEEPS, self._server)
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

    async def _plotly(self, request: Request) -> Response:
        headers = {"Content-Encoding": "gzip", "Cache-Control": "max-age=86400"}
        return Response(plotly_gzip(), media_type="text/javascript", headers=headers)

    async def _events(self, request: Request) -> Response:
        topic = request.query_params.get("topic", "")
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        subscriber = Subscriber(topic, asyncio.get_running_loop())
        headers = {"X-Accel-Buffering": "no"}
        stream = self._stream(subscriber, after)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _stream(self, subscriber: Subscriber, after: str) -> AsyncIterator[str]:
        yield "retry: 1000\n\n"
        try:
            await run_in_threadpool(self.hub.subscribe, subscriber, after)
            while True:
                try:
                    message = await asyncio.wait_for(subscriber.queue.get(), _QUIET_S)
                except TimeoutError:
                    yield ": quiet\n\n"
                    continue
                if message is None:
                    return
                yield _event(message)
        except NotFound:
            yield _event(("gone", "", ""))
        except (RedisError, HpqError) as error:  # the browser comes back
            yield _event(("away", "", short_reason(error)))
        finally:
            self.hub.unsubscribe(subscriber)


def _event(message: Message) -> str:
    name, eid, data = message
    text = " ".join(data.splitlines())  # JSON has no line ends; an error's text may
    return (f"id: {eid}\n" if eid else "") + f"event: {name}\ndata: {text}\n\n"


def _is_same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Server(uvicorn.Server):
    """End the streams at the first signal: uvicorn waits for open responses."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hub.close()
        last = threading.Timer(_LAST_S, os._exit, (128 + sig,))
        last.daemon = True
        last.start()
        super().handle_exit(sig, frame)


def serve(session: Session, host: str, listener: socket.socket, token: str) -> None:
    """Serve until a signal."""
    dashboard = Dashboard(session, host, token)
    config = uvicorn.Config(dashboard.app(), log_level="warning", access_log=False, lifespan="off")
    _Server(config, dashboard.hub).run([listener])
