"""Add trials of checked parameter sets to an existing sweep, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpq.access.session import Session
from hpq.code.bundle import read_kept
from hpq.code.signing import RowSigner
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.yamlfile.problems import shown
from hpq_producer.capacity import check_capacity
from hpq_producer.enqueue.sweep_space import NewSets


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The result of a call: the numbers of new trials, and the trials that the sweep had.

    `by_set` has the number of the first trial of each set, new or not.
    """

    sid: str
    numbers: range
    outside: tuple[int, ...]
    existing: tuple[TrialView, ...]
    by_set: Mapping[bytes, int]
    notes: tuple[str, ...] = ()


def add_sets(
    session: Session,
    sweep: SweepView,
    sets: NewSets,
    signer: RowSigner,
    *,
    again: bool = False,
    warn: Callable[[str], object] = lambda _: None,
) -> Added:
    """Add sets to a sweep in one call; those that it has only with `again`.

    Raises:
        NotFound: the sweep was removed.
        UserError: the sweep was stopped or cancelled, its budget is used, its code was deleted, or
            the trial of a set that it has was altered.
        OutOfReach: the server has no room for the trials.
    """
    _refuse_without_code(session, sweep)
    memory = session.reader.server_memory()
    for line in check_capacity(memory, len(sets.points) * sweep.replicates):
        warn(line)
    while True:
        wanted = [point.params for point in sets.points]
        # Before the call, so that a refusal adds nothing.
        existing = {} if again else _find_existing(session, sweep.id, wanted)
        done = session.writer().append(
            sweep.id,
            wanted,
            replicates=sweep.replicates,
            again=again,
            whole=sets.redraw is not None,
            outside={point.params.identity for point in sets.points if point.is_outside},
            file=sets.file,
            varying=sets.varying,
            sign=signer.sign,
        )
        if done.trials or not wanted or sets.redraw is None:
            break
        sets = sets.redraw()  # a suggester, or another `hpq add`, has added some of these
    numbers = range(done.first, done.first + done.trials)
    by_set = {
        one.identity: done.first + place * sweep.replicates for place, one in enumerate(done.sets)
    }
    meanwhile = [one for one in wanted if one.identity not in by_set.keys() | existing.keys()]
    existing |= _find_existing(session, sweep.id, meanwhile)
    by_set = {identity: trial.id.number for identity, trial in existing.items()} | by_set
    outside = {by_set[p.params.identity] for p in sets.points if p.is_outside} & set(numbers)
    return Added(
        sid=sweep.id,
        numbers=numbers,
        outside=tuple(sorted(outside)),
        existing=tuple(existing.values()),
        by_set=by_set,
        notes=sets.notes,
    )


def _find_existing(
    session: Session, sid: str, sets: Sequence[ParameterSet]
) -> dict[bytes, TrialView]:
    """Return the first trial of each set that the sweep has, by identity.

    Raises:
        NotFound: the sweep was removed.
        UserError: such a trial was altered.
    """
    known = session.reader.sweeps.known_sets(sid, sets)
    found = session.reader.trials.of_sets(sid, known)
    if len(found) < len(known):
        one = next(params for params in sets if params.identity in known - found.keys())
        text = (
            f"{sid} had a trial of {shown(dict(one))}, and another client of Redis changed its"
            " parameters; hpq add --again adds the set"
        )
        raise UserError(text, code="parameters-altered")
    return found


def _refuse_without_code(session: Session, sweep: SweepView) -> None:
    """Raise UserError if a sweep has ended, and no copy of its code is left to run again."""
    launch = sweep.launch
    if not (sweep.state.is_over and launch.bundled):
        return
    if session.writer().has_bundle(sweep.bundle) or read_kept(session.settings.home, launch.code):
        return
    text = (
        f"{sweep.id} has ended, and there is no copy of its code (deleted for newer code, or on"
        " another machine); enqueue its file again: hpq enqueue FILE --reuse"
    )
    raise UserError(text, code="code-not-kept")
