"""Let a worker finish its trial and claim no more, or claim again."""

from __future__ import annotations

from hpq.access.session import Session
from hpq_producer.actions.writer import control_of
from hpq_views.text.text import clean


def drain_worker(session: Session, worker: str, *, undo: bool) -> str:
    """Drain a worker, or let it claim trials again; return a line for the user."""
    at = control_of(session).drain(worker, undo=undo)
    if at is None:
        done = "has exited"
    elif undo:
        done = "claims trials again"
    elif at:
        done = f"finishes {clean(at)} and claims no more"
    else:
        done = "idle; claims no more"
    return f"{clean(worker)}: {done}"


def is_draining(session: Session, worker: str) -> bool:
    """Return whether a drained worker still runs a trial."""
    return bool(control_of(session).drain(worker))
