"""From a checked sweep file to a sweep on the queue, all or nothing, safe to run twice.

Rows are written where nobody sees them and expire by themselves; the last call makes the sweep
visible. So an enqueue that dies half-way leaves nothing behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hpq.code import bundle as packing
from hpq.code import signing
from hpq.domain.identity import identity, slug
from hpq.domain.sweep import EARLY_SCHEMA, SCHEMA, Launch, Sweep
from hpq.domain.trial import Json, Trial
from hpq.search.samplers import Identified, replicated, seed_at
from hpq.store.enqueue import Row, SweepWriter
from hpq.store.scripts import BATCH_ROWS
from hpq.store.wire.fields import dumps, dumps_in_order
from hpq_producer.capacity import check_room
from hpq_producer.enqueue import preflight, provenance
from hpq_producer.enqueue.preflight import check_seen
from hpq_producer.enqueue.provenance import place_of_sweep
from hpq_producer.enqueue.reuse import (
    Reuse,
    Wanted,
    mark_of,
    older_results,
    reuse_lines,
    sets_inside,
)
from hpq_producer.enqueue.submission import Submission
from hpq_producer.scaffold.template import refuse_unfilled
from hpq_producer.session import Session
from hpq_producer.sweepfile.spec import SweepSpec, identified

_OPEN_ENDED = 1_000  # sets that an open-ended sweep needs room for to begin with
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The sweep, and whether it was made now or was there."""

    sid: str
    is_new: bool
    trials: int
    reused: int = 0  # of them, finished from the start with the result of an older sweep
    notes: tuple[str, ...] = ()  # of which sweeps they are, or why there are none


def enqueue(
    session: Session,
    submission: Submission,
    *,
    again: bool = False,
    canary: int = 0,
    tags: Sequence[str] = (),
    reuse: Reuse | None = None,
    progress: Progress = lambda _: None,
    warn: Callable[[str], object] = lambda _: None,
) -> Enqueued:
    """Put a sweep's trials on the queue, unless its digest is there already.

    The first `canary` trials must finish before the rest may be claimed; the digest knows nothing
    of it, nor of tags. With `reuse`, trials that an older sweep has finished begin as finished.

    Raises:
        UserError: a place of the file is still to be filled in.
        OutOfSight: no worker could run the code where it lies.
        OutOfReach: the server has no room for it.
    """
    spec, code = submission.spec, submission.code
    refuse_unfilled(spec.source, submission.file)
    writer, search = session.writer(), preflight.search_of(submission)
    check_seen(session, spec.queue, code)
    there = None if again else session.reader.sweeps.find_by_digest(submission.digest)
    if there is not None:
        return Enqueued(
            sid=there, is_new=False, trials=session.reader.sweeps.get(there).counts.total
        )
    bundle = None if code.files is None else packing.pack(code.folder, code.files)
    for line in check_room(session, submission.trials or _OPEN_ENDED, code=len(bundle or b"")):
        warn(line)
    sid = _new_id(writer, spec.name)
    key = signing.key_of(session.settings, make=True)
    origin, diff = provenance.collect(
        submission.file, code.launch, code.folder if code.files else None
    )
    sweep = replace(
        _sweep(session, submission, sid, key),
        canary=canary,
        tags=tuple(tags),
        provenance=origin,
        bundle=code.launch.code if bundle is not None else "",
    )
    like = _wanted(submission, sweep)
    older = older_results(session.reader, like, reuse) if reuse else {}
    known: dict[int, Trial] = {}
    first: Sequence[dict[str, Json]] = ()
    if search is not None:  # of a late-bound one no more is known
        first = [*spec.points, *sets_inside(older, spec)]
        sweep = preflight.bound(sweep, submission, search, len(first) - len(spec.points))
    try:
        begun = ((params, None) for params in first) if search else identified(spec)
        every = _known(spec, begun, older, known)
        trials = _write_rows(writer, sid, every, progress)
        writer.stage_results(sid, known.items())
        if diff:
            writer.keep_diff(sid, diff)
        manifest = "" if code.files is None else dumps(code.files)
        other = _seal(writer, sweep, manifest, bundle, again)
    except BaseException:
        writer.discard(sid)
        raise
    if other is not None:  # somebody enqueued the same in the same moment
        return Enqueued(
            sid=other, is_new=False, trials=session.reader.sweeps.get(other).counts.total
        )
    notes = reuse_lines(session.reader, like, reuse, list(known.values()), but=sid)
    return Enqueued(sid=sid, is_new=True, trials=trials, reused=len(known), notes=notes)


def _wanted(submission: Submission, sweep: Sweep) -> Wanted:
    spec = submission.spec
    return Wanted(
        launch=sweep.launch,
        place=place_of_sweep(sweep),
        metric=spec.metric,
        seed=spec.seed,
        any_seed=submission.is_late and spec.replicates == 1,
    )


def _is_of_now(spec: SweepSpec, launch: Launch) -> bool:
    """True for what a worker of schema 1 would do wrong without knowing it."""
    has_target = spec.metric is not None and spec.metric.target is not None
    return bool(spec.replicates > 1 or spec.early or has_target or launch.wandb or launch.bundled)


def _seal(
    writer: SweepWriter,
    sweep: Sweep,
    manifest: str,
    bundle: bytes | None,
    again: bool,
) -> str | None:
    if bundle is None:
        return writer.seal(sweep, again=again)
    writer.keep_bundle(sweep.bundle, bundle)
    other = writer.seal(sweep, again=again, manifest=manifest)
    # The last sweep that had the same code may have been removed between the two.
    if other is None and not writer.has_bundle(sweep.bundle):
        writer.keep_bundle(sweep.bundle, bundle)
    return other


def _new_id(writer: SweepWriter, name: str) -> str:
    while True:
        sid = f"{slug(name)}-{''.join(secrets.choice(_ALPHABET) for _ in range(5))}"
        if not writer.exists(sid):
            return sid


def _known(
    spec: SweepSpec,
    first: Iterable[Identified],
    older: Mapping[bytes, Trial],
    known: dict[int, Trial],
) -> Iterator[Row]:
    """Sets with their replicates as rows, each once; an older result is noted under its number."""
    seen: set[bytes] = set()
    for params, mark in first:
        for replicate, again in enumerate(replicated(params, spec.replicates)):
            own = mark if mark and replicate == 0 else identity(again, replicate)
            if own in seen:
                continue
            seen.add(own)
            like = mark_of(again, seed_at(spec.seed, replicate, again)) if older else b""
            if like in older:
                known[len(seen)] = older[like]
            # Not sorted: the order of the file is the order of the arguments on a command line.
            yield dumps_in_order(again), own


def _write_rows(writer: SweepWriter, sid: str, every: Iterator[Row], progress: Progress) -> int:
    """Write the rows in order; return how many."""
    first = 1
    while some := list(islice(every, BATCH_ROWS)):
        writer.add_rows(sid, first, some)
        first += len(some)
        progress(first - 1)
    return first - 1


def _sweep(session: Session, submission: Submission, sid: str, key: bytes | None) -> Sweep:
    settings, spec, launch = session.settings, submission.spec, submission.code.launch
    return Sweep(
        id=sid,
        name=spec.name,
        digest=submission.digest,
        launch=launch,
        signature=signing.sign(key, settings.prefix, sid, launch) if key else "",
        signer=signing.fingerprint(key),
        metric=spec.metric,
        worker_class=spec.queue,
        owner=spec.owner or settings.user,
        priority=spec.priority,
        max_parallel=spec.max_parallel,
        retries=spec.retries,
        timeout_s=spec.timeout_s,
        stall_s=spec.stall_s,
        keep=spec.keep,
        early=spec.early,
        method=spec.method,
        seed=spec.seed,
        replicates=spec.replicates,
        schema=SCHEMA if _is_of_now(spec, launch) else EARLY_SCHEMA,
        varying=spec.varying,
        spec=spec.source,
    )
