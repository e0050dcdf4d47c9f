"""Serve the dashboard: pages of sweeps and workers, and what changed of each."""

from __future__ import annotations

import hmac
import ipaddress
import platform
import posixpath
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import IO, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import uvicorn
from markupsafe import Markup
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from hpq.access.session import Session
from hpq.domain.durations import clock, iso
from hpq.domain.status import UnreadableSweep
from hpq.domain.sweep import Counts
from hpq.domain.trial import TrialId
from hpq.errors import Forbidden, HpqError, NotFound, UserError
from hpq.redis.client import explain, short_reason
from hpq_views.command_output.logs import read_log
from hpq_views.command_output.sweep_table import COLUMNS, read_sweeps
from hpq_views.page.clicks import Actions
from hpq_views.page.compress import compressed
from hpq_views.page.curve_reads import read_more
from hpq_views.page.curves import pack_curves, points_of
from hpq_views.page.live import Listing, LiveSweep, Polled
from hpq_views.page.render import (
    SHARED,
    live_policy,
    part,
    shared_file,
    sweep_page,
    template,
)
from hpq_views.page.sweep_data import SweepData
from hpq_views.page.trial_data import PICTURES
from hpq_views.page.trial_page import TrialPage
from hpq_views.page.trial_table import encode_table
from hpq_views.stored_files import holder_of, open_stored
from hpq_views.text.text import clean, clean_block

_SWEEPS = 200  # at most in a list
_CHOSEN = 100  # trials at most whose curves a page may ask for beside the sample
_BAR = Markup('<span class="bar" title="{} ended"><i style="width:{:.0%}"></i></span>{}')
_CHUNK_BYTES = 1 << 20
_NBSP = "\N{NO-BREAK SPACE}"
_KEPT_S = 300.0  # a page that no tab asks for stays in memory: a tab may come back
_TIME = Markup('<time datetime="{}">{}</time>')
_NO_TOKEN = (
    "this page needs the token of this dashboard; open the link that `hpq dashboard` printed in its"
    " terminal (each start without --token-file prints a new link)"
)
_TRIAL = "/sweep/{sid}/{number}"
_NUMBER = re.compile("[1-9][0-9]{0,14}")
_Key = TypeVar("_Key")
_Shared = TypeVar("_Shared", bound=Polled)
_LISTINGS = {"/": "All sweeps", "/workers": "Workers"}


class Dashboard:
    """The pages of one server, and what their tabs share.

    Starlette runs each page in a thread of its own, since no page is a coroutine.
    """

    def __init__(
        self, session: Session, hosts: Collection[str], token: str, actions: Actions
    ) -> None:
        self._session = session
        self._reader = session.reader
        self._token = token
        self._actions = actions
        names = ("localhost", *hosts, platform.node(), socket.getfqdn())
        self._hosts = {name.lower() for name in names}
        self._headers = {
            "Content-Security-Policy": live_policy(),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        self._lists = {"/": Listing(self._sweeps), "/workers": Listing(self._workers)}
        self._lock = threading.Lock()  # of the next
        self._live: dict[str, LiveSweep] = {}
        self._trials: dict[TrialId, TrialPage] = {}

    def app(self) -> Starlette:
        """Return the application; all of its routes but one answer GET and HEAD only."""
        pages = {
            **{
                f"{page}/changes": self._changes
                for page in ("", "/workers", "/sweep/{sid}", _TRIAL)
            },
            "/": self._listing,
            "/workers": self._listing,
            "/sweep/{sid}": self._sweep,
            _TRIAL: self._trial,
            f"{_TRIAL}/log": self._log,
            "/curves/{sid}": self._curves,
            "/table/{sid}": self._table,
        }
        others: dict[str, Callable[[Request], Response]] = {
            f"{_TRIAL}/file/{{name:path}}": self._file,
            **{f"/{name}": partial(_shared_file, name) for name in SHARED},
            "/livez": lambda _: PlainTextResponse("ok\n"),
        }
        routes = {path: partial(compressed, page) for path, page in pages.items()} | others
        act = Route("/sweep/{sid}/act", self._actions.answer, methods=["POST"])
        return Starlette(
            routes=[act, *(Route(path, page) for path, page in routes.items())],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._checked)],
            exception_handlers={RedisError: self._failure, HpqError: self._failure},
        )

    async def _checked(self, request: Request, answer: RequestResponseEndpoint) -> Response:
        """Answer requests of this host that know the token, if there is one."""
        response = self._refusal(request)
        if response is None:
            response = await answer(request)
            if self._token and "token" in request.query_params:
                # The page itself, not a redirect: after a link from another site, that would carry
                # no strict cookie. The page removes the token from the address.
                name = _cookie_of(_asked_host(request))
                response.set_cookie(name, self._token, httponly=True, samesite="strict")
        for name, text in self._headers.items():
            response.headers.setdefault(name, text)
        return response

    def _failure(self, request: Request, error: Exception) -> Response:
        """Return the error of a page as text, that of a click as JSON with its id."""
        text = short_reason(error)
        if isinstance(error, RedisError):
            error = explain(error, self._session.url)
        kinds = {NotFound: 404, Forbidden: 403, UserError: 409}
        status = next((kinds[kind] for kind in kinds if isinstance(error, kind)), 503)
        if request.method == "POST" and isinstance(error, HpqError):
            return JSONResponse(error.record(), status)
        return PlainTextResponse(f"{text}\n", status)

    def _refusal(self, request: Request) -> Response | None:
        """Return why a request is refused; None: it is not."""

        def refused(text: str, status: int) -> Response:
            answer = self._failure(request, Forbidden(text))
            answer.status_code = status
            return answer

        try:
            host = _asked_host(request)
        except ValueError:
            return refused("the Host header is malformed", 421)
        name = host.hostname or ""
        if name not in self._hosts and not _is_address(name):  # DNS rebinding
            then = f"open the link that it printed, or run: hpq dashboard --allow-host {name}"
            return refused(f"this dashboard is not {name}; {then}", 421)
        given = [request.cookies.get(_cookie_of(host), "")]
        if request.method != "POST":  # a link changes nothing
            given.append(request.query_params.get("token", ""))
        if self._token and not any(_is_same(one, self._token) for one in given):
            return refused(_NO_TOKEN, 403)
        return None

    def _listing(self, request: Request) -> Response:
        path = request.url.path
        return self._page("listing", request, self._lists[path], _LISTINGS[path])

    def _trial(self, request: Request) -> Response:
        trial = _trial_of(request)
        return self._page("trial", request, self._trial_page(trial), trial)

    def _page(self, kind: str, request: Request, shown: Listing, title: object) -> Response:
        with shown.fresh():
            page = template(f"{kind}.html").render(
                title=title,
                path=request.url.path,
                access=self._actions.access,
                kind=kind,
                listing=Markup(shown.html),
            )
        return HTMLResponse(page)

    def _kept(self, pages: dict[_Key, _Shared], key: _Key, new: Callable[[], _Shared]) -> _Shared:
        """Return what the tabs of a page share; forget the pages that no tab asks for."""
        with self._lock:
            now = time.monotonic()
            for old in [k for k, one in pages.items() if now - one.asked_s >= _KEPT_S]:
                del pages[old]
            shared = pages[key] = pages.get(key) or new()
            shared.asked_s = now
            return shared

    def _trial_page(self, trial: TrialId) -> TrialPage:
        acts = not self._actions.refusal
        return self._kept(
            self._trials,
            trial,
            lambda: TrialPage(
                self._session, trial, lambda: self._data(trial.sweep).front, acts=acts
            ),
        )

    def _shared(self, sid: str) -> LiveSweep:
        settings, acts = self._session.settings, not self._actions.refusal
        return self._kept(
            self._live, sid, lambda: LiveSweep(self._reader, sid, settings, acts=acts)
        )

    def _data(self, sid: str) -> SweepData:
        shared = self._shared(sid)
        with shared.fresh():
            return shared.data

    def _changes(self, request: Request) -> Response:
        known, path = request.path_params, request.url.path.removesuffix("/changes")
        shared: Polled = (
            self._trial_page(_trial_of(request))
            if "number" in known
            else self._shared(known["sid"])
            if known
            else self._lists[path or "/"]
        )
        found = shared.changes(request.query_params.get("since", ""))
        return Response(status_code=304) if found is None else JSONResponse(found)

    def _sweep(self, request: Request) -> Response:
        """Show a sweep, or several: `/sweep/A+B`."""
        sids = request.path_params["sid"]
        ids = dict.fromkeys(filter(None, sids.split("+"))) or [sids]
        shown, access = [self._data(sid) for sid in ids], self._actions.access
        return HTMLResponse(sweep_page(shown, access=access, acts=not self._actions.refusal))

    def _curves(self, request: Request) -> Response:
        """Answer the curves of a `metric`: of all trials or a sample, and of each `trial`."""
        asked, data = request.query_params, self._data(request.path_params["sid"])
        name, chosen = asked.get("metric", ""), {*asked.getlist("trial")[:_CHOSEN]}
        drawn = {trial.id.number: trial for trial in data.drawn}
        drawn |= {t.id.number: t for t in data.trials if str(t.id.number) in chosen}
        more = read_more(self._reader, data.sweep, [*drawn.values()], [name])
        return JSONResponse(pack_curves(more[name], points=points_of(len(more[name]))))

    def _table(self, request: Request) -> Response:
        """Answer which trials match `where`, and the last values of each `metric`."""
        asked, data = request.query_params, self._data(request.path_params["sid"])
        where, metrics = asked.get("where", ""), asked.getlist("metric")
        return JSONResponse(encode_table(data.standings, data.trials, where, metrics))

    def _log(self, request: Request) -> Response:
        trial = _trial_of(request)
        # Raises NotFound for a trial that is not there.
        log, _ = read_log(self._reader, self._reader.trials.get(trial).trained)
        return PlainTextResponse(clean_block(log.decode("utf-8", "replace")))

    def _file(self, request: Request) -> Response:
        """Send a file of a trial: a picture to show, any other as bytes to save."""
        trial, name = _trial_of(request), request.path_params["name"]
        holder = holder_of(self._reader, self._reader.trials.get(trial))
        file, base = open_stored(self._session, holder, name), posixpath.basename(name)
        kind = PICTURES.get(posixpath.splitext(base)[1].lower())
        headers = {}
        if kind is None:
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(base, safe='')}"
        kind = kind or "application/octet-stream"
        return StreamingResponse(_chunks(file), media_type=kind, headers=headers)

    def _sweeps(self) -> str:
        found = read_sweeps(self._reader, _SWEEPS, self._session)
        columns, rows = [c.title for c in COLUMNS], []
        age, ended, other = (columns.index(name) for name in ("age", "ended", "other"))
        for sweep, row in zip(found.sweeps, found.rows(), strict=True):
            cells = [cell.text for cell in row]
            note = ""
            if isinstance(sweep, UnreadableSweep):
                cells[other] = clean(str(sweep.notice))
            else:
                cells[age] = _TIME.format(iso(sweep.created_ms), clock(sweep.created_ms))
                cells[ended] = _progress(sweep.counts, cells[ended])
                # A narrow column breaks between states, not between a number and its state.
                cells[other] = cells[other].replace(" ", _NBSP).replace(f",{_NBSP}", ", ")
                note = clean(sweep.note)
            rows.append((f"/sweep/{sweep.id}", cells, note))
        columns[age] = "created"  # an age would change the list each second
        blank = [i for i in range(len(columns)) if not any(cells[i] for _, cells, _ in rows)]
        for i in reversed(blank):
            for cells in (columns, *(cells for _, cells, _ in rows)):
                del cells[i]
        is_cut = len(rows) == _SWEEPS
        more = f"The newest {_SWEEPS} sweeps; hpq ls --all lists all." if is_cut else ""
        return part("listing", columns, rows, "No sweep yet: hpq enqueue FILE", True, more)

    def _workers(self) -> str:
        rows = []
        for w in self._reader.workers.live():
            trial = str(w.notice) if w.unreadable else w.trial or "none"
            cells = (trial, w.state, w.name, w.host, w.queue, w.device)
            rows.append((f"/sweep/{w.trial}" if w.trial else "", [clean(c) for c in cells], ""))
        columns = ["trial", "state", "worker", "host", "queue", "device"]
        return part("listing", columns, rows, "No worker is running: hpq worker", False, "")


def _shared_file(name: str, _: Request) -> Response:
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    headers = {"Content-Encoding": "gzip", "Cache-Control": "max-age=86400"}
    return Response(shared_file(name), media_type=kind, headers=headers)


def _asked_host(request: Request) -> SplitResult:
    """Return name and port of the Host header.

    Raises:
        ValueError: it is malformed.
    """
    host = urlsplit(f"//{request.headers.get('host', '')}")
    _ = host.port  # raises if it is above 65535
    return host


def _cookie_of(host: SplitResult) -> str:
    """Return the name of the cookie: a browser sends the cookies of all ports of a host."""
    return f"hpq-dashboard-{host.port or 80}"


def _progress(counts: Counts, text: str) -> str:
    """Return a bar of what the text says; without an end, the text alone."""
    done, of = counts.progress
    if counts.is_open_ended or not of:
        return text
    return _BAR.format(f"{done:,}", done / of, text)


def _trial_of(request: Request) -> TrialId:
    sid, number = request.path_params["sid"], request.path_params["number"]
    if not _NUMBER.fullmatch(number):
        raise NotFound(f"{sid} has no trial {number[:20]}", code="trial-not-found")
    return TrialId(sweep=sid, number=int(number))


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        yield from iter(partial(file.read, _CHUNK_BYTES), b"")


def _is_same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def serve(
    session: Session,
    hosts: Collection[str],
    listener: socket.socket,
    token: str,
    actions: Actions,
) -> None:
    """Serve until a signal; `hosts` are names of this server beside the machine's.

    A signal may come while a page waits for Redis, and uvicorn would wait for that page. Its
    threads are daemons, which the end of the process stops: most only read, and a change is one
    script of Redis, or its next call or the reaper ends it.
    """
    app = Dashboard(session, hosts, token, actions).app()
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    server = threading.Thread(target=uvicorn.Server(config).run, args=([listener],), daemon=True)
    server.start()
    server.join()
