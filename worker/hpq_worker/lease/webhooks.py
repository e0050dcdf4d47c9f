"""Send a notice when a sweep is held, stalled, near its budget or over, once; and scripts' alerts.

The URL is HPQ_NOTIFY, which never goes to Redis. A webhook gets JSON; Apprise sends the text to a
chat, a phone or a mailbox. A trial never waits for a notice: a thread sends it, and tries again
twice.
"""

from __future__ import annotations

import json
import logging
import math
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from importlib import import_module
from threading import Event
from typing import Any

from redis.exceptions import RedisError

from hpq.domain.status import event_ms
from hpq.domain.sweep import RunnableSweep, SweepState, SweepView
from hpq.domain.trial import TrialId
from hpq.errors import DecodeError, SettingsError
from hpq.extras import install_command
from hpq.redis.damage import damage
from hpq.sanitize import visible
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_worker.process.watchdog import CallThread

log = logging.getLogger("hpq.notices")
_REASON = 300  # characters of why
_WAITS_S = (1.0, 10.0, 0.0)  # after each try
TIMEOUT_S = 5.0
_NEWEST = 20  # sweeps that are checked beside the open ones
_STALLED_S = 600.0  # trials wait, and no worker of the queue runs any trial
_NEWS_S = 3600.0
_STALLED = "stalled"
_NEAR = "near its budget"
_EVENTS = {SweepState.HELD, SweepState.FINISHED, SweepState.CANCELLED, _STALLED, _NEAR}
Channel = Callable[[Mapping[str, Any]], None]


class Notices:
    """Sends a notice of each state that a sweep enters and the user should know.

    Of the workers of a queue with HPQ_NOTIFY, one looks every few seconds, and each at its exit.
    Redis keeps the state of the last notice. No notice is sent of an end that is older than
    `news_s`, since the first worker would report all sweeps that ended before it started.
    """

    def __init__(
        self,
        settings: Settings,
        reader: StoreReader,
        store: TrialStore,
        stalled_s: float = _STALLED_S,
        news_s: float = _NEWS_S,
    ) -> None:
        """Raises SettingsError if nothing can be sent to HPQ_NOTIFY."""
        self._settings = settings
        self._reader = reader
        self._store = store
        self._send: Channel | None = None
        if settings.notify:
            self._send = channel_to(settings.notify, TIMEOUT_S)
        self._stalled_ms = 1000 * stalled_s
        self._news_ms = 1000 * news_s
        self._unfinished: set[str] = set()  # sweeps of the last look, which may end since
        self._stop = Event()
        self._thread = CallThread("notices")

    def look(self, *, at_once: bool = False) -> None:
        """Send notices of changes if no worker has just looked, or `at_once`.

        Raises:
            RedisError: Redis does not answer.
        """
        queue = self._settings.queue
        # A worker that cannot send must not see a change before those that can.
        if self._send is None or not (at_once or self._store.take_look(queue)):
            return
        waiting = self._reader.sweeps.open_ids(queue)
        newest = self._reader.sweeps.ids(_NEWEST)
        found = self._reader.sweeps.get_each([*{*waiting, *newest, *self._unfinished}])
        sweeps = [s for s in found if isinstance(s, SweepView) and s.queue == queue]
        self._unfinished = {s.id for s in sweeps if not s.state.is_over}
        told, now_ms = self._store.noticed([s.id for s in sweeps])
        may_stall = any(map(_waits, sweeps)) and not any(s.counts.running for s in sweeps)
        ended = [s for s, before in zip(sweeps, told, strict=True) if _ended_since(s, before)]
        changed_ms = self._changed_ms(sweeps if may_stall else ended)
        is_stalled = may_stall and now_ms - max(changed_ms.values()) >= self._stalled_ms
        old = {s.id for s in ended if now_ms - changed_ms[s.id] > self._news_ms}
        for sweep, before in zip(sweeps, told, strict=True):
            if sweep.id in old:
                continue
            what = _what(sweep, is_stalled=is_stalled)
            try:
                self._tell_change(self._send, sweep, before, what)
            except RedisError as error:
                if not damage(error):
                    raise
                log.warning("no notice of sweep %s: %s", sweep.id, error)

    def _tell_change(self, send: Channel, sweep: SweepView, before: str, what: str) -> None:
        """Send a notice if a sweep's state is another one, and no other worker sends it."""
        if what == before:
            return
        if what in _EVENTS:
            if self._store.take_notice(sweep.id, what):
                self._thread.submit(partial(self._deliver, send, self._body(sweep, what)))
        elif before and not (before == _NEAR and _is_near(sweep)):  # resumed, or retried
            self._store.drop_notice(sweep.id)

    def _changed_ms(self, sweeps: Sequence[SweepView]) -> dict[str, int]:
        """Return the time of the newest event of each sweep, or of its creation, by its id."""
        last = self._reader.events.last_ids([sweep.id for sweep in sweeps])
        return {
            sweep.id: max(sweep.created_ms, event_ms(eid))
            for sweep, eid in zip(sweeps, last, strict=True)
        }

    def alert(self, sweep: RunnableSweep, trial: TrialId, text: str) -> None:
        """Send what the script of a trial here tells by `wandb.alert`."""
        if self._send is not None:
            self._thread.submit(partial(self._deliver, self._send, _alert(sweep, trial, text)))

    def close(self) -> None:
        """Wait a few seconds for notices that are being sent."""
        wait({self._thread.submit(lambda: None)}, TIMEOUT_S)
        self._stop.set()

    def _body(self, sweep: SweepView, what: str) -> dict[str, Any]:
        best = None
        with suppress(DecodeError):  # `hpq show` says so
            best = self._reader.sweeps.best_objective(sweep)
        why = sweep.why_held or (str(sweep.budget) if what == _NEAR else "")
        if what == _STALLED:
            why = f"trials wait, and no worker runs one; see hpq show {sweep.id}"
        return _notice(sweep, what, best, why)

    def _deliver(self, send: Channel, body: Mapping[str, Any]) -> None:
        """Send a notice, three times at most."""
        for wait_s in _WAITS_S:
            try:
                return send(body)
            except (OSError, ValueError, HTTPException) as error:
                # The error's text may quote the URL, which is a secret.
                log.warning("notice not sent: %s", type(error).__name__)
            if self._stop.wait(wait_s):
                break
        log.error("notice given up: %s", body["text"])


def _what(sweep: SweepView, *, is_stalled: bool) -> str:
    """Return the state that a notice would tell, or another one."""
    if is_stalled and _waits(sweep):
        return _STALLED
    if sweep.state is SweepState.RUNNING and _is_near(sweep):
        return _NEAR
    return sweep.state.value


def _ended_since(sweep: SweepView, before: str) -> bool:
    """Return whether a sweep is over, and its last notice did not say so."""
    return sweep.state.is_over and sweep.state.value != before


def _waits(sweep: SweepView) -> bool:
    return sweep.state is SweepState.RUNNING and bool(sweep.counts.waits)


def _is_near(sweep: SweepView) -> bool:
    return sweep.budget is not None and sweep.budget.is_near


def _notice(sweep: SweepView, event: str, best: float | None, why: str) -> dict[str, Any]:
    """Return the body of a notice; `best` is the best objective of the sweep."""
    counts = sweep.counts
    metric = sweep.metric
    done, planned = counts.progress
    of = done if counts.is_open_ended else int(planned)
    parts = [f"hpq: {sweep.id} is {event}", f"{counts.finished} of {of} finished"]
    parts += [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"best {metric.name} {best:.5g}"] if metric and best is not None else []
    reason = visible(why)[:_REASON]
    text = ", ".join(parts) + (f": {reason}" if reason else "")
    return {
        "text": _for_slack(text),
        "event": event,
        "sweep": sweep.id,
        "owner": sweep.owner,
        "trials": counts.total,
        "finished": counts.finished,
        "failed": counts.failed,
        "metric": metric.name if metric else None,
        "best": best if best is not None and math.isfinite(best) else None,  # JSON has no NaN
        "reason": reason,
    }


def _for_slack(text: str) -> str:
    """Return a text without links and mentions, which Slack reads in <…>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alert(sweep: RunnableSweep, trial: TrialId, said: str) -> dict[str, Any]:
    """Return the body of an alert of a trial's script."""
    reason = visible(said)[:_REASON]
    return {
        "text": _for_slack(f"hpq: {trial} alerts: {reason}"),
        "event": "alert",
        "sweep": sweep.id,
        "owner": sweep.owner,
        "trial": trial.number,
        "reason": reason,
    }


def channel_to(url: str, timeout_s: float) -> Channel:
    """Return the function that sends a notice to a URL.

    It raises OSError, ValueError or HTTPException if the notice was not sent.

    Raises:
        SettingsError: Apprise is not installed, or has no service for the URL.
    """
    if url.startswith(("http://", "https://")):
        return partial(_post, url, timeout_s)
    service = url.partition("://")[0]
    try:
        apprise = import_module("apprise")
    except ModuleNotFoundError:
        install = install_command("apprise")
        text = f"HPQ_NOTIFY: {service}:// needs apprise; run: {install}, or unset it"
        raise SettingsError(text, code="extra-missing") from None
    # Its log quotes URLs, which are secrets.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    services = apprise.Apprise()
    if not services.add(url):
        text = f"HPQ_NOTIFY: Apprise has no service for this {service}:// URL; see its list of URLs"
        raise SettingsError(text, code="setting-invalid")
    return partial(_notify, services)


def _notify(services: Any, body: Mapping[str, Any]) -> None:
    if not services.notify(body=body["text"]):
        raise OSError("not sent")


def _post(url: str, timeout_s: float, body: Mapping[str, Any]) -> None:
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with _OPENER.open(request, timeout=timeout_s):
        return


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would turn the POST into a GET, and go where it is sent."""

    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)
