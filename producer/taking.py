"""Says why nobody takes a sweep; what made trials wait calls it (enqueue, retry)."""

from __future__ import annotations

import sys

from hpq.hyperparams import SHIPPED
from producer.look.takers import why_not_taken
from producer.session import Session


def say_if_not_taken(session: Session, sid: str) -> None:
    """Say why no live worker can take a sweep that waits for one, with the remedy."""
    sweep = session.view.sweep(sid)
    reason = why_not_taken(sweep, session.view.workers(sweep.worker_class), SHIPPED)
    if reason and not sweep.state.is_over:
        print(reason, file=sys.stderr)
