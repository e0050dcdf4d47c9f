"""How many round trips a command waits for: far from its server, each costs a tenth of a second."""

from __future__ import annotations

from redis import Redis

from tests.support.desk import Desk
from tests.support.round_trips import counted

SESSION = 5  # connect, PING, log in, the server's version, whether it lost data


def test_a_session_connects_once(desk: Desk, redis: Redis) -> None:
    with counted() as trips:
        assert desk.hpq("logs", "absent").returncode != 0
    by_id_and_by_prefix = 2
    assert (trips.connects, trips.count) == (1, SESSION + by_id_and_by_prefix)
