"""Explain why no trial of a sweep starts, in the order in which a claim finds it.

On a full server no trial starts, whatever else. Otherwise `hpq/store/lua/claim.lua` looks at the
sweep's state and budget, and at the limits of its owner. It is called by workers that can run the
sweep, and serves the sweeps of their queue in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hpq.access.session import Session
from hpq.domain.owner import Owner
from hpq.domain.status import ServerMemory, SweepStatus, Worker
from hpq.domain.stored_state import Cause
from hpq.domain.sweep import SweepState, SweepView
from hpq.notice import Notice
from hpq.redis.round_trips import Question
from hpq.store.reader import StoreReader
from hpq_views.analysis.owner_limits import explain_limit
from hpq_views.text.text import clean, size
from hpq_views.why.able_workers import explain_no_worker
from hpq_views.why.turn import explain_queue_position

DISK_FULL = Notice(
    "redis-disk-full",
    "the server cannot write to its disk and rejects every change; free space on that disk"
    " (training continues, and results are kept until then)",
)


def explain_waiting(status: SweepStatus, session: Session | None = None) -> Notice | None:
    """Return the first reason why no trial of the sweep starts, with the remedy.

    None if no trial waits. Without a session, the remedies are those of a shared server.
    """
    it = status
    return _first_reason(it.sweep, it.memory, it.owner, it.workers, it.ahead, session)


def explain_no_start(status: SweepStatus, session: Session | None = None) -> Notice | None:
    """Return why no trial of an open sweep starts, of which none runs; as `explain_waits`."""
    sweep = status.sweep
    if sweep.state is not SweepState.RUNNING:
        return None
    if sweep.counts.running and explain_full_server(status.memory) is None:
        return None
    return explain_waiting(status, session)


def explain_waits(
    reader: StoreReader,
    sweeps: Sequence[SweepView],
    session: Session | None,
    workers: Sequence[Worker] | None = None,
) -> dict[str, Notice]:
    """Return, by sweep id, why no trial of an open sweep starts, of which none runs.

    `workers` are the live ones of all queues, if they were read already.
    """
    if not any(s.counts.waits for s in sweeps):
        return {}
    waiting = [s for s in sweeps if s.state is SweepState.RUNNING and s.counts.waits]
    stuck = [s for s in waiting if not s.counts.running]
    questions: list[Question[Any]] = [
        reader.memory_question(),
        reader.owners.of_question({s.owner for s in stuck}),
    ]
    if workers is None and stuck:
        questions.append(reader.workers.live_question())
    memory, owners, *live = reader.ask(*questions)
    workers = live[0] if live else workers or []
    if explain_full_server(memory) is None:  # it also concerns sweeps with running trials
        waiting = stuck

    def explain(s: SweepView, ahead: Iterable[SweepView] = ()) -> Notice | None:
        return _first_reason(s, memory, owners.get(s.owner), workers, ahead, session)

    found = {s.id: explain(s) for s in waiting}
    free = [s for s in waiting if not found[s.id]]
    if any(w.state == "busy" for w in workers):
        ahead = reader.sweeps.ahead_of(free)
        found |= {s.id: explain(s, ahead[s.id]) for s in free}
    return {sid: why for sid, why in found.items() if why}


def _first_reason(
    sweep: SweepView,
    memory: ServerMemory | None,
    owner: Owner | None,
    workers: Sequence[Worker],
    ahead: Iterable[SweepView],
    session: Session | None,
) -> Notice | None:
    """Return the first reason; the state and the budget are those of `why_no_trial_starts`."""
    if not sweep.counts.waits:
        return None
    return (
        explain_full_server(memory)
        or explain_limit(sweep, owner)
        or explain_no_worker(sweep, workers, session)
        or explain_queue_position(sweep, ahead, workers, owner)
    )


def explain_full_server(memory: ServerMemory | None) -> Notice | None:
    """Return a notice if the server or its disk is full, so that no trial starts."""
    if memory is not None and not memory.is_kept:
        return DISK_FULL
    if memory is None or not memory.is_full:
        return None
    return Notice(
        "redis-memory",
        f"the server is full ({size(memory.used)} of {size(memory.limit)}), so no trial starts;"
        " raise maxmemory, or free some: `hpq ls --all`, then `hpq archive SWEEP FILE` and"
        " `hpq rm SWEEP` of an old one",
    )


def why_no_trial_starts(sweep: SweepView, unclaimed: Notice | None) -> Iterator[Notice]:
    """Yield why no trial starts, or soon will not; `unclaimed` is of `explain_waiting`."""
    if sweep.is_over_budget:
        yield Notice("budget-spent", f"held: {sweep.why_held}; {sweep.resumed_by}")
    elif sweep.state is SweepState.HELD:
        yield Notice("sweep-held", f"held: {clean(sweep.why_held)}")
        yield Notice("sweep-held-remedy", _how_to_resume(sweep))
    elif sweep.state is SweepState.PAUSED:
        yield Notice("sweep-paused", f"paused; resume: hpq resume {sweep.id}")
    elif not sweep.counts.waits or sweep.state.is_over:
        return
    elif unclaimed:
        yield unclaimed
    elif sweep.budget and sweep.budget.is_near:
        more = f"hpq set {sweep.id} budget.gpu_hours={1.5 * sweep.budget.gpu_hours:.3g}"
        text = f"{sweep.budget.usage}; trials start while they fit; for more: {more}"
        yield Notice("budget-near", text)


def _how_to_resume(sweep: SweepView) -> str:
    """Return what to do about a held sweep: with fixed code or file it is another sweep."""
    cause, resume = sweep.hold and sweep.hold.cause, f"hpq resume {sweep.id}"
    if cause is Cause.UNREPORTED:
        return f"to run the other trials without the metric: {resume}"
    if cause is Cause.DAMAGED:
        return f"once its record is mended: {resume}"
    retry = f"hpq retry {sweep.id}"
    drop = f"to drop trials that cannot run: hpq cancel {sweep.id} --where EXPR"
    if not (sweep.launch.code_dir or sweep.launch.bundled):
        return f"fix the cause, then {retry}; {drop}"
    fix = "fix the code or the sweep file, then run the file again"
    return f"{fix}; if both are correct: {retry}; {drop}"


def explain_missing_pods(status: SweepStatus, session: Session) -> list[Notice]:
    """Return why pods are missing beside the live workers of a sweep whose trials wait."""
    sweep = status.sweep
    waits = sweep.state is SweepState.RUNNING and sweep.counts.waits
    if session.connection is None or not waits:
        return []
    from hpq_views.why import pods  # noqa: PLC0415  most sessions need no cluster

    return pods.why_fewer_pods_run(session, status.workers)
