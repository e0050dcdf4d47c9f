"""Post what happened to a sweep to a webhook, as JSON that Slack accepts."""

from __future__ import annotations

import html
import json
import logging
import math
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from hpq.domain.sweep import SweepView
from hpq.sanitize import visible

log = logging.getLogger("hpq.notices")
_REASON = 300  # characters of why
_WAITS_S = (1.0, 10.0)  # before the second try and the third
TIMEOUT_S = 5.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would turn the POST into a GET, and go where it is sent."""

    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def notice(sweep: SweepView, event: str, best: float | None, why: str) -> dict[str, Any]:
    """Return the body of a notice; `best` is the best objective of the sweep."""
    counts, metric = sweep.counts, sweep.metric
    parts = [f"hpq: {sweep.id} is {event}", f"{counts.finished} of {counts.total} finished"]
    parts += [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"best {metric.name} {best:.5g}"] if metric and best is not None else []
    reason = visible(why)[:_REASON]
    text = ", ".join(parts) + (f": {reason}" if reason else "")
    return {
        "text": html.escape(text, quote=False),  # Slack reads <…> as links and mentions
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


def post(url: str, body: dict[str, Any], gives_up: Callable[[float], object]) -> bool:
    """Post a notice, three times at most; False if it was not accepted.

    `gives_up` waits for these seconds before the next try, and is true if none should follow.
    """
    head, data = {"Content-Type": "application/json"}, json.dumps(body).encode()
    for wait_s in (*_WAITS_S, None):
        try:
            request = urllib.request.Request(url, data, head)
            with _OPENER.open(request, timeout=TIMEOUT_S):
                return True
        except (OSError, ValueError, HTTPException) as error:
            # The error's text may quote the URL, which is a secret.
            log.warning("notice not sent: %s", type(error).__name__)
        if wait_s is None or gives_up(wait_s):
            break
    return False
