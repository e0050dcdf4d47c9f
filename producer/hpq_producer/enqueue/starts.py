"""Find the trials at whose checkpoints new trials of a sweep begin (`hpq add --from`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Checkpoint, Start, TrialId, TrialView
from hpq.errors import UserError
from hpq.filestore.base import is_own
from hpq.filestore.stores import location
from hpq.redis.credentials import redact
from hpq_views.analysis.selection import best_trials, refuse_altered
from hpq_views.stored_files import store_here
from hpq_views.targets import parse_targets
from hpq_views.text.text import clean

_BEST = re.compile(r"best:([1-9][0-9]{0,3})\Z")
_KEEP = "keep: {best: 3} in a sweep file keeps those of the best trials"
_OTHER = "name another trial, or leave out --from (start_from)"


def read_parents(session: Session, sweep: SweepView, ref: str) -> tuple[TrialView, ...]:
    """Return the trials that a reference names: 7, SWEEP/7, or best:3. Each can be a start.

    Raises:
        NotFound: the sweep has no such trial.
        HpqError: no trial has a result (`no-result`).
        UserError: one is of another sweep, has not ended, or has no checkpoint that can be read; or
            no trial of the sweep can have a start.
    """
    if sweep.launch.trainer in BUILT_IN:
        raise UserError(
            f"{sweep.id}: the trainer {sweep.launch.trainer} takes no checkpoint of other"
            " parameters, since its schedule depends on them; leave out --from (start_from)"
        )
    if sweep.replicates > 1:
        raise UserError(
            f"{sweep.id} runs each set {sweep.replicates} times; a set that begins at one"
            " checkpoint would have no such repetitions"
        )
    found = _named(session, sweep, ref)
    refuse_altered(session.settings, [sweep], found)
    for trial in found:
        _check_ended(trial)
        checkpoint = _checkpoint_of(session, trial)
        _check_store(session, trial, checkpoint)
    return tuple(found)


def start_at(parent: TrialView) -> Start:
    """Return the start of a trial that begins at the checkpoint of another one.

    The steps go on; the values count from there, so the checkpoint's are left out.
    """
    found = parent.checkpoint
    assert found is not None
    own = Checkpoint(
        store=found.store,
        path=found.path,
        step=found.step,
        counts=found.counts,
        logged=found.logged,
    )
    return Start(trial=parent.id.number, checkpoint=own)


def _named(session: Session, sweep: SweepView, ref: str) -> Sequence[TrialView]:
    if best := _BEST.match(ref):
        if sweep.objectives:
            raise UserError(f"{ref}: {sweep.id} has several metrics; name a trial")
        return best_trials(session.reader, sweep, int(best[1]))
    sid, numbers = parse_targets([ref])
    if not numbers or sid not in (None, sweep.id):
        text = f"{ref}: not a trial of {sweep.id}; write its number, e.g. 7, or best:3"
        raise UserError(text)
    return [session.reader.trials.get(TrialId(sweep=sweep.id, number=numbers[0]))]


def _check_ended(trial: TrialView) -> None:
    if not trial.state.is_terminal:
        raise UserError(
            f"{trial.id} is {trial.state}: a trial begins at the checkpoint of one that has ended;"
            f" wait for it: hpq watch {trial.id.sweep}",
            code="trials-running",
        )


def _checkpoint_of(session: Session, trial: TrialView) -> Checkpoint:
    found = trial.checkpoint
    if found is None:
        why = "its result is a copy" if trial.reused else "no checkpoint of it is kept"
        raise UserError(f"{trial.id}: {why} ({_KEEP}); {_OTHER}", code="no-checkpoint")
    if not is_own(found, session.settings.prefix, trial.id):
        text = f"{trial.id} has saved no checkpoint of its own: {clean(found.path)}; {_OTHER}"
        raise UserError(text, code="no-checkpoint")
    return found


def _check_store(session: Session, trial: TrialView, checkpoint: Checkpoint) -> None:
    """Look for the files, if this machine reaches the store of the workers."""
    if not (session.settings.store or session.is_private):
        return
    try:
        files = store_here(session)
        names = files.names(checkpoint.path) if files is not None else []
    except OSError:  # it may be mounted where the workers are
        return
    if files is None:
        return
    where = redact(location(session.settings))
    if files.id != checkpoint.store:
        raise UserError(
            f"the checkpoint of {trial.id} is in store {clean(checkpoint.store)}, but {where} is"
            f" store {files.id}; set HPQ_STORE to the workers' value",
            code="store-differs",
        )
    if not names:
        text = f"{trial.id}: store {files.id} ({where}) has no file of its checkpoint; {_OTHER}"
        raise UserError(text, code="no-checkpoint")
