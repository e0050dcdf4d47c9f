"""A port of this machine that nobody else is given while an attempt runs: its MASTER_PORT."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESS = "127.0.0.1"


@contextmanager
def reserved() -> Iterator[int]:
    """The number of a free port.

    Bound but not listened on: the kernel gives it to nobody who asks for any port, neither to
    another worker nor to a connection that goes out, while whoever names it, with SO_REUSEADDR as
    torch's store does, may listen there.

    Raises:
        OSError: there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((ADDRESS, 0))
        yield int(held.getsockname()[1])
