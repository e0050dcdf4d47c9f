"""From a checked sweep file to a sweep on the queue, all or nothing, safe to run twice.

Rows are written where nobody sees them and expire by themselves; the last call makes the sweep
visible. So an enqueue that dies half-way leaves nothing behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from hpq import signing, wire
from hpq.identity import digest, identity, slug
from hpq.store import ROWS, Store
from hpq.sweep import EARLY_SCHEMA, SCHEMA, Launch, Sweep
from hpq.trial import Json, Params
from hpq.wire_search import encode_search
from producer import late, provenance
from producer import launch as launching
from producer.room import check_room
from producer.session import Session
from producer.sweepfile.spec import SweepSpec, count, rows, sets
from producer.writing import store_of

_OPEN_ENDED = 1_000  # sets that an open-ended sweep needs room for to begin with
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The sweep, and whether it was made now or was there."""

    sid: str
    is_new: bool
    trials: int


def enqueue(
    session: Session,
    spec: SweepSpec,
    file: Path,
    *,
    again: bool = False,
    code_dir: str | None = None,
    canary: int = 0,
    progress: Progress = lambda _: None,
    warn: Callable[[str], object] = lambda _: None,
) -> Enqueued:
    """Put a sweep's trials on the queue, unless its digest is there already.

    The first `canary` trials must finish before the rest may be claimed; the digest knows nothing
    of it.

    Raises:
        UserError: its code is nowhere.
        OutOfReach: the server has no room for it.
    """
    wanted, search = count(spec), late.search_of(spec)
    code = launching.find(spec, file, Path.cwd(), code_dir)
    mark = digest(spec.source, spec.seed, _code_mark(code.launch))
    store = store_of(session)
    there = None if again else session.view.find_digest(mark)
    if there is not None:
        return Enqueued(sid=there, is_new=False, trials=session.view.sweep(there).counts.total)
    for line in check_room(session, wanted or _OPEN_ENDED):
        warn(line)
    sid = _new_id(session, spec.name)
    key = signing.key_of(session.settings, make=True)
    sweep = replace(_sweep(session, spec, file, sid, mark, code, key), canary=canary)
    if search is not None:
        text = encode_search(search)
        sweep = replace(
            sweep, schema=SCHEMA, sampler=search.sampler, search=text, run_cap=wanted or 0
        )
    try:
        first = spec.points if search else sets(spec)  # of a late-bound one no more is known
        trials = _write_rows(store, sid, rows(first, spec.replicates), progress)
        if code.files is not None:
            store.keep_code(code.launch.code, wire.dumps(code.files))
        other = store.seal(sweep, again=again)
    except BaseException:
        store.discard(sid)
        raise
    if other is not None:  # somebody enqueued the same in the same moment
        return Enqueued(sid=other, is_new=False, trials=session.view.sweep(other).counts.total)
    return Enqueued(sid=sid, is_new=True, trials=trials)


def _is_of_now(spec: SweepSpec, launch: Launch) -> bool:
    """True for what a worker of schema 1 would do wrong without knowing it."""
    has_target = spec.metric is not None and spec.metric.target is not None
    return bool(spec.replicates > 1 or spec.early or has_target or launch.wandb)


def _code_mark(launch: Launch) -> str:
    """The code as identity has it: what runs in its directory is other code in another one."""
    return f"{launch.code} in {launch.code_dir}" if launch.code_dir else launch.code


def _new_id(session: Session, name: str) -> str:
    while True:
        sid = f"{slug(name)}-{''.join(secrets.choice(_ALPHABET) for _ in range(5))}"
        if not session.redis.exists(session.keys.sweep(sid)):
            return sid


def _write_rows(
    store: Store, sid: str, every: Iterator[tuple[dict[str, Json], int]], progress: Progress
) -> int:
    """Write the sets with their replicates in order, each once; answers how many."""
    seen: set[bytes] = set()
    first = 1
    while some := list(islice(every, ROWS)):
        new = []
        for params, replicate in some:
            mark = identity(params, replicate)
            if mark not in seen:
                seen.add(mark)
                new.append((_text(params), mark))
        store.add_rows(sid, first, new)
        first += len(new)
        progress(first - 1)
    return first - 1


def _text(params: Params) -> str:
    # Not sorted: the order of the file is the order of the arguments on a command line.
    return wire.dumps_in_order(params)


def _sweep(
    session: Session,
    spec: SweepSpec,
    file: Path,
    sid: str,
    mark: str,
    code: launching.Code,
    key: bytes | None,
) -> Sweep:
    settings = session.settings
    return Sweep(
        id=sid,
        name=spec.name,
        digest=mark,
        launch=code.launch,
        signature=signing.sign(key, settings.prefix, sid, code.launch) if key else "",
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
        schema=SCHEMA if _is_of_now(spec, code.launch) else EARLY_SCHEMA,
        varying=spec.varying,
        spec=spec.source,
        provenance=provenance.collect(file, code.launch),
    )
