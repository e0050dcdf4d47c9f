"""`hpq cancel`: a sweep, trials of it by number, those that an expression picks, or the worst."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpq.errors import UserError
from hpq.sweep import Sweep
from hpq.trial import Trial, TrialId
from producer import refs
from producer.commands.asking import Other, Targets, Yes, ask, ending
from producer.commands.options import Where_
from producer.look.out import show_table, talk
from producer.look.picking import pick_columns, pick_row
from producer.look.selection import Selection
from producer.look.text import trials_of
from producer.session import Session
from producer.where import Where
from producer.worst import Share, value_of, worst
from producer.writing import store_of

app = typer.Typer()
_SHOWN = 20  # of the trials that it would cancel


@app.command()
def cancel(
    targets: Targets = None,
    where: Where_ = None,
    worst: Annotated[
        str | None,
        typer.Option(
            metavar="N|P%", help="Of the running ones, the worst few by their newest value."
        ),
    ] = None,
    yes: Yes = False,
    force: Other = False,
) -> None:
    """Stop a sweep or some of its trials now."""
    ref, numbers = refs.parse(targets)
    picks = where is not None or worst is not None
    if picks and numbers:
        raise UserError("cancel: give numbers of trials, or --where and --worst, not both")
    expression = Where.of(where) if where is not None else None
    share = Share.of(worst) if worst is not None else None
    with ending(ref, "cancel", force, some=bool(numbers)) as (session, it):
        if picks:
            numbers = _picked(session, it, expression, share)
            if not numbers:
                return
        ask(f"Cancel {_left(session, it, numbers)}?", yes)
        touched = store_of(session).cancel(it.id, numbers)
        are = "is" if touched == 1 else "are"
        talk(f"{it.id}: {trials_of(touched)} {are} cancelled or being stopped")


def _picked(session: Session, it: Sweep, where: Where | None, share: Share | None) -> list[int]:
    """The numbers that are meant, shown first; none where there is nothing to cancel."""
    found = Selection(view=session.view, sweep=it, where=where).trials()
    left: list[Trial] = [t for t in found if not t.state.is_terminal]
    if share is not None:
        left = worst(it, left, share)
    if not left:
        talk(f"{it.id}: {_nothing(it, share)}; nothing is cancelled")
        return []
    show_table(pick_columns(it), (pick_row(t, it, value_of(it, t)) for t in left[:_SHOWN]))
    if len(left) > _SHOWN:
        print(f"… and {len(left) - _SHOWN} more")
    sys.stdout.flush()
    return [t.id.number for t in left]


def _nothing(it: Sweep, share: Share | None) -> str:
    if share is None:
        return "no queued or running trial is so"
    name = it.metric.name if it.metric else "the metric"
    return f"{share} of the running trials that have reported {name} are none"


def _left(session: Session, it: Sweep, numbers: list[int]) -> str:
    """`2 trials of X (1 has ended)`: what a cancel would end."""
    total, ended = it.counts.total, it.counts.ended
    if numbers:
        ids = [TrialId(sweep=it.id, number=n) for n in dict.fromkeys(numbers)]
        total = len(ids)
        ended = sum(session.view.trial(one).state.is_terminal for one in ids)
    have = "has" if ended == 1 else "have"
    return f"{trials_of(total - ended)} of {it.id}" + (f" ({ended} {have} ended)" if ended else "")
