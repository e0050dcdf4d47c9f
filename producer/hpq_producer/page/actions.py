"""Change a sweep at a click in the dashboard, by the code and the rules of the commands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse

from hpq.connection.client import guard
from hpq.domain.sweep import SweepView
from hpq.errors import Forbidden, HpqError, UserError
from hpq_producer.actions import control
from hpq_producer.actions.set_limits import limits, set_limits
from hpq_producer.session import Session
from hpq_producer.targets import check_owner, parse_targets

_Act = Callable[[Session, SweepView, Sequence[str], control.Ask], str]
_NO_OPTION = "read-only: started without --allow-actions"


def _on_trials(
    act: Callable[[Session, SweepView, Sequence[int], control.Ask], str],
) -> _Act:
    return lambda session, sweep, words, ask: act(
        session, sweep, parse_targets([sweep.id, *words])[1], ask
    )


_VERBS: Mapping[str, _Act] = {
    "pause": lambda session, sweep, _, ask: control.pause(session, sweep),
    "resume": lambda session, sweep, _, ask: control.resume(session, sweep),
    "stop": lambda session, sweep, _, ask: control.stop(session, sweep, ask),
    "cancel": _on_trials(lambda *these: control.cancel(*these)[1]),
    "retry": _on_trials(lambda *these: control.retry(*these)[1]),
    "set": lambda session, sweep, words, _: set_limits(session, sweep, limits(words)),
}


class Actions:
    """What a click may change, which is what this user's commands may; or why it may not."""

    def __init__(self, session: Session, *, allowed: bool) -> None:
        """Ask Redis whether this user may write, if actions are allowed at all."""
        self._session = session
        self._lock = threading.Lock()  # HPQ_HOME keeps the mark of one change at a time
        self.refusal: HpqError | None = None if allowed else Forbidden(_NO_OPTION)
        if allowed:
            try:
                with guard(session.url):
                    control.refuse_readers(session)
            except Forbidden as error:
                self.refusal = Forbidden(f"read-only: {error}", code=error.code)

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
        act = _VERBS.get(asked.get("verb", ""))
        if act is None:
            raise UserError(f"no such action; use one of {', '.join(_VERBS)}")
        # The sweep that the page shows: the beginning of an id may by now name another one.
        sweep = self._session.reader.sweeps.get(request.path_params["sid"])
        check_owner(self._session, sweep, "force" in asked)
        return act(self._session, sweep, asked.getlist("word"), _asking("yes" in asked))


def _asking(yes: bool) -> control.Ask:
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
