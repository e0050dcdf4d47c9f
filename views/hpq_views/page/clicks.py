"""Change a sweep at a click in the dashboard, by the code and the rules of the commands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.errors import Forbidden, HpqError, UserError

Ask = Callable[[str], None]


class Change(Protocol):
    """Do what a verb names, as its command; `words` are trials or KEY=VALUE."""

    def __call__(
        self, sweep: SweepView, verb: str, words: Sequence[str], *, ask: Ask, force: bool
    ) -> str:
        """Return what was done, for the user."""


class Actions:
    """What a click may change, which is what this user's commands may; or why it may not."""

    def __init__(self, session: Session, change: Change, refusal: HpqError | None) -> None:
        self._session, self._change = session, change
        self.refusal = refusal
        self._lock = threading.Lock()  # one change at a time

    @property
    def access(self) -> str:
        """What the pages say of it."""
        return str(self.refusal or f"acts as {self._session.settings.user}")

    def answer(self, request: Request) -> JSONResponse:
        """Do what a page asks. Raises as the command does.

        A command that would ask fails with `confirmation-missing` and its question, and a sweep of
        another user with `sweep-of-another`; the page asks, and sends `yes` or `force`.
        """
        with self._lock:
            return JSONResponse({"message": self._act(request)})

    def _act(self, request: Request) -> str:
        _check_origin(request)
        if self.refusal:
            raise self.refusal
        asked = request.query_params
        # The sweep that the page shows: the beginning of an id may by now name another one.
        sweep = self._session.reader.sweeps.get(request.path_params["sid"])
        return self._change(
            sweep,
            asked.get("verb", ""),
            asked.getlist("word"),
            ask=_asking("yes" in asked),
            force="force" in asked,
        )


def _asking(yes: bool) -> Ask:
    def ask(question: str) -> None:
        if not yes:
            raise UserError(question, code="confirmation-missing")

    return ask


def _check_origin(request: Request) -> None:
    """Raise Forbidden unless a page of this dashboard sent the request: browsers name its origin.

    A cookie is not enough, since the browser also sends it for pages of other ports of this host.
    """
    if request.headers.get("origin") != f"{request.url.scheme}://{request.headers['host']}":
        raise Forbidden("only a page of this dashboard may change a sweep")
