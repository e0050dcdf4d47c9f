"""Queue the sweep of a checked file, all or nothing; running it twice is safe.

Rows are invisible and expire until the last call makes the sweep visible, so a failed enqueue
leaves nothing behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from hpq.access.home_files import remove_unused
from hpq.access.session import Session
from hpq.code import signing
from hpq.code.bundle import keep, pack, unpack
from hpq.domain.identity import ParameterSet, slug
from hpq.domain.sweep import Keep, SweepView
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.search.replicates import replicated
from hpq.store.reader import StoreReader
from hpq.store.scripts import BATCH_ROWS
from hpq.store.sweep_writer import SweepWriter
from hpq.store.wire.fields import dumps
from hpq.store.wire.row import NewRow, SignRow, encode_new
from hpq.store.wire.search import encode_search
from hpq_producer.capacity import check_capacity
from hpq_producer.enqueue import provenance
from hpq_producer.enqueue.code_discovery import DiscoveredCode
from hpq_producer.enqueue.prepare import PreparedSweep, search_of, with_late_search
from hpq_producer.enqueue.provenance import code_location
from hpq_producer.enqueue.reuse import (
    OlderResults,
    Reuse,
    ReuseCriteria,
    describe_reuse,
    older_results,
    result_key,
    reusable_sets,
)
from hpq_producer.scaffold.template import refuse_unfilled
from hpq_producer.sweepfile.key_types import IdleKeys
from hpq_producer.sweepfile.spec import SweepSpec, parameter_sets
from hpq_views.analysis.owner_limits import check_owner_limits

_OPEN_ENDED_SETS = 1_000  # trials that an open-ended sweep must have room for at its start
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The sweep, and whether this call created it."""

    sid: str
    is_new: bool
    trials: int
    reused: int = 0  # trials with the result of an older sweep
    notes: tuple[str, ...] = ()  # the source sweeps, or why there are none


def enqueue_sweep(
    session: Session,
    prepared: PreparedSweep,
    *,
    allow_duplicate: bool = False,
    tags: Sequence[str] = (),
    reuse: Reuse | None = None,
    progress: Progress = lambda _: None,
    warn: Callable[[str], object] = lambda _: None,
) -> Enqueued:
    """Queue a sweep's trials, unless a sweep with its digest exists.

    The digest excludes tags. With `reuse`, trials with a result in an older sweep start as
    finished.

    Raises:
        UserError: a placeholder of the file is not filled in.
        Forbidden: operators let the owner have only a lower priority.
        OutOfReach: the server has no room for the sweep.
    """
    spec, code = prepared.spec, prepared.code
    refuse_unfilled(spec.source, prepared.file)
    writer, search, reader = session.writer(), search_of(prepared), session.reader
    owner, sid = spec.keys.owner or session.settings.user, random_id(spec.name)
    existing, memory, owners, is_used = reader.ask(
        reader.sweeps.digest_question(prepared.digest),
        reader.memory_question(),
        reader.owners.of_question([owner]),
        reader.sweeps.exists_question(sid),
    )
    if existing is not None and not allow_duplicate:
        return _existing(session, existing)
    bundle, trials = _bundle(session, code), spec.trials
    for line in (
        *check_capacity(memory, trials or _OPEN_ENDED_SETS, code=len(bundle or b"")),
        *check_owner_limits(owners.get(owner), spec.keys.priority, trials),
    ):
        warn(line)
    if is_used:
        sid = new_id(reader, spec.name)
    key = signing.key_of(session.settings, make=True)
    origin, diff = provenance.collect_provenance(prepared)
    sweep = replace(
        _sweep(session, prepared, sid),
        tags=tuple(tags),
        provenance=origin,
        bundle=code.launch.code if bundle is not None else "",
        search=encode_search(search) if search is not None else "",
    )
    criteria = _reuse_criteria(prepared, sweep)
    older = older_results(session.reader, criteria, reuse) if reuse else {}
    reused: dict[int, TrialView] = {}
    first: Iterable[ParameterSet] = parameter_sets(spec)
    if search is not None and spec.is_late:  # it has no list of trials
        reusable = list(reusable_sets(older, spec))
        first = [*spec.points, *reusable]
        sweep = with_late_search(sweep, prepared, search, len(reusable))
    sweep, sign = signing.signed(key, session.settings.prefix, sweep)
    try:
        rows = _rows(spec, first, older, reused)
        written = write_rows(writer, sid, rows, sign, progress)
        writer.stage_results(sweep, reused.items())
        if diff:
            writer.keep_diff(sid, diff)
        manifest = dumps(code.manifest) if bundle else ""
        other = create(writer, sweep, manifest, bundle, again=allow_duplicate)
    except BaseException:
        writer.discard(sid)
        raise
    if other is not None:  # another command enqueued the same sweep meanwhile
        return _existing(session, other)
    notes: tuple[str, ...] = ()
    if reuse:
        owner = criteria.location.owner
        notes = describe_reuse(session.reader, reused.values(), sweep.launch, owner)
    return Enqueued(sid=sid, is_new=True, trials=written, reused=len(reused), notes=notes)


def _bundle(session: Session, code: DiscoveredCode) -> bytes | None:
    """Return the code to send; keep code that is too large on this disk, instead of unused code.

    Raises:
        UserError: workers would refuse it: a file grew since its size was read.
    """
    remove_unused(session.settings.home, session.reader)
    if code.files is None or not code.launch.bundled:
        return None
    bundle = pack(code.files)
    if not code.is_sent:
        keep(session.settings.home, code.launch.code, bundle)
        return None
    try:
        unpack(bundle, code.launch.code)
    except ValueError as error:
        text = f"{code.folder}: workers would refuse this code: {error}; run the command again"
        raise UserError(text, code="code-too-large") from None
    return bundle


def _existing(session: Session, sid: str) -> Enqueued:
    return Enqueued(sid=sid, is_new=False, trials=session.reader.sweeps.get(sid).counts.total)


def _reuse_criteria(prepared: PreparedSweep, sweep: SweepView) -> ReuseCriteria:
    spec = prepared.spec
    return ReuseCriteria(
        launch=sweep.launch,
        location=code_location(sweep),
        metric=spec.metric,
        further=sweep.further_metrics,
        seed=spec.keys.seed,
        any_seed=prepared.spec.is_late and spec.keys.replicates == 1,
    )


def create(
    writer: SweepWriter,
    sweep: SweepView,
    manifest: str,
    bundle: bytes | None,
    *,
    again: bool,
    is_last: bool = True,
) -> str | None:
    """Make the sweep visible with its code, as `SweepWriter.create`."""
    if bundle is None:
        return writer.create(sweep, again=again, is_last=is_last)
    writer.keep_bundle(sweep.bundle, bundle)
    other = writer.create(sweep, again=again, is_last=is_last, manifest=manifest)
    # The last sweep with the same code may be removed between the two calls.
    if other is None and not writer.has_bundle(sweep.bundle):
        writer.keep_bundle(sweep.bundle, bundle)
    return other


def random_id(name: str) -> str:
    """Return a sweep id for this name, most likely an unused one."""
    return f"{slug(name)}-{''.join(secrets.choice(_ALPHABET) for _ in range(5))}"


def new_id(reader: StoreReader, name: str) -> str:
    """Return an unused sweep id for this name."""
    while reader.sweeps.exists(sid := random_id(name)):
        pass
    return sid


def _rows(
    spec: SweepSpec,
    parameter_sets: Iterable[ParameterSet],
    older: OlderResults,
    reused: dict[int, TrialView],
) -> Iterator[NewRow]:
    """Yield rows of parameters and replicates, once each; record older results by number."""
    seen: set[bytes] = set()
    for first in parameter_sets:
        for replicate, params in enumerate(replicated(first, spec.keys.replicates)):
            row = encode_new(params, replicate)
            if row.identity in seen:
                continue
            seen.add(row.identity)
            if older and (result := older.get(result_key(params, replicate, spec))):
                reused[len(seen)] = result.trial
            yield row


def write_rows(
    writer: SweepWriter,
    sid: str,
    rows: Iterator[NewRow],
    sign: SignRow,
    progress: Progress,
) -> int:
    """Sign and write the rows in order; return their number."""
    first = 1
    while chunk := list(islice(rows, BATCH_ROWS)):
        writer.add_rows(sid, first, chunk, sign)
        first += len(chunk)
        progress(first - 1)
    return first - 1


def _stall(stall: float | IdleKeys) -> dict[str, Any]:
    if isinstance(stall, IdleKeys):
        return {"idle_s": stall.lasting, "idle_below": stall.gpu_below}
    return {"stall_s": stall}


def _sweep(session: Session, prepared: PreparedSweep, sid: str) -> SweepView:
    settings = session.settings
    spec = prepared.spec
    launch = prepared.code.launch
    keys = spec.keys
    if launch.code_dir or launch.is_function:
        launch = replace(launch, home=signing.home_id(settings.home, make=True))
    return SweepView(
        id=sid,
        name=spec.name,
        digest=prepared.digest,
        launch=launch,
        metric=spec.metric,
        objectives=spec.objectives,
        constraints=spec.constraints,
        queue=spec.queue,
        owner=keys.owner or settings.user,
        priority=keys.priority,
        max_parallel=keys.max_parallel,
        retries=keys.retries,
        budget=spec.budget,
        timeout_s=keys.timeout,
        **_stall(keys.stall),
        keep=Keep(best=keys.keep.best, last=keys.keep.last) if keys.keep else None,
        history=keys.history or "",
        early=spec.early,
        method=spec.method,
        seed=keys.seed,
        replicates=keys.replicates,
        varying=spec.varying,
        spec=spec.source,
    )
