"""Which trials a call of the Python API selects."""

from __future__ import annotations

from hpq.domain.trial import TrialState
from hpq.errors import UserError
from hpq_views.analysis.filter import Filter


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
