"""Which trials a call of the Python API selects."""

from __future__ import annotations

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialState
from hpq.errors import UserError
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.pareto_front import Front
from hpq_views.analysis.selection import no_best, read_front


def filter_of(where: str | None) -> Filter | None:
    """Return the filter of an expression.

    Raises:
        UserError: it is no expression.
    """
    if where is not None and not isinstance(where, str):
        text = f"{where!r} is not an expression; trials(sort='objective', top=3) are the best three"
        raise UserError(text)
    return None if where is None else Filter.of(where)


def state_of(name: str) -> TrialState:
    """Return the state of a name.

    Raises:
        UserError: no state has it.
    """
    try:
        return TrialState(name)
    except ValueError:
        text = f"state {name!r} does not exist; use one of {', '.join(TrialState)}"
        raise UserError(text) from None


def front_of(session: Session, sweep: SweepView, only: Filter | None) -> Front:
    """Return the trials on the front of a sweep with several metrics.

    Raises:
        NotFound: there are none.
    """
    found = read_front(session.reader, [sweep], only)
    if not found.trials:
        raise no_best(session.reader, [sweep], only, found)
    return found
