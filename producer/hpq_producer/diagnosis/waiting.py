"""Explain why a sweep is not running, and what helps.

Reasons in the order of the checks: the server is full, no pod starts, no worker can run the sweep,
or the workers that can are busy with sweeps before it in the queue. `needed_actions` in verdict.py
adds held and paused sweeps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hpq.codes import Notice
from hpq.domain.snapshot import ServerMemory, Snapshot, Worker
from hpq.domain.sweep import DEFAULT_CLASS, MOST_PRIORITY, Sweep, SweepState
from hpq.domain.trainer_specs import SHIPPED
from hpq_producer.cluster.pods import ClusterSnapshot, PodWatcher
from hpq_producer.diagnosis.pods import explain_no_pod
from hpq_producer.terminal.text import clean, size

_UNWILLING = ("faulty", "stopping", "draining", "drained")
CLUSTER_HINT = " (this is the private Redis of this machine; a cluster's: hpq connect)"
_ALLOW_PREFIX = "allow:"  # how a worker writes its HPQ_ALLOW lines among what it takes

DISK_FULL = Notice(
    "redis-disk-full",
    "the server cannot write to its disk and refuses every change: make room there;"
    " training goes on, and results wait",
)


def explain_waiting_with_pods(snapshot: Snapshot, pods: PodWatcher) -> Notice | None:
    """As `explain_waiting` of a sweep that waits; without workers, with a look at the pods."""
    if not snapshot.sweep.counts.waits:
        return None
    cluster = None if snapshot.workers else pods.snapshot(snapshot.workers, wait=True)
    return explain_waiting(snapshot, cluster, pods)


def explain_waiting(
    snapshot: Snapshot, cluster: ClusterSnapshot | None = None, pods: PodWatcher | None = None
) -> Notice | None:
    """Why no trial of the sweep starts, with the remedy: no room, no worker, others before it.

    `pods` knows whether Redis is reached by `hpq connect`, whether pods are seen or not.
    """
    if reason := explain_full_server(snapshot.memory):
        return reason
    waits = snapshot.sweep.counts.waits and not snapshot.workers
    if cluster and waits and (reason := explain_no_pod(cluster, snapshot.sweep.worker_class)):
        return reason
    in_cluster = cluster is not None or (pods is not None and pods.in_cluster)
    reason = explain_no_worker(snapshot.sweep, snapshot.workers, SHIPPED, in_cluster=in_cluster)
    if reason and not snapshot.workers and pods and pods.may_mean_cluster:
        return replace(reason, text=reason.text + CLUSTER_HINT)
    return reason or explain_queue_position(
        snapshot.sweep, snapshot.ahead, snapshot.workers, SHIPPED
    )


def explain_full_server(memory: ServerMemory | None) -> Notice | None:
    """One line with the remedy where the server or its disk is full, so that no trial starts."""
    if memory is not None and not memory.is_kept:
        return DISK_FULL
    if memory is None or not memory.is_full:
        return None
    return Notice(
        "redis-memory",
        f"the server is full ({size(memory.used)} of {size(memory.limit)}): no trial starts"
        " until there is room; raise maxmemory, or `hpq archive` and then `hpq rm` old sweeps",
    )


def how_to_start(worker_class: str = DEFAULT_CLASS, *, in_cluster: bool = False) -> str:
    """What gets a worker of a class; `in_cluster` where Redis is reached by `hpq connect`."""
    if in_cluster:
        return f"{how_to_scale(worker_class)}; `hpq workers` says how the pods are"
    queue = "" if worker_class == DEFAULT_CLASS else f"HPQ_QUEUE={worker_class} "
    return f"start one: {queue}hpq worker"


def how_to_scale(worker_class: str = DEFAULT_CLASS) -> str:
    """What gets pods of a class of a cluster, as long as nothing is known of them."""
    flag = "" if worker_class == DEFAULT_CLASS else f" --queue {worker_class}"
    return f"`hpq scale N{flag}` starts some, unless an autoscaler decides"


def explain_no_worker(
    sweep: Sweep,
    workers: Iterable[Worker],
    shipped: Collection[str],
    *,
    in_cluster: bool = False,
) -> Notice | None:
    """One line with the remedy where no live worker can take the sweep; None where one can.

    Where it is not known which key signed the sweep, a worker with any key counts as able, as one
    with HPQ_ALLOW lines does, until it says that it refuses.
    """
    of_class = [w for w in workers if w.worker_class == sweep.worker_class]
    candidates = [w for w in of_class if w.is_for(sweep.id)]
    if not candidates:
        return _explain_none(
            sweep, of_class, how_to_start(sweep.worker_class, in_cluster=in_cluster)
        )
    willing = [w for w in candidates if w.state not in _UNWILLING]
    if not willing:
        states = ", ".join(f"{clean(w.name)} is {clean(w.state)}" for w in candidates[:3])
        undo = any(w.state in ("draining", "drained") for w in candidates)
        remedy = "`hpq drain --undo` lets drained ones take trials again; " if undo else ""
        text = f"no worker can take it: {states}; {remedy}`hpq workers` lists them"
        return Notice("workers-unwilling", text)
    if any(_may_run(w, sweep, shipped) for w in willing):
        return None
    for worker in willing:
        if sweep.id in worker.refuses:
            why = worker.refuses[sweep.id]
            return Notice(why.code, f"{clean(worker.name)} leaves it: {clean(why.text)}")
    if all(w.schema < sweep.schema for w in willing):
        older = willing[0]
        return Notice(
            "hpq-too-old",
            f"{clean(older.name)} runs hpq {clean(older.version)}, which reads sweeps up to schema"
            f" {older.schema}, and this one has {sweep.schema}; upgrade the workers",
        )
    return _explain_refusal(sweep, shipped, willing, in_cluster=in_cluster)


def _explain_none(sweep: Sweep, pinned: Sequence[Worker], start: str) -> Notice:
    """No live worker is there for the sweep: none of its class, or for other sweeps alone."""
    if not pinned:
        return Notice("no-worker", f"no worker of class {sweep.worker_class!r} is alive; {start}")
    who = f"each of {len(pinned)} live workers" if pinned[1:] else "the one live worker"
    which = ", ".join(dict.fromkeys(clean(w.only) for w in pinned[:3]))
    return Notice(
        "workers-pinned",
        f"{who} of class {sweep.worker_class!r} is there for another sweep only"
        f" (HPQ_SWEEP: {which}); {start}",
    )


def can_run(worker: Worker, sweep: Sweep, shipped: Collection[str]) -> bool:
    """True where a worker, whatever it does now, is one that takes trials of the sweep."""
    is_of = worker.worker_class == sweep.worker_class and worker.is_for(sweep.id)
    return is_of and _may_run(worker, sweep, shipped)


def _may_run(worker: Worker, sweep: Sweep, shipped: Collection[str]) -> bool:
    if sweep.id in worker.refuses or worker.schema < sweep.schema:
        return False
    if sweep.launch.trainer in worker.takes:
        return True
    if sweep.launch.trainer in shipped:
        return False
    if sweep.signature and worker.key and sweep.signer in ("", worker.key):
        return True
    return any(line.startswith(_ALLOW_PREFIX) for line in worker.takes)


def _explain_refusal(
    sweep: Sweep, shipped: Collection[str], willing: Sequence[Worker], *, in_cluster: bool
) -> Notice:
    launch = sweep.launch
    who = f"each of {len(willing)} live workers" if willing[1:] else "the one live worker"
    if launch.trainer in shipped:
        text = f"{who} lacks trainer {launch.trainer!r}; install hpq[trainers] where it runs"
        return Notice("trainer-missing", text)
    what = launch.what or "this code"
    keys = ", ".join(dict.fromkeys(clean(w.key) for w in willing if w.key))
    if keys and sweep.signature and sweep.signer:
        remedy = "start one with that HPQ_CODE_KEY, or HPQ_ALLOW for it"
        if in_cluster:
            remedy = (
                "enqueue with theirs: export HPQ_CODE_KEY=$(kubectl -n NAMESPACE get secret"
                " hpq-code-key -o jsonpath='{.data.key}' | base64 -d)"
            )
        return Notice(
            "code-key-differs",
            f"{who} may not run {clean(what)}: it is signed with code key {clean(sweep.signer)},"
            f" and theirs is {keys}; {remedy}",
        )
    text = f"{who} may not run {clean(what)}; start one with HPQ_CODE_KEY or HPQ_ALLOW for it"
    return Notice("code-not-allowed", text)


_COUNT = re.compile(r"\b\d+ queued\b")


def explain_queue_position(
    sweep: Sweep, ahead: Iterable[Sweep], workers: Iterable[Worker], shipped: Collection[str]
) -> Notice | None:
    """One line with the remedy where whoever could take the sweep is busy, and goes on with others.

    `ahead` are the sweeps served before it (`SweepReader.ahead_of`). None where a trial of it runs,
    where a worker is idle, or where one will come to it by itself.
    """
    if sweep.state is not SweepState.RUNNING or sweep.counts.running or not sweep.counts.waits:
        return None
    able = [w for w in workers if w.state in ("busy", "idle") and can_run(w, sweep, shipped)]
    first = [one for one in ahead if one.state is SweepState.RUNNING and one.counts.waits]
    blockers = [[one for one in first if _runs_next(w, one, shipped)] for w in able]
    if not blockers or any(w.state == "idle" for w in able) or not all(blockers):
        return None
    return Notice(
        "behind",
        _describe_blocker(sweep, [one for one in first if any(one in those for those in blockers)]),
    )


def without_counts(why: str) -> str:
    """A reason without its counts: what is told once is not told anew at each trial that starts."""
    return _COUNT.sub("queued", why)


def _runs_next(worker: Worker, sweep: Sweep, shipped: Collection[str]) -> bool:
    """True where a worker that is done takes a trial of this sweep next, if it may."""
    if not can_run(worker, sweep, shipped):
        return False
    return worker.trial.startswith(f"{sweep.id}/") or _has_room(sweep)


def _has_room(sweep: Sweep) -> bool:
    """True where one more trial of a sweep may run now."""
    counts, cap = sweep.counts, sweep.max_parallel
    if cap and counts.running >= cap:
        return False
    return not sweep.canary or counts.finished + counts.pruned + counts.running < sweep.canary


def _describe_blocker(sweep: Sweep, first: Sequence[Sweep]) -> str:
    """Names one of them: what has no end, or the first; `ls` says it once of all that wait so."""
    one = next((s for s in first if s.counts.is_open_ended), first[0])
    is_mine = one.owner == sweep.owner
    left = "open-ended" if one.counts.is_open_ended else f"{_waiting_trials(one)} queued"
    whose = "" if is_mine else f"{clean(one.owner)}'s, "
    line = f"waits behind {one.id} ({whose}{left})"
    above = max(s.priority for s in first) + 1
    sooner = f"`hpq set {sweep.id} priority={above}`" if above <= MOST_PRIORITY else ""
    if one.counts.is_open_ended and is_mine:
        return f"{line}: " + ", or ".join(filter(None, (f"`hpq stop {one.id}`", sooner)))
    return f"{line}; {sooner} lets it go first" if sooner else line


def _waiting_trials(sweep: Sweep) -> int:
    return sweep.counts.queued + int(sweep.counts.to_come)
