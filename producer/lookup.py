"""What a reader's argument means in the store: a sweep, or one trial of it."""

from __future__ import annotations

from hpq.errors import NotFound
from hpq.trial import TrialId, TrialState
from hpq.view import View
from producer.refs import parse

_RECENT = 200  # ended trials among which a failed one is looked for


def find(view: View, ref: str | None, owner: str) -> str | TrialId:
    """The sweep's id, or the trial, that a reference means (see `refs`).

    Raises:
        NotFound: nothing or more than one sweep fits.
    """
    sweep, numbers = parse([ref] if ref else None)
    sid = view.resolve(sweep, owner)
    return TrialId(sweep=sid, number=numbers[0]) if numbers else sid


def find_trial(view: View, ref: str | None, owner: str) -> TrialId:
    """As `find`, where a trial is wanted: of a sweep, one that runs, else one that ended.

    Of those the one that failed last, since it has something to say, else the one that ended last.

    Raises:
        NotFound: nothing fits, or no trial of the sweep has begun.
    """
    found = find(view, ref, owner)
    if isinstance(found, TrialId):
        return found
    shot = view.snapshot(found, rows=1, top=0, recent=_RECENT)
    failed = [t for t in shot.recent if t.state is TrialState.FAILED]
    for trial in (*shot.running, *failed, *shot.recent):
        return trial.id
    raise NotFound(
        f"no trial of {found} has begun; `hpq watch {found}` shows what it waits for",
        code="trial-not-begun",
    )
