"""Serve the dashboard: pages of sweeps and workers, and a stream of changes for each."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import platform
from collections.abc import AsyncIterator
from types import FrameType
from urllib.parse import urlsplit

import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hpq.domain.trial import TrialId
from hpq.errors import HpqError, NotFound
from hpq_producer.analysis.attempts import attempts_of
from hpq_producer.page.live import Hub, Message, Subscriber
from hpq_producer.page.render import (
    asset,
    environment,
    live_page,
    live_policy,
    live_script,
    plotly_gzip,
)
from hpq_producer.reports.logs import read_log
from hpq_producer.reports.show import artifact_lines, attempt_lines
from hpq_producer.reports.sweep_table import COLUMNS, read_sweeps
from hpq_producer.session import Session
from hpq_producer.terminal.style import plain
from hpq_producer.terminal.text import clean, clean_block

_SWEEPS, _LOG_LINES = 200, 60
_QUIET_S = 15.0  # between comments that keep a stream open
_COOKIE = "hpq-dashboard"
_LISTINGS = {"/": "All sweeps", "/workers": "Workers"}


class Dashboard:
    """The pages of one server, and the streams that keep them up to date."""

    def __init__(self, session: Session) -> None:
        self._session, self._reader = session, session.reader
        listings = {"/": self._sweeps, "/workers": self._workers}
        self.hub = Hub(session.reader, session.settings.python, listings)

    def app(self, host: str, token: str) -> ASGIApp:
        """Return the application, guarded by host and token."""
        routes = [
            *(Route(path, self._listing) for path in _LISTINGS),
            Route("/sweep/{sid}", self._sweep),
            Route("/trial/{sid}/{number:int}", self._trial),
            Route("/events", self._events),
            Route("/plotly.js", self._plotly),
        ]
        return Gate(Starlette(routes=routes, exception_handlers={HpqError: _refuse}), host, token)

    async def _listing(self, request: Request) -> Response:
        path = request.url.path
        shown = self._sweeps if path == "/" else self._workers
        page = environment().get_template("listing.html").render(
            title=_LISTINGS[path], live=path,
            style=Markup(asset("page.css")),
            script=Markup(live_script(is_list=True)), listing=Markup(await run_in_threadpool(shown)),
        )  # fmt: skip
        return HTMLResponse(page)

    async def _sweep(self, request: Request) -> Response:
        sid = request.path_params["sid"]
        live = await run_in_threadpool(self.hub.sweep, sid)
        return HTMLResponse(await run_in_threadpool(live_page, live.data))

    async def _trial(self, request: Request) -> Response:
        trial = TrialId(sweep=request.path_params["sid"], number=request.path_params["number"])
        return HTMLResponse(await run_in_threadpool(self._trial_part, trial))

    def _trial_part(self, trial: TrialId) -> str:
        view = self._reader.trials.get(trial)
        attempts = attempts_of(self._reader.events.of_trial(trial), view)
        log, _ = read_log(self._reader, trial, _LOG_LINES)
        return _part(
            "trial",
            "\n".join(map(plain, attempt_lines(attempts))),
            "\n".join(map(plain, artifact_lines(view))),
            clean_block(log.decode("utf-8", "replace")),
        )

    def _sweeps(self) -> str:
        found = read_sweeps(self._reader, _SWEEPS, in_cluster=False)
        rows = [(f"/sweep/{row[0].text}", [cell.text for cell in row]) for row in found.rows()]
        return _part("listing", [c.title for c in COLUMNS], rows, "No sweep yet: hpq enqueue FILE")

    def _workers(self) -> str:
        rows = []
        for w in self._reader.workers.live():
            sid, _, number = w.trial.partition("/")
            cells = (w.trial or "none", w.state, w.name, w.host, w.worker_class, w.device)
            rows.append((f"/sweep/{sid}#{sid}/{number}" if sid else "", [clean(c) for c in cells]))
        columns = ["trial", "state", "worker", "host", "class", "device"]
        return _part("listing", columns, rows, "No worker is running: hpq worker")

    async def _plotly(self, request: Request) -> Response:
        headers = {"Content-Encoding": "gzip", "Cache-Control": "max-age=86400"}
        return Response(plotly_gzip(), media_type="text/javascript", headers=headers)

    async def _events(self, request: Request) -> Response:
        topic = request.query_params.get("topic", "")
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        if topic not in _LISTINGS and not await run_in_threadpool(
            self._reader.sweeps.exists, topic
        ):
            raise NotFound(f"no sweep {topic!r}", code="sweep-not-found")
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
        finally:
            self.hub.unsubscribe(subscriber)


def _event(message: Message) -> str:
    name, eid, data = message
    text = " ".join(data.splitlines())  # JSON has no line ends; an error's text may
    return (f"id: {eid}\n" if eid else "") + f"event: {name}\ndata: {text}\n\n"


def _part(name: str, *values: object) -> str:
    return str(getattr(environment().get_template("parts.html").module, name)(*values))


def _refuse(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 404 if isinstance(error, NotFound) else 503)


class Gate:
    """Let in GET requests for this host that know the token, if there is one."""

    def __init__(self, app: ASGIApp, host: str, token: str) -> None:
        self._app, self._token, self._policy = app, token, live_policy()
        self._hosts = {"localhost", host, platform.node()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        answer = self._answer(Request(scope))
        if answer is not None:
            return await answer(scope, receive, send)

        async def guarded(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                more = {
                    "content-security-policy": self._policy,
                    "x-content-type-options": "nosniff",
                    "referrer-policy": "no-referrer",
                }
                names = {name for name, _ in message["headers"]}  # type: ignore[attr-defined]
                more |= {} if b"cache-control" in names else {"cache-control": "no-store"}
                pairs = [(name.encode(), value.encode()) for name, value in more.items()]
                message["headers"] = [*message["headers"], *pairs]  # type: ignore[misc]
            await send(message)

        await self._app(scope, receive, guarded)  # type: ignore[arg-type]

    def _answer(self, request: Request) -> Response | None:
        """Return why a request is refused, or the page that stores the token; else None."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("the dashboard only shows\n", 405)
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if name not in self._hosts and not _is_address(name):  # DNS rebinding
            return PlainTextResponse(f"this is not {name}\n", 421)
        if not self._token:
            return None
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), self._token.encode()):
            # Not a redirect: after a link from another site, one would carry no strict cookie.
            there = Markup('<meta http-equiv="refresh" content="0;url={}">').format(
                request.url.path
            )
            page = HTMLResponse(there)
            page.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
            return page
        known = request.cookies.get(_COOKIE, "")
        if hmac.compare_digest(known.encode(), self._token.encode()):
            return None
        return PlainTextResponse("open the address that hpq dashboard printed\n", 403)


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
        super().handle_exit(sig, frame)


def serve(session: Session, host: str, port: int, token: str) -> None:
    """Serve until a signal."""
    dashboard = Dashboard(session)
    app = dashboard.app(host, token)
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, lifespan="off",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    _Server(config, dashboard.hub).run()
