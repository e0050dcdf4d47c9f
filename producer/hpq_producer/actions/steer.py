"""Pause, resume, stop, cancel and retry a sweep or its trials, and drain workers.

Each action returns a line for the user. `control_of` returns the writer that only actions use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq.errors import OverBudget
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.selection import Selection
from hpq_views.text.text import clean, measure, trials_of

if TYPE_CHECKING:
    from hpq.store.control import SweepControl


def control_of(session: Session) -> SweepControl:
    """Return the writer of a session."""
    from hpq.store.control import SweepControl  # noqa: PLC0415  most commands only read

    return SweepControl(session.context)


Ask = Callable[[str], None]  # raises unless the user agrees


def agree(question: str) -> None:
    """Ask nothing: the caller has asked the user, or is a program."""


def refuse_readers(session: Session) -> None:
    """Raise Forbidden if this Redis user may only read."""
    control_of(session).probe()


def pause(session: Session, sweep: SweepView) -> str:
    """Start no further trial of a sweep. Raises as `SweepControl.pause`."""
    control_of(session).pause(sweep.id)
    return f"{sweep.id}: paused; {_running(session, sweep.id)}"


def resume(session: Session, sweep: SweepView) -> str:
    """Continue a paused or held sweep. Raises as `SweepControl.resume`.

    Raises:
        OverBudget: no waiting trial fits its budget.
    """
    control_of(session).resume(sweep.id)
    now = session.reader.sweeps.get(sweep.id)
    if now.is_over_budget:
        raise OverBudget(f"{sweep.id} is held: {now.why_held}; {now.resumed_by}")
    return f"{sweep.id}: {now.state}"


def stop(session: Session, sweep: SweepView, ask: Ask) -> str:
    """Cancel the queued trials of a sweep; the running ones finish."""
    if sweep.state.is_over:
        return _already_over(sweep)
    ask(f"Stop {sweep.id}? {trials_of(sweep.counts.queued, 'queued trial')} will not start.")
    touched = control_of(session).stop(sweep.id)
    queued, rest = trials_of(touched, "queued trial"), _running(session, sweep.id)
    return f"{sweep.id}: {queued} will not start; {rest}"


def cancel(session: Session, sweep: SweepView, numbers: Sequence[int], ask: Ask) -> tuple[int, str]:
    """Stop a sweep, or the trials with these numbers, now; return how many were stopped.

    Raises:
        NotFound: one of the trials does not exist; none was stopped.
    """
    states = [_trial(session, sweep, n).state for n in dict.fromkeys(numbers)]
    if sweep.state.is_over:
        return 0, _already_over(sweep)
    total, ended = sweep.counts.total, sweep.counts.ended
    if states:
        total, ended = len(states), sum(state.is_terminal for state in states)
    if total == ended == 1 and states:
        trial = TrialId(sweep=sweep.id, number=numbers[0])
        return 0, f"{trial} is already over ({states[0]}); nothing was cancelled"
    if states and total == ended:  # a search may still add trials to a sweep
        return 0, f"{sweep.id}: these {ended} trials have ended; nothing was cancelled"
    named = f"#{numbers[0]}" if len(states) == 1 else trials_of(total)
    what = f"{named} of {sweep.id}" if states else sweep.id
    stay = f"; {trials_of(ended, 'ended trial')} {'stays' if ended == 1 else 'stay'}"
    ask(f"Cancel {what}? {_ends_now(total - ended)}{stay if ended else ''}.")
    touched = control_of(session).cancel(sweep.id, numbers)
    done = f"{trials_of(touched)} cancelled" if touched else "cancelled; no trial was open"
    running = TrialState.RUNNING in states or (not states and sweep.counts.running)
    return touched, f"{sweep.id}: {done}{'; running trials end within seconds' if running else ''}"


def retry(
    session: Session,
    sweep: SweepView,
    numbers: Sequence[int],
    ask: Ask,
    *,
    state: TrialState = TrialState.FAILED,
    where: Filter | None = None,
) -> tuple[int, str]:
    """Queue trials again: those with these numbers, or all in one state; return how many.

    Raises:
        NotFound: one of the trials does not exist; none was queued.
    """
    if not numbers:
        trials = Selection(
            reader=session.reader,
            sweep=sweep,
            where=where,
            begun=state is not TrialState.CANCELLED,
        ).trials()
        numbers = [t.id.number for t in trials if t.state is state]
    else:
        named = [_trial(session, sweep, n) for n in dict.fromkeys(numbers)]
        if lost := [trial for trial in named if trial.state.is_complete]:
            ask(_lost(session, sweep, lost))
    touched = control_of(session).retry(sweep.id, numbers)
    done = f"{trials_of(touched)} queued again" if touched else "no trial to retry"
    return touched, f"{sweep.id}: {done}"


def _ends_now(count: int) -> str:
    return f"{trials_of(count, 'open trial')} {'ends' if count == 1 else 'end'} now"


def _lost(session: Session, sweep: SweepView, lost: Sequence[TrialView]) -> str:
    """Return the question before a retry of trials that have results."""
    has_best = not sweep.objectives and any(
        session.reader.ranking.standing(sweep, trial.id.number).rank == 1 for trial in lost
    )
    if lost[1:]:
        also = ", the best among them," if has_best else ""
        return f"Run {len(lost)} trials of {sweep.id} again? Their results{also} are lost."
    result = lost[0].objective
    value = "" if result is None else f" {measure(result)}{' (the best)' if has_best else ''}"
    return f"Run #{lost[0].id.number} of {sweep.id} again? Its result{value} is lost."


def _trial(session: Session, sweep: SweepView, n: int) -> TrialView:
    return session.reader.trials.get(TrialId(sweep=sweep.id, number=n))


def _running(session: Session, sid: str) -> str:
    running = session.reader.sweeps.get(sid).counts.running
    return f"{trials_of(running)} {'continues' if running == 1 else 'continue'}"


def _already_over(sweep: SweepView) -> str:
    return f"{sweep.id} is already over ({sweep.state})"


def drain_worker(session: Session, worker: str, *, undo: bool) -> str:
    """Drain a worker, or let it claim trials again; return a line for the user."""
    at = control_of(session).drain(worker, undo=undo)
    if at is None:
        done = "has exited"
    elif undo:
        done = "claims trials again"
    elif at:
        done = f"finishes {clean(at)} and claims no more"
    else:
        done = "idle; claims no more"
    return f"{clean(worker)}: {done}"


def is_draining(session: Session, worker: str) -> bool:
    """Return whether a drained worker still runs a trial."""
    return bool(control_of(session).drain(worker))
