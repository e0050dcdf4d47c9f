"""Append the trials of a sweep file that an existing sweep lacks; nothing else of it changes.

`plan_append` reads, `append` writes, all trials in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from hpq.domain.identity import identity, same_data
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Json, Params
from hpq.errors import UserError
from hpq.search.samplers import replicated
from hpq.store.scripts import BATCH_ROWS
from hpq.store.wire.fields import dumps_in_order
from hpq.store.wire.sweep import encode_appended_file
from hpq_producer.capacity import check_room
from hpq_producer.enqueue import provenance
from hpq_producer.enqueue.submission import Submission
from hpq_producer.session import Session
from hpq_producer.sweepfile.spec import LIST, SweepSpec, sets
from hpq_producer.terminal.text import trials_of

# Keys whose edit is what --into is for, or changes nothing that runs.
_OF_GROWTH = frozenset(
    {"parameters", "run_cap", "seed", "order", "method", LIST, "points", "exclude", "when"}
    | {"name", "description", "project", "entity"}
)
_OF_THE_SPACE = ("parameters", "when", "exclude", "points")


class NewTrial(NamedTuple):
    """A trial that a sweep lacks."""

    params: Params
    replicate: int
    identity: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPlan:
    """The trials of a file that a sweep lacks, and the number of those that it has."""

    new: tuple[NewTrial, ...]
    existing: int
    notes: tuple[str, ...] = ()


def plan_append(session: Session, sweep: Sweep, submission: Submission) -> AppendPlan:
    """Compare a file with a sweep.

    Raises:
        UserError: the file has another code, metric or number of replicates, or its parameters
            are chosen while the sweep runs.
    """
    spec = submission.spec
    _check_same(sweep, submission)
    if sweep.sampler or submission.is_late:
        raise UserError(
            f"{submission.file}: its sets are made while it runs; `hpq set {sweep.id} run_cap=N`"
            " lets it run on, and an edited space is a new sweep, which --reuse begins with these"
            " results"
        )
    new, existing, notes = _new(session, sweep, submission)
    if line := _seed_stays(sweep, spec):
        notes.append(line)
    edited = _edited(sweep, spec)
    if edited:
        notes.append(f"{', '.join(edited)}: not changed by --into; see `hpq set {sweep.id}`")
    return AppendPlan(new=tuple(new), existing=existing, notes=tuple(notes))


def append(
    session: Session,
    sweep: Sweep,
    submission: Submission,
    plan: AppendPlan,
    *,
    progress: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], object] = lambda _: None,
) -> int:
    """Add the new trials of a plan; return how many were added.

    Raises:
        UserError: the sweep was stopped or cancelled.
        OutOfReach: the server has no room for it.
    """
    for line in check_room(session, len(plan.new)):
        warn(line)
    spec = submission.spec
    origin, _ = provenance.collect(submission.file, submission.code.launch)
    return session.writer().append(
        sweep.id,
        ((dumps_in_order(trial.params), trial.identity) for trial in plan.new),
        encode_appended_file(submission.digest, spec.source, origin),
        varying=list(dict.fromkeys((*spec.varying, *sweep.varying))),
        digest=submission.digest,
        progress=progress,
    )


def latest_spec(sweep: Sweep) -> Mapping[str, Json]:
    """The data of the file that the sweep was given last."""
    return sweep.files[-1].spec if sweep.files else sweep.spec


def _check_same(sweep: Sweep, submission: Submission) -> None:
    """Refuse a file whose trials do not compare with those of the sweep."""
    spec, launch = submission.spec, submission.code.launch
    was, other = sweep.launch, ""
    if (launch.trainer, launch.program) != (was.trainer, was.program):
        now, before = launch.trainer or launch.program, was.trainer or was.program
        other = f"it runs {now}, and the sweep {before}"
    elif launch.code != was.code:
        other = "the code was edited since"
    elif launch.code_dir != was.code_dir:
        other = f"the code lies in {launch.code_dir}, and the sweep's in {was.code_dir}"
    elif launch != was:
        other = "the command, or what it is given, is another"
    elif spec.replicates != sweep.replicates:
        other = f"it has {spec.replicates} replicates of a set, and the sweep {sweep.replicates}"
    elif spec.metric != sweep.metric:
        other = "the metric is another"
    if other:
        raise UserError(
            f"{submission.file}: {other}, so its trials would not compare with those of {sweep.id};"
            " without --into it is a sweep of its own"
        )


def _edited(sweep: Sweep, spec: SweepSpec) -> list[str]:
    """Keys of the file that are edited and that --into does not change."""
    before, now = latest_spec(sweep), spec.source
    keys = sorted({*before, *now} - _OF_GROWTH)
    return [key for key in keys if not same_data(before.get(key), now.get(key))]


def _seed_stays(sweep: Sweep, spec: SweepSpec) -> str:
    """What to say of an edited seed: of random it draws other sets, but none is trained with it."""
    if spec.seed == sweep.seed or (spec.method == "random" and spec.replicates == 1):
        return ""
    return (
        f"seed: stays {sweep.seed}, for new trials, too; --into does not change it,"
        f" {spec.seed} is a sweep of its own"
    )


def _new(
    session: Session, sweep: Sweep, submission: Submission
) -> tuple[list[NewTrial], int, list[str]]:
    """The trials that the sweep lacks, how many it has, and notes for the user."""
    spec, asked = submission.spec, submission.trials or 0
    if spec.method in ("grid", LIST):
        new, there = _unseen(session, sweep.id, sets(spec), spec.replicates)
        return new, there, []
    # Random: run_cap counts all trials but the cancelled ones, also those that have ended.
    total = sweep.counts.total
    stay = total - sweep.counts.cancelled
    wanted = asked - stay
    if wanted <= 0:
        line = f"{trials_of(stay)} stay, and the file asks for {asked}: none is added"
        return [], stay, [line]
    before = latest_spec(sweep)
    same = all(same_data(before.get(key), spec.source.get(key)) for key in _OF_THE_SPACE)
    same = same and before.get("seed", 0) == spec.seed
    every = sets(replace(spec, run_cap=total + wanted))
    if same:
        note = f"{wanted} more of the same sequence"
    else:
        note = f"another space or seed: {trials_of(stay)} stay, {wanted} are drawn from the new one"
        if spec.space is not None and spec.space.outcomes is None:
            every = islice(every, total // spec.replicates, None)  # not the same quantiles again
    new, _ = _unseen(session, sweep.id, every, spec.replicates, wanted)
    return new, stay, [note]


def _unseen(
    session: Session,
    sid: str,
    every: Iterable[dict[str, Json]],
    replicates: int,
    most: int | None = None,
) -> tuple[list[NewTrial], int]:
    """Trials of the sets that the sweep does not have, and how many it has."""
    source, there = iter(every), 0
    new: dict[bytes, dict[str, Json]] = {}
    room = None if most is None else most // replicates
    while (room is None or len(new) < room) and (some := list(islice(source, BATCH_ROWS))):
        marks = [identity(params) for params in some]
        known = session.reader.trials.has_identities(sid, marks)
        there += sum(known)
        fresh = zip(some, marks, known, strict=True)
        new |= {mark: params for params, mark, is_there in fresh if not is_there}
    trials = [
        NewTrial(params, i, identity(params, i) if i else mark)
        for mark, first in islice(new.items(), room)
        for i, params in enumerate(replicated(first, replicates))
    ]
    return trials, there * replicates
