"""The writer that changes sweeps, workers and owners; actions alone use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpq.access.session import Session

if TYPE_CHECKING:
    from hpq.store.control import SweepControl


def control_of(session: Session) -> SweepControl:
    """Return the writer of a session."""
    from hpq.store.control import SweepControl  # noqa: PLC0415  most commands only read

    return SweepControl(session.context)
