"""What an edited file means for a sweep that is there: which sets are new, which it leaves out.

`change_of` only reads; `apply` does it, in one step for everybody who looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from hpq import wire
from hpq.errors import UserError
from hpq.identity import digest, identity, same_data
from hpq.outcome import Grown
from hpq.search.replicates import first_of
from hpq.store_control import ROWS
from hpq.sweep import Launch, Sweep
from hpq.trial import Json, Params, Trial
from hpq.wire_growth import encode_file
from producer import launch as launching
from producer import provenance
from producer.enqueue import code_mark
from producer.inside import is_inside
from producer.look.text import trials_of
from producer.room import check_room
from producer.session import Session
from producer.sweepfile.spec import LIST, SweepSpec, count, is_late, rows, sets
from producer.writing import growing_of

# Keys whose edit is what --into is for, or changes nothing that runs.
_OF_GROWTH = frozenset(
    {"parameters", "run_cap", "seed", "order", "method", LIST, "points", "exclude", "when"}
    | {"name", "description", "project", "entity"}
)
_OF_THE_SPACE = ("parameters", "when", "exclude", "points")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a file would do to a sweep; `there` of its sets are in the sweep already."""

    new: tuple[tuple[Params, int], ...]  # each with its replicate
    there: int
    outside: tuple[Trial, ...]
    launch: Launch
    notes: tuple[str, ...] = ()


def change_of(
    session: Session, sweep: Sweep, spec: SweepSpec, file: Path, code_dir: str | None
) -> Change:
    """What a file would do to a sweep.

    Raises:
        UserError: it runs other code, has another metric, or no end.
    """
    launch = launching.find(spec, file, Path.cwd(), code_dir).launch
    _check_same(sweep, spec, launch, file)
    if sweep.sampler or is_late(spec):
        raise UserError(
            f"{file}: its sets are made while it runs; `hpq set {sweep.id} run_cap=N` lets it run"
            " on, and an edited space is a new sweep, which --reuse begins with these results"
        )
    waiting = list(_waiting(session, sweep.id))
    outside = list(_outside(spec, waiting))
    new, there, notes = _new(session, sweep, spec, len(outside))
    if line := _seed_stays(sweep, spec):
        notes.append(line)
    edited = _edited(sweep, spec)
    if edited:
        notes.append(f"{', '.join(edited)}: not changed by --into; see `hpq set {sweep.id}`")
    return Change(
        new=tuple(new), there=there, outside=tuple(outside), launch=launch, notes=tuple(notes)
    )


def apply(
    session: Session,
    sweep: Sweep,
    spec: SweepSpec,
    file: Path,
    change: Change,
    *,
    leave: bool,
    progress: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], object] = lambda _: None,
) -> Grown:
    """Do it: new trials are visible at once, and in the same step those outside are cancelled.

    Raises:
        UserError: the sweep was stopped or cancelled.
        OutOfReach: the server has no room for it.
    """
    for line in check_room(session, len(change.new)):
        warn(line)
    mark = digest(spec.source, spec.seed, code_mark(change.launch))
    origin, _ = provenance.collect(file, change.launch)
    staged = ((wire.dumps_in_order(params), identity(params, i)) for params, i in change.new)
    return growing_of(session).grow(
        sweep.id,
        staged,
        encode_file(mark, spec.source, origin),
        varying=list(dict.fromkeys((*spec.varying, *sweep.varying))),
        digest=mark,
        cancel=[] if leave else [t.id.number for t in change.outside],
        progress=progress,
    )


def latest_spec(sweep: Sweep) -> Mapping[str, Json]:
    """The data of the file that the sweep was given last."""
    return sweep.files[-1].spec if sweep.files else sweep.spec


def _check_same(sweep: Sweep, spec: SweepSpec, launch: Launch, file: Path) -> None:
    """Nothing where trials of the file compare with those of the sweep."""
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
            f"{file}: {other}, so its trials would not compare with those of {sweep.id}; without"
            " --into it is a sweep of its own"
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


# --- the sets ---------------------------------------------------------------------------------


def _outside(spec: SweepSpec, waiting: Iterable[Trial]) -> Iterator[Trial]:
    """The waiting trials that the file leaves out."""
    named = rows((*spec.listed, *spec.points), spec.replicates)
    listed = {identity(params, i) for params, i in named}
    is_grid = spec.method == "grid"
    for trial in waiting:
        replicate = (trial.id.number - 1) % spec.replicates
        is_there = identity(trial.params, replicate) in listed
        if spec.space is not None and not is_there:
            first = first_of(dict(trial.params), replicate)
            is_there = is_inside(first, spec.space, is_grid=is_grid)
        if not is_there:
            yield trial


def _new(
    session: Session, sweep: Sweep, spec: SweepSpec, outside: int
) -> tuple[list[tuple[Params, int]], int, list[str]]:
    """The trials that the sweep lacks, how many it has, and what to say of it."""
    if spec.method in ("grid", LIST):
        new, there = _unseen(session, sweep.id, sets(spec), spec.replicates)
        return new, there, []
    # Random: so many in all, whatever has become of those that ran.
    total = sweep.counts.total
    stay = total - sweep.counts.cancelled - outside
    wanted = (count(spec) or 0) - stay
    if wanted <= 0:
        line = f"{trials_of(stay)} stay, and the file asks for {count(spec)}: none is added"
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
) -> tuple[list[tuple[Params, int]], int]:
    """Trials of the sets that the sweep does not have, and how many it has."""
    source, there = iter(every), 0
    new: dict[bytes, dict[str, Json]] = {}
    room = None if most is None else most // replicates
    while (room is None or len(new) < room) and (some := list(islice(source, ROWS))):
        marks = [identity(params) for params in some]
        known = session.view.has_sets(sid, marks)
        there += sum(known)
        fresh = zip(some, marks, known, strict=True)
        new |= {mark: params for params, mark, is_there in fresh if not is_there}
    return list(rows(islice(new.values(), room), replicates)), there * replicates


def _waiting(session: Session, sid: str) -> Iterator[Trial]:
    numbers = session.view.waiting(sid)
    for start in range(0, len(numbers), ROWS):
        yield from session.view.trials(sid, numbers[start : start + ROWS])
