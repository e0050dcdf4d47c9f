"""Open the session of a call: the server that the commands would use at that moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from hpq.errors import UserError
from hpq_producer.embedded_redis.attach import Attached
from hpq_producer.embedded_redis.keeper import QUIET_S
from hpq_producer.session import Session, open_session

_attached: dict[Path, Attached] = {}  # the private servers that this process keeps running


@contextmanager
def api_session() -> Iterator[Session]:
    """Open a session for one call.

    The first call on a private server keeps it running until this process ends.

    Raises:
        SettingsError, OutOfReach, Forbidden: as `open_session`.
    """
    with open_session() as session, closing(session.redis):
        server = session.attached
        if server is None or _attached.setdefault(server.home.path, server) is server:
            yield session
            return
        try:
            yield session
        finally:
            server.release(linger_s=QUIET_S)


def library(name: str, what: str) -> Any:
    """Import a library of the extra `report`.

    Raises:
        UserError: the library is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        lacking = (error.name or name).partition(".")[0]
        text = (
            f"{what} needs {lacking}, which {sys.executable} lacks; run:"
            f' {sys.executable} -m pip install "hpq[report]"'
        )
        raise UserError(text, code="extra-missing") from None
