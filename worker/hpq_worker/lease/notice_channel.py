"""Send a notice to a URL: JSON to a webhook, or by Apprise to a chat, a phone or a mailbox."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from hpq.errors import SettingsError

Channel = Callable[[Mapping[str, Any]], None]


def channel(url: str, timeout_s: float) -> Channel:
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
        text = f"HPQ_NOTIFY: {service}:// needs apprise; `pip install 'hpq[notify]'`, or unset it"
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
