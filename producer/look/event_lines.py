"""A lifecycle event as one plain line: what watch prints where there is no terminal. Pure."""

from __future__ import annotations

from hpq.snapshot import Event
from hpq.sweep import Sweep
from hpq.trial import Trial, TrialState
from producer.limits import in_words
from producer.look.early_lines import told_words
from producer.look.flat import pairs
from producer.look.text import clean, duration, number

_ENDS = frozenset(s.value for s in TrialState if s.is_terminal)
_SWEEP = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopping: waiting trials cancelled: {n}",
    "cancel": "trials cancelled: {n}",
}


def event_line(event: Event, trial: Trial | None, sweep: Sweep) -> str:
    """What happened, in one line; `trial` is the trial as it is now, if the event is of one."""
    if event.what == "created":
        count = clean(event.fields.get("count", "?"))
        if count == "0":
            return f"{sweep.id}: sets are made as workers ask for them"
        return f"{sweep.id}: {count} trial{'s' * (count != '1')} queued"
    if event.what == "added":
        return f"{sweep.id}: {clean(event.fields.get('count', '?'))} more trials queued"
    if event.what == "held":
        return f"held: {clean(event.fields.get('why', ''))}"
    if trial is None:
        if event.what == "set":
            told = in_words({k: v for k, v in event.fields.items() if k != "touched"})
            return clean(f"limits changed: {told}" if told else "limits changed")
        if event.what not in _SWEEP:  # a newer version's
            return clean(event.what)
        return _SWEEP[event.what].format(n=clean(event.fields.get("touched", "0")))
    words = [f"#{event.trial}", *_trial_words(event, trial, sweep)]
    return f"{' '.join(words)}  {pairs(trial.params, sweep.varying)}".rstrip()


def running_line(trial: Trial, sweep: Sweep, at_ms: int) -> str:
    """A trial that had started before anyone looked, as a line like that of its event."""
    again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
    ago = duration(at_ms - trial.claimed_ms)
    line = f"#{trial.id.number} started on {clean(trial.worker)} {ago} ago{again}"
    return f"{line}  {pairs(trial.params, sweep.varying)}".rstrip()


def _trial_words(event: Event, trial: Trial, sweep: Sweep) -> list[str]:
    fields = {name: clean(text) for name, text in event.fields.items()}
    if event.what == "claimed":
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        return [f"started on {fields.get('worker', '?')}{again}"]
    if event.what == "requeued":
        return [f"back in the queue: {fields.get('reason', '')}"]
    if event.what == "prune":
        return [told_words(event, sweep)]
    if event.what == "target":
        cancelled = fields.get("touched", "0")
        return [f"has reached the target; waiting trials cancelled: {cancelled}"]
    if event.what == "restarted":
        return [f"starts again: {fields.get('why', '')}"]
    if event.what in _ENDS:
        return [event.what, *_end_words(event, fields, trial, sweep)]
    if event.what == "suggested" and fields.get("by"):
        return [f"suggested by {fields['by']}"]
    if event.what == "reused":
        return [f"finished: the result of {fields.get('from', '?')}", *_objective(fields, sweep)]
    return [{"resumed": "goes on", "retried": "queued again"}.get(event.what, clean(event.what))]


def _objective(fields: dict[str, str], sweep: Sweep) -> list[str]:
    if not sweep.metric or not fields.get("objective"):
        return []
    return [f"{clean(sweep.metric.name)}={number(float(fields['objective']))}"]


def _end_words(event: Event, fields: dict[str, str], trial: Trial, sweep: Sweep) -> list[str]:
    out = _objective(fields, sweep)
    if fields.get("kind"):
        out.append(f"({fields['kind']}: {fields.get('error', '')})")
    if trial.attempt == event.attempt and trial.claimed_ms:
        out.append(f"in {duration(trial.duration_ms)}")
    return out
