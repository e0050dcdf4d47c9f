"""Append missing trials of a sweep file to an existing sweep; nothing else of it changes.

`plan_append` reads, `append_trials` writes, all trials in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from hpq.access.session import Session
from hpq.code.signing import RowSigner
from hpq.domain.identity import ParameterSet, same_data
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Json
from hpq.errors import UserError
from hpq.search.replicates import replicated
from hpq.shell import shell_hint
from hpq.store.scripts import BATCH_ROWS
from hpq.store.wire.sweep import encode_appended_file
from hpq.store.wire.trial import encode_new
from hpq_producer.capacity import check_capacity
from hpq_producer.enqueue import provenance
from hpq_producer.enqueue.prepare import PreparedSweep
from hpq_producer.sweepfile.spec import LIST, SweepSpec, parameter_sets
from hpq_views.text.text import trials_of

_SPACE_KEYS = ("parameters", "when", "exclude", "derive", "require", "zip", "points")
# Keys that --into applies, or that do not affect the trials.
_APPENDABLE_KEYS = frozenset(
    {*_SPACE_KEYS, "run_cap", "seed", "order", "method", LIST}
    | {"name", "description", "project", "entity"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPlan:
    """The trials of a file that a sweep lacks, and the number of those that it has.

    `new` are their parameters; replicates follow each other.
    """

    new: tuple[ParameterSet, ...]
    existing: int
    notes: tuple[str, ...] = ()


def plan_append(session: Session, sweep: SweepView, prepared: PreparedSweep) -> AppendPlan:
    """Compare a file with a sweep.

    Raises:
        UserError: code, metric or number of replicates differ, or the parameters are chosen while
            the sweep runs.
    """
    spec = prepared.spec
    _check_comparable(sweep, prepared)
    if sweep.sampler or prepared.spec.is_late:
        raise UserError(
            f"{prepared.file}: parameters are chosen while the sweep runs, so --into does not"
            f" apply; for more trials: hpq set {sweep.id} run_cap=N; for another space: hpq enqueue"
            " FILE --reuse (a new sweep with these results)",
            code="sets-chosen-late",
        )
    new, existing, notes = _missing_trials(session, sweep, prepared)
    if line := _note_on_seed(sweep, spec):
        notes.append(line)
    if prepared.code.launch.code != sweep.launch.code:
        notes.append("files that the program does not import changed; trials run the sweep's code")
    edited = _edited(sweep, spec)
    if edited:
        notes.append(f"{', '.join(edited)}: not changed by --into; use hpq set {sweep.id}")
    return AppendPlan(new=tuple(new), existing=existing, notes=tuple(notes))


def append_trials(
    session: Session,
    sweep: SweepView,
    prepared: PreparedSweep,
    plan: AppendPlan,
    *,
    progress: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], object] = lambda _: None,
) -> int:
    """Add the new trials of a plan; return how many were added.

    Raises:
        UserError: the sweep was stopped or cancelled, or is signed with another key.
        OutOfReach: the server has no room for the trials.
    """
    signer = RowSigner.required(session.settings, sweep)
    for line in check_capacity(session, len(plan.new)):
        warn(line)
    spec = prepared.spec
    origin, _ = provenance.collect_provenance(prepared)
    return session.writer().append(
        sweep.id,
        [encode_new(params, i % spec.keys.replicates) for i, params in enumerate(plan.new)],
        encode_appended_file(prepared.digest, spec.source, origin),
        varying=list(dict.fromkeys((*spec.varying, *sweep.varying))),
        digest=prepared.digest,
        sign=signer.sign,
        progress=progress,
    )


def latest_spec(sweep: SweepView) -> Mapping[str, Json]:
    """Return the data of the sweep's newest file."""
    return sweep.files[-1].spec if sweep.files else sweep.spec


def _check_comparable(sweep: SweepView, prepared: PreparedSweep) -> None:
    """Refuse a file whose trials are not comparable with those of the sweep."""
    spec = prepared.spec
    launch = prepared.code.launch
    was = sweep.launch
    difference = ""
    if (launch.trainer, launch.program) != (was.trainer, was.program):
        difference = f"it runs {launch.what}, but the sweep runs {was.what}"
    elif not was.has_code_of(launch):
        difference = "the code has changed"
    elif launch.code_dir != was.code_dir:
        difference = f"its code is in {launch.code_dir}, but the sweep's is in {was.code_dir}"
    elif replace(launch, code="", reach="") != replace(was, home="", code="", reach=""):
        difference = "the command or its environment has changed"
    elif spec.keys.replicates != sweep.replicates:
        replicates = spec.keys.replicates
        difference = f"it has replicates: {replicates}, but the sweep has {sweep.replicates}"
    elif (spec.metric, spec.objectives) != (sweep.metric, sweep.objectives):
        difference = "the metric has changed"
    elif spec.constraints != sweep.constraints:
        difference = "the constraints have changed"
    if difference:
        raise UserError(
            f"{prepared.file}: {difference}, so its trials are not comparable with those of"
            f" {sweep.id}; start a new sweep: "
            + shell_hint(["hpq", "enqueue", str(prepared.file)]),
            code="sweep-differs",
        )


def _edited(sweep: SweepView, spec: SweepSpec) -> list[str]:
    """Return edited keys of the file that --into does not apply."""
    before, now = latest_spec(sweep), spec.source
    keys = sorted({*before, *now} - _APPENDABLE_KEYS)
    return [key for key in keys if not same_data(before.get(key), now.get(key))]


def _note_on_seed(sweep: SweepView, spec: SweepSpec) -> str:
    """Return a note on an edited seed, unless it only draws other random parameters."""
    if spec.keys.seed == sweep.seed or (spec.method == "random" and spec.keys.replicates == 1):
        return ""
    return (
        f"seed: --into does not change it: new trials use {sweep.seed}, too; for seed"
        f" {spec.keys.seed}, start a new sweep without --into"
    )


def _missing_trials(
    session: Session, sweep: SweepView, prepared: PreparedSweep
) -> tuple[list[ParameterSet], int, list[str]]:
    """Return the trials that the sweep lacks, the number that it has, and notes for the user."""
    spec, requested = prepared.spec, prepared.spec.trials or 0
    if spec.method in ("grid", LIST):
        new, existing = _missing_sets(session, sweep.id, parameter_sets(spec), spec.keys.replicates)
        return new, existing, []
    # Random: run_cap counts all trials except cancelled ones, ended ones included.
    total = sweep.counts.total
    kept = total - sweep.counts.cancelled
    wanted = requested - kept
    if wanted <= 0:
        line = f"the sweep has {trials_of(kept)} and the file requests {requested}: none added"
        return [], kept, [line]
    before = latest_spec(sweep)
    same = all(same_data(before.get(key), spec.source.get(key)) for key in _SPACE_KEYS)
    same = same and before.get("seed", 0) == spec.keys.seed
    capped = spec.keys.model_copy(update={"run_cap": total + wanted})
    drawn = parameter_sets(replace(spec, keys=capped))
    if same:
        note = f"adds {trials_of(wanted)} of the same random sequence (seed {spec.keys.seed})"
    else:
        note = f"space or seed has changed: {trials_of(kept)} kept, {wanted} drawn from the new one"
        if spec.space is not None and spec.space.outcomes is None:
            drawn_before = total // spec.keys.replicates  # their quantiles are used
            drawn = islice(drawn, drawn_before, None)
    new, _ = _missing_sets(session, sweep.id, drawn, spec.keys.replicates, wanted)
    return new, kept, [note]


def _missing_sets(
    session: Session,
    sid: str,
    candidates: Iterable[ParameterSet],
    replicates: int,
    max_trials: int | None = None,
) -> tuple[list[ParameterSet], int]:
    """Return the trials that the sweep lacks, and the number of those that it has."""
    source, existing = iter(candidates), 0
    new: dict[bytes, ParameterSet] = {}
    max_sets = None if max_trials is None else max_trials // replicates
    while (max_sets is None or len(new) < max_sets) and (chunk := list(islice(source, BATCH_ROWS))):
        exists = session.reader.sweeps.has_identities(sid, [params.identity for params in chunk])
        existing += sum(exists)
        rows = zip(chunk, exists, strict=True)
        new |= {params.identity: params for params, is_there in rows if not is_there}
    chosen = islice(new.values(), max_sets)
    trials = [params for first in chosen for params in replicated(first, replicates)]
    return trials, existing * replicates
