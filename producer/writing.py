"""The store as a session writes to it. Apart from session, so that readers do not import rq."""

from __future__ import annotations

from hpq.growing import Growing
from hpq.store import Store
from hpq.tickets import Tickets
from producer.session import Session


def store_of(session: Session) -> Store:
    """A store that mints tickets."""
    return Store(session.redis, session.keys, Tickets(session.redis, session.keys).top_up)


def growing_of(session: Session) -> Growing:
    """What adds trials to sweeps; it mints tickets, too."""
    return Growing(session.redis, session.keys, Tickets(session.redis, session.keys).top_up)
