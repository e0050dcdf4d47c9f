"""Find and list the trials that `hpq cancel --where` would cancel."""

from __future__ import annotations

import sys

from hpq.sweep import Sweep
from hpq.trial import Trial
from producer.look.out import show_table, talk
from producer.look.picking import pick_columns, pick_row
from producer.look.scores import newest_value
from producer.look.selection import Selection
from producer.look.trial_rows import column_names
from producer.pipes import stdout_to_nobody
from producer.session import Session
from producer.where import Where

_SHOWN = 20  # of the trials that it would cancel


def picked(session: Session, it: Sweep, where: Where) -> list[int]:
    """List the numbers of the queued and running trials that match.

    Raises:
        UserError: no trial has a value that the expression names.
    """
    found = Selection(view=session.view, sweep=it, where=where).trials()
    left: list[Trial] = [t for t in found if not t.state.is_terminal]
    if not left:
        talk(f"{it.id}: no queued or running trial matches; nothing is cancelled")
        return []
    try:
        _show(it, left)
    except BrokenPipeError:  # whoever read has read enough; the cancelling was asked for
        stdout_to_nobody()
    return [t.id.number for t in left]


def _show(it: Sweep, left: list[Trial]) -> None:
    rows = (pick_row(t, it, newest_value(it, t)) for t in left[:_SHOWN])
    show_table(pick_columns(it), rows, explain=column_names(it))
    if len(left) > _SHOWN:
        print(f"… and {len(left) - _SHOWN} more")
    sys.stdout.flush()
