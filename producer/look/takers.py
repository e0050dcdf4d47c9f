"""Why nobody takes a sweep, and what to do about it. Pure; enqueue, watch and wait ask it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hpq.snapshot import Worker
from hpq.sweep import DEFAULT_CLASS, Sweep
from producer.look.text import clean

_ALLOW = "allow:"  # how a worker writes its HPQ_ALLOW lines among what it takes


def why_not_taken(
    sweep: Sweep, workers: Iterable[Worker], shipped: Collection[str], fingerprint: str = ""
) -> str | None:
    """One line with the remedy where no live worker can take the sweep; None where one can.

    `fingerprint` is that of the key which signed the sweep; where it is not known, a worker with
    any key counts as able, as one with HPQ_ALLOW lines does, until it says that it refuses.
    """
    there = [
        w for w in workers if w.worker_class == sweep.worker_class and w.only in ("", sweep.id)
    ]
    if not there:
        start = "hpq worker"
        if sweep.worker_class != DEFAULT_CLASS:
            start = f"HPQ_QUEUE={sweep.worker_class} {start}"
        return f"no worker of class {sweep.worker_class!r} is alive; start one: {start}"
    willing = [w for w in there if w.state not in ("faulty", "stopping")]
    if not willing:
        states = ", ".join(f"{clean(w.name)} is {clean(w.state)}" for w in there[:3])
        return f"no worker can take it: {states}; `hpq workers` lists them"
    if any(_takes(w, sweep, shipped, fingerprint) for w in willing):
        return None
    for worker in willing:
        if sweep.id in worker.refuses:
            return f"{clean(worker.name)} leaves it: {clean(worker.refuses[sweep.id])}"
    if all(w.schema < sweep.schema for w in willing):
        older = willing[0]
        return (
            f"{clean(older.name)} runs hpq {clean(older.version)}, which reads sweeps up to schema"
            f" {older.schema}, and this one has {sweep.schema}; upgrade the workers"
        )
    return _remedy(sweep, shipped, len(willing))


def _takes(worker: Worker, sweep: Sweep, shipped: Collection[str], fingerprint: str) -> bool:
    if sweep.id in worker.refuses or worker.schema < sweep.schema:
        return False
    if sweep.launch.trainer in worker.takes:
        return True
    if sweep.launch.trainer in shipped:
        return False
    if sweep.signature and worker.key and fingerprint in ("", worker.key):
        return True
    return any(line.startswith(_ALLOW) for line in worker.takes)


def _remedy(sweep: Sweep, shipped: Collection[str], count: int) -> str:
    launch = sweep.launch
    who = "the one live worker" if count == 1 else f"each of {count} live workers"
    if launch.trainer in shipped:
        return f"{who} lacks trainer {launch.trainer!r}; install hpq[trainers] where it runs"
    what = launch.trainer or launch.program or "this code"
    return f"{who} may not run {clean(what)}; start one with HPQ_CODE_KEY or HPQ_ALLOW for it"
