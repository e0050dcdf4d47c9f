"""Open the session of a call: the server that the commands would use at that moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpq.access.session import Session, open_session
from hpq.private_server.attach import Attached
from hpq.private_server.keeper import QUIET_S

_attached: dict[Path, Attached] = {}  # the private servers that this process keeps running


@contextmanager
def api_session(sid: str | None = None) -> Iterator[Session]:
    """Open a session for one call; `sid` is the sweep that the call reads.

    The first call on a private server keeps it running until this process ends.

    Raises:
        SettingsError, OutOfReach, Forbidden: as `open_session`.
        NotFound: the sweep was removed.
    """
    with open_session() as session:
        if sid:
            session.find(sid)
        server = session.attached
        if server is None or _attached.setdefault(server.home.path, server) is server:
            yield session
            return
        try:
            yield session
        finally:
            server.release(linger_s=QUIET_S)
