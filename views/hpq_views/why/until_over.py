"""Wait until a sweep has ended or is held; print once why no worker claims its trials."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hpq.access.session import Session
from hpq.domain.status import SweepStatus
from hpq.errors import TimedOut
from hpq.notice import Notice, plural, print_message
from hpq_views.follow import follow, is_over_or_held
from hpq_views.text.text import planned
from hpq_views.why.waiting import explain_waiting, without_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAtEnd:
    """The sweep when the wait ended; `late` is the error if the time was up before."""

    status: SweepStatus
    why: Notice | None  # why no worker claims its trials
    late: TimedOut | None = None


def wait_until_over(session: Session, sid: str, timeout_s: float | None = None) -> SweepAtEnd:
    """Wait until the sweep has ended or is held, or at most `timeout_s` seconds.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    printed: set[str] = set()
    for change in follow(session.reader, sid):
        status = change.status
        late = None
        why = explain_waiting(status, session)
        if why and without_counts(why.text) not in printed:
            print_message(f"hpq: {why}")
            printed.add(without_counts(why.text))
        if is_over_or_held(status):
            break
        if deadline is not None and time.monotonic() > deadline:
            counts = status.sweep.counts
            done = f"{counts.done}/{planned(counts)} {plural(counts.planned, 'trial')}"
            text = f"{sid} is not over after {timeout_s:g} s: {done} ended"
            late = TimedOut(text)
            break
    return SweepAtEnd(status=status, why=why, late=late)
