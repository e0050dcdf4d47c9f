"""Which trials `hpq cancel` means by --where and --worst; shown before anything is asked."""

from __future__ import annotations

import sys

from hpq.sweep import Sweep
from hpq.trial import Trial
from producer.look.out import show_table, talk
from producer.look.picking import pick_columns, pick_row
from producer.look.selection import Selection
from producer.look.trial_rows import column_names
from producer.pipes import stdout_to_nobody
from producer.session import Session
from producer.where import Where
from producer.worst import Share, value_of, worst

_SHOWN = 20  # of the trials that it would cancel


def picked(session: Session, it: Sweep, where: Where | None, share: Share | None) -> list[int]:
    """The numbers of the queued and running trials that are meant; none where there is none.

    Raises:
        UserError: no trial has what the expression names, or the sweep has no metric.
    """
    found = Selection(view=session.view, sweep=it, where=where).trials()
    left: list[Trial] = [t for t in found if not t.state.is_terminal]
    if share is not None:
        left = worst(it, left, share)
    if not left:
        talk(f"{it.id}: {_nothing(it, share)}; nothing is cancelled")
        return []
    try:
        _show(it, left)
    except BrokenPipeError:  # whoever read has read enough; the cancelling was asked for
        stdout_to_nobody()
    return [t.id.number for t in left]


def _show(it: Sweep, left: list[Trial]) -> None:
    rows = (pick_row(t, it, value_of(it, t)) for t in left[:_SHOWN])
    show_table(pick_columns(it), rows, explain=column_names(it))
    if len(left) > _SHOWN:
        print(f"… and {len(left) - _SHOWN} more")
    sys.stdout.flush()


def _nothing(it: Sweep, share: Share | None) -> str:
    if share is None:
        return "no queued or running trial is so"
    name = it.metric.name if it.metric else "the metric"
    return f"{share} of the running trials that have reported {name} are none"
