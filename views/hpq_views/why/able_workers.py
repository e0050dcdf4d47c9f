"""Explain which live workers can run a sweep, and how to start one."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from hpq.access.connection_record import KUBECTL, deployment_name, scale_command
from hpq.access.session import Server, Session
from hpq.domain.status import Worker
from hpq.domain.sweep import DEFAULT_QUEUE, FUNCTION, SweepView
from hpq.domain.trainer_specs import BUILT_IN
from hpq.kubernetes.api import has_kubeconfig
from hpq.notice import Notice
from hpq.shell import shell_hint
from hpq_views.text.text import clean, duration

_UNWILLING = ("faulty", "stopping", "draining", "drained")
_CLUSTER_HINT = " (this is the private Redis of this machine; for a cluster's: hpq connect)"


def cluster_hint(session: Session) -> str:
    """Return a hint if the user may have meant a cluster's Redis, else ""."""
    return _CLUSTER_HINT if session.is_private and has_kubeconfig(os.environ) else ""


def how_to_run(sweep: SweepView, server: Server, kubectl: str = KUBECTL) -> str:
    """Return how to start a worker for a sweep."""
    start = how_to_start(server, sweep.queue, kubectl)
    if sweep.launch.is_function or server in (Server.SLURM, Server.CLUSTER):
        return start  # a login node is not for training
    return f"{start}, or run the sweep here: hpq run {sweep.id}"


def how_to_start(server: Server, queue: str = DEFAULT_QUEUE, kubectl: str = KUBECTL) -> str:
    """Return how to start a worker of a queue."""
    if queue == FUNCTION:
        return "run the script that calls hpq.agent or wandb.agent, on the machine that enqueued it"
    if server is Server.CLUSTER:
        scale = scale_command(kubectl, deployment_name(queue))
        return f"{scale} starts N pods, unless an autoscaler sets their number"
    flag = "" if queue == DEFAULT_QUEUE else f" --queue {shell_hint([queue])}"
    if server is Server.SLURM:
        return f"if `squeue --me` shows no job of workers: hpq slurm{flag} | sbatch"
    return f"start one: hpq worker{flag}"


def explain_no_worker(
    sweep: SweepView, workers: Iterable[Worker], session: Session | None = None
) -> Notice | None:
    """Return a notice if no live worker can run the sweep; None if one can.

    If no worker of its queue is live in a cluster, the notice says why no pod of that queue runs.
    If the signing key is not known, a worker with any key counts as able until it refuses the
    sweep.
    """
    of_queue = [w for w in workers if w.queue == sweep.queue]
    candidates = [w for w in of_queue if w.is_for(sweep.id)]
    server = session.server if session else Server.SHARED
    kubectl = session.kubectl if session else KUBECTL
    if not candidates:
        if session and session.connection and not sweep.launch.is_function:
            from hpq_views.why import pods  # noqa: PLC0415  most sessions need no cluster

            if reasons := pods.why_no_pod_runs(session, of_queue, sweep.queue):
                return reasons[0]
        if sweep.least_ms and server in (Server.SHARED, Server.SLURM) and not of_queue:
            return _explain_short(sweep)
        start = how_to_run(sweep, server, kubectl)
        hint = cluster_hint(session) if session and not of_queue else ""
        return _explain_none(sweep, of_queue, start + hint)
    willing = [w for w in candidates if w.state not in _UNWILLING]
    if not willing:
        states = ", ".join(f"{clean(w.name)} is {clean(w.state)}" for w in candidates[:3])
        undo = any(w.state in ("draining", "drained") for w in candidates)
        remedy = "`hpq drain --undo` ends a drain; " if undo else ""
        text = f"no worker can run it: {states}; {remedy}`hpq workers` lists the workers"
        return Notice("workers-unwilling", text)
    if any(_may_run(w, sweep) for w in willing):
        return None
    for worker in willing:
        if sweep.id in worker.refuses:
            why = worker.refuses[sweep.id]
            return Notice(why.code, f"{clean(worker.name)} cannot run it: {clean(why.text)}")
    return _explain_refusal(sweep, willing, server, kubectl)


def _explain_none(sweep: SweepView, pinned: Sequence[Worker], start: str) -> Notice:
    """Explain that no live worker is of the sweep's queue, or that each runs another sweep only."""
    if not pinned:
        return Notice("no-worker", f"no worker of queue {sweep.queue!r} is running; {start}")
    which = ", ".join(dict.fromkeys(clean(w.only) for w in pinned[:3]))
    who = f"{_each(pinned)} of queue {sweep.queue!r}"
    return Notice("workers-pinned", f"{who} runs only {which}; {start}")


def _explain_short(sweep: SweepView) -> Notice:
    """Explain that allocations ended before a trial did, which begins again each time."""
    minutes = math.ceil(2 * sweep.least_ms / 60_000)
    limit = f"{minutes // 60}:{minutes % 60:02}:00"
    queue = "" if sweep.queue == DEFAULT_QUEUE else f" --queue {shell_hint([sweep.queue])}"
    return Notice(
        "time-left-short",
        f"no worker is running, and a trial was cut off after {duration(sweep.least_ms)} without a"
        f" checkpoint, at the end of a worker's time; allow more: hpq slurm --time {limit}{queue} |"
        " sbatch, or save checkpoints",
    )


def _each(workers: Sequence[Worker]) -> str:
    return f"each of {len(workers)} live workers" if workers[1:] else "the one live worker"


def can_run(worker: Worker, sweep: SweepView) -> bool:
    """Return whether a worker, idle or not, can run trials of the sweep."""
    is_candidate = worker.queue == sweep.queue and worker.is_for(sweep.id)
    return is_candidate and _may_run(worker, sweep)


def _may_run(worker: Worker, sweep: SweepView) -> bool:
    if sweep.id in worker.refuses:
        return False
    if sweep.launch.trainer in worker.takes:
        return True
    if sweep.launch.trainer in BUILT_IN:
        return False
    return bool(sweep.signature and worker.key) and sweep.signer in ("", worker.key)


def _explain_refusal(
    sweep: SweepView, willing: Sequence[Worker], server: Server, kubectl: str
) -> Notice:
    launch, who = sweep.launch, _each(willing)
    if launch.trainer in BUILT_IN:
        needs = "python -m pip install torch numpy pillow scikit-learn"
        text = f"{who} lacks libraries of trainer {launch.trainer!r}; on its machine: {needs}"
        return Notice("trainer-missing", text)
    what = launch.what or "this code"
    keys = ", ".join(dict.fromkeys(clean(w.key) for w in willing if w.key))
    if keys and sweep.signature and sweep.signer:
        remedy = "run `hpq invite` on the machine that enqueued it, and `hpq join` on a worker's"
        if server is Server.CLUSTER:
            remedy = (
                f"enqueue with the workers' key: export HPQ_CODE_KEY=$({kubectl} get secret"
                " hpq-code-key -o jsonpath='{.data.key}' | base64 -d)"
            )
        return Notice(
            "code-key-differs",
            f"{who} may not run {clean(what)}: code key {clean(sweep.signer)} signed it, and the"
            f" workers have {keys}; {remedy}",
        )
    text = (
        f"{who} may not run {clean(what)}: it has no code key; run `hpq invite` on the machine that"
        " enqueued it, and `hpq join` on a worker's"
    )
    return Notice("code-not-allowed", text)
