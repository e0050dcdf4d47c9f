"""Count the round trips of this process to Redis: what each costs far from the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from redis.connection import AbstractConnection


@dataclass(slots=True)
class Trips:
    """What was sent: `count` includes the connects; `connects` are those alone."""

    count: int = 0
    connects: int = 0
    is_asking: bool = False  # something was sent, and no reply was read since

    def ask(self) -> None:
        self.is_asking = True

    def read(self) -> None:
        self.count += self.is_asking
        self.is_asking = False


@contextmanager
def counted() -> Iterator[Trips]:
    """Count a round trip for each connect, and for each reply that follows a request.

    A pipeline is one: its replies follow each other.
    """
    trips = Trips()
    connect = AbstractConnection.connect_check_health
    send, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

    def connecting(link: Any, *args: Any, **options: Any) -> Any:
        if not link.is_connected:
            trips.count += 1
            trips.connects += 1
        return connect(link, *args, **options)

    def sending(link: Any, *args: Any, **options: Any) -> Any:
        sent = send(link, *args, **options)
        trips.ask()
        return sent

    def reading(link: Any, *args: Any, **options: Any) -> Any:
        trips.read()
        return read(link, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbstractConnection, "connect_check_health", connecting)
        patch.setattr(AbstractConnection, "send_packed_command", sending)
        patch.setattr(AbstractConnection, "read_response", reading)
        yield trips
