"""Replay a sweep's events against the transition table, and compare the result with the store.

Pure. Events are folded one by one, and trials with the same history share a record. Events that hpq
does not write are violations. The result in a trial's last event is compared with the stored one.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpq.domain.status import Event
from hpq.domain.trial import TRANSITIONS, TrialState
from hpq.notice import plural
from hpq.store.audit_reader import StoredResult, SweepCounters, TrialRecord

_END_EVENTS = frozenset(state.value for state in TrialState if state.is_terminal)
_COUNTED = frozenset({"finished", "pruned", "reused"})
_ENDED = 1
_HAS_VALUE = 2
_COUNTS = 4
_INFEASIBLE = 8
_PAGE = 64  # trials


class Column:
    """A number for each trial, 0 at first: few bytes each, and none for numbers never seen.

    Events may name any trial, so the largest number allocates no more than another.
    """

    def __init__(self, kind: str) -> None:
        self._blank: array[Any] = array(kind, bytes(_PAGE * array(kind).itemsize))
        self._pages: dict[int, array[Any]] = {}

    def __getitem__(self, trial: int) -> Any:
        return self._pages.get(trial // _PAGE, self._blank)[trial % _PAGE]

    def __setitem__(self, trial: int, number: float) -> None:
        page = self._pages.get(trial // _PAGE)
        if page is None:
            page = self._pages[trial // _PAGE] = self._blank[:]
        page[trial % _PAGE] = number

    def items(self) -> Iterator[tuple[int, Any]]:
        """Yield each trial whose number is not 0, with the number."""
        for i, page in self._pages.items():
            yield from ((i * _PAGE + k, number) for k, number in enumerate(page) if number)


class Results:
    """Fold the events of a sweep's trials, and compare results with them.

    `replicates` is the sweep's number of replicates, `is_ranked` whether it has a metric.
    """

    def __init__(self, replicates: int = 1, is_ranked: bool = True) -> None:
        self._replicates, self._is_ranked = max(1, replicates), is_ranked
        self._values = Column("d")
        self._flags = Column("b")  # _COUNTS: it is in the mean of its group of replicates

    def add(self, event: Event) -> None:
        """Add the next event of a trial."""
        text = event.fields.get("objective")
        is_end = event.what in _END_EVENTS or event.what == "reused"
        flags = 0
        if is_end and text is not None:
            value, flags = _number(text), _ENDED
            if value is not None:
                self._values[event.trial], flags = value, _ENDED | _HAS_VALUE
        if event.fields.get("infeasible"):
            flags |= _INFEASIBLE
        elif self._replicates > 1 and text and event.what in _COUNTED:
            flags |= _COUNTS
        if flags or self._flags[event.trial]:
            self._flags[event.trial] = flags

    def _value(self, number: int) -> float | None:
        has_value = self._flags[number] & _HAS_VALUE
        return float(self._values[number]) if has_value else None

    def differs(self, number: int, state: TrialState, stored: StoredResult) -> str | None:
        """Return the difference between a trial's stored result and its last event, or None."""
        if not stored.is_known:
            return "its parameters changed after it was created"
        value, has_ended = self._value(number), bool(self._flags[number])
        if has_ended and not _is_same(value, _number(stored.objective)):
            return f"its result is {stored.objective or 'missing'}, but its last event has {value}"
        if not state.is_complete and stored.score is not None:
            return f"it is {state}, but ranked by {stored.score}"
        if state.is_complete and has_ended:
            value = value if self._is_ranked else stored.score
            value = None if self._flags[number] & _INFEASIBLE else value
            if not _is_same(value, stored.score):
                ranked = "not ranked" if stored.score is None else f"ranked by {stored.score}"
                return f"it is {ranked}, but its last event has {value}"
        if state.is_terminal and stored.is_filed != stored.has_pointers:
            return "its files are lost" if stored.is_filed else "its files are not listed"
        return self._mean_differs(number, stored)

    def _mean_differs(self, number: int, stored: StoredResult) -> str | None:
        if self._replicates < 2 or (number - 1) % self._replicates or not self._is_ranked:
            return None
        group = range(number, number + self._replicates)
        numbers = [n for n in group if self._flags[n] & _COUNTS]
        values = [value for n in numbers if (value := self._value(n)) is not None]
        mean = sum(values) / len(values) if values else None
        if mean is None or stored.mean is None:
            is_same = mean is stored.mean
        else:
            is_same = math.isclose(mean, stored.mean, rel_tol=1e-9, abs_tol=1e-300)
        return (
            None
            if is_same
            else f"the mean of its replicates is {stored.mean}, its events have {mean}"
        )


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


_Q, _R = TrialState.QUEUED, TrialState.RUNNING
_ENDS = frozenset(s for s in TrialState if s.is_terminal)
# Events that move no trial. `restarted`: the checkpoint of an attempt is gone; `prune`: the trial
# shall stop; `target`: its value ends the sweep; `suggested`: a sampler added parameters; `budget`:
# 80 % of it are spent; `stored`: the files of a trial that has ended are in their store.
NO_STEPS = frozenset(
    "created added suggested held pause resume stop cancel set restarted prune target"
    " budget stored".split()
)

# event → the states that allow it, and the state after it
STEPS: Mapping[str, tuple[frozenset[TrialState], TrialState]] = {
    "claimed": (frozenset({_Q}), _R),
    "resumed": (frozenset({_Q}), _R),
    "requeued": (frozenset({_R}), _Q),
    "retried": (_ENDS, _Q),
    "reused": (frozenset({_Q}), TrialState.FINISHED),  # a result of an older sweep, as attempt 1
    **{end.value: (frozenset({_Q, _R}), end) for end in _ENDS},
}
# the sorted sets that have the number of a trial in this state
_INDEXES: Mapping[TrialState, frozenset[str]] = {
    _Q: frozenset({"waiting"}),
    _R: frozenset({"running", "leases"}),
    **{end: frozenset({"ended"}) for end in _ENDS},
}
DROPPED = frozenset({"dropped"})  # cancelled before its first claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A difference between the store and the events of a trial (0: of the sweep)."""

    trial: int
    what: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit.

    `latencies_ms` are sorted: from the last heartbeat of each lost attempt to its requeue.
    """

    trials: int
    open: int  # queued or running
    events: int
    violations: tuple[Violation, ...]
    ends: Mapping[str, int]
    requeues: Mapping[str, int]  # by reason
    reused: int  # ends that are results of older sweeps
    late: int  # results that were accepted after the lease was reaped
    latencies_ms: tuple[int, ...]

    def quantile_ms(self, share: float) -> int | None:
        """Return the latency that a share (0 to 1) of all does not exceed; None without any."""
        if not self.latencies_ms:
            return None
        rank = -int(-share * len(self.latencies_ms) // 1)  # rounded up
        return self.latencies_ms[max(0, rank - 1)]


class _TrialReplay(NamedTuple):
    """The state of a trial after its events, and the events as lines; trials alike share one."""

    state: TrialState = _Q
    attempt: int = 0
    lines: str = ""
    is_reaped: bool = False
    is_retried: bool = False


class Replay:
    """Fold a sweep's events, then compare trials and counters with them."""

    def __init__(self, replicates: int = 1, is_ranked: bool = True) -> None:
        self._results = Results(replicates, is_ranked)
        self._differences: list[tuple[int, str]] = []
        self._events = self._created = self._late = self._reused = 0
        self._may_drop = False  # stop, cancel and run_cap drop queued trials without events
        self._states = [_TrialReplay()]
        self._indexes = {self._states[0]: 0}
        self._trials = Column("l")  # indexes into the states
        self._requeues: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._latencies_ms: list[int] = []

    @property
    def created(self) -> int:
        """Return the number of trials that events created."""
        return self._created

    def add(self, event: Event) -> None:
        """Add the next event."""
        self._events += 1
        if event.what in STEPS and event.trial:
            self._step(event)
        elif event.what in ("created", "added", "suggested"):
            self._created += _whole(event.fields.get("count"))
        elif event.what in ("stop", "cancel", "target") or "run_cap" in event.fields:
            self._may_drop = True
        elif event.what not in NO_STEPS:
            self._unknown[event.what] += 1

    def _step(self, event: Event) -> None:
        trial = self._state(event.trial)
        reason = event.fields.get("reason") or event.fields.get("kind") or ""
        line = f"{event.what} {event.attempt}" + (f" ({reason})" if reason else "")
        if difference := self._forbidden(trial, event):
            self._differences.append((event.trial, difference))
        if trial.state is _Q and trial.is_reaped and event.what not in ("claimed", "cancelled"):
            self._late += 1
        self._reused += event.what == "reused"
        if event.what == "requeued":
            self._requeues[reason] += 1
            if beat_ms := _whole(event.fields.get("beat_ms")):
                self._latencies_ms.append(max(0, event.at_ms - beat_ms))
        after = _TrialReplay(
            state=STEPS[event.what][1],
            attempt=max(trial.attempt, event.attempt),
            lines=f"{trial.lines}\n{line}" if trial.lines else line,
            is_reaped=event.what == "requeued" and reason == "lost",
            is_retried=event.what == "retried",
        )
        index = self._indexes.setdefault(after, len(self._states))
        if index == len(self._states):
            self._states.append(after)
        self._trials[event.trial] = index
        self._results.add(event)

    def _state(self, number: int) -> _TrialReplay:
        index: int = self._trials[number]
        return self._states[index]

    def _forbidden(self, trial: _TrialReplay, event: Event) -> str | None:
        what = event.what
        attempt = event.attempt
        latest = trial.attempt
        if what in ("claimed", "reused") and attempt != latest + 1:
            return f"attempt {attempt} follows attempt {latest}"
        if what not in ("claimed", "reused") and attempt != latest:
            return f"{what} by attempt {attempt}, but the latest is {latest}"
        is_late = trial.state is _Q and trial.is_reaped
        if what == "requeued" and is_late:  # the lost attempt reported a failure
            return None
        if what == "retried" and trial.state is _Q and not latest and self._may_drop:
            return None  # dropped without an event
        sources, target = STEPS[what]
        if trial.state in _ENDS and target in _ENDS:
            return f"it ended twice: {trial.state}, then {what}"
        if trial.state not in sources or target not in TRANSITIONS[trial.state]:
            return f"{what} while it was {trial.state}"
        needs_reap = what == "resumed" or (target in _ENDS and what not in ("cancelled", "reused"))
        is_unrun = trial.is_retried and what == "failed"  # its retry ended before its turn
        if trial.state is _Q and needs_reap and not (is_late or is_unrun):
            return f"{what} while it was queued and its lease had not expired"
        return None

    def _violation(self, number: int, what: str) -> Violation:
        lines = self._state(number).lines
        events = tuple(lines.split("\n")) if lines else ()
        return Violation(trial=number, what=what, events=events)

    def judge(self, record: TrialRecord) -> None:
        """Compare a trial with its events, and keep a difference as a violation."""
        if difference := self.differs(record):
            self._differences.append((record.number, difference))

    def differs(self, record: TrialRecord) -> str | None:
        """Return the difference between a trial and its events, or None."""
        trial = self._state(record.number)
        if not record.has_params:
            return "it is lost: its parameters are missing"
        indexes = _INDEXES[trial.state]
        is_dropped = trial.state is TrialState.CANCELLED or "dropped" in record.indexes
        if not trial.attempt and is_dropped:
            if trial.state is _Q and not self._may_drop:
                return "it was dropped without an event"
            indexes = DROPPED
        elif (record.state, record.attempt) != (trial.state, trial.attempt):
            return (
                f"the store has {record.state} in attempt {record.attempt},"
                f" but its events have {trial.state} in attempt {trial.attempt}"
            )
        if record.indexes != indexes:
            found = ", ".join(sorted(record.indexes)) or "no index"
            return f"it is {trial.state} and in {found}, not in {', '.join(sorted(indexes))}"
        result = record.result
        return self._results.differs(record.number, trial.state, result) if result else None

    def counters_differ(self, counters: SweepCounters) -> list[str]:
        """Return the differences between the sweep's counters and its events."""
        tally = Counter[TrialState]()
        beyond, most = [], max(counters.total, self._created)
        for number, index in self._trials.items():
            trial = self._states[index]
            tally[trial.state] += bool(trial.attempt)
            if not 1 <= number <= most:
                beyond.append(number)
        found = [
            ("trials", counters.total, self._created),
            ("running", counters.running, tally[_R]),
        ]
        found += [(f"n_{end}", counters.ends.get(end, 0), tally[end]) for end in sorted(_ENDS)]
        ended = sum(tally[end] for end in _ENDS)
        never_ended = counters.total - tally[_R] - ended
        found += [
            ("ended", counters.ended, ended),
            ("waiting and dropped", counters.waiting + counters.dropped, never_ended),
        ]
        if counters.identities is not None:
            found.append(("identities", counters.identities, self._created))
        out = [f"{name}: {has}, but its events have {n}" for name, has, n in found if has != n]
        total = f"{counters.total} {plural(counters.total, 'trial')}"
        return out + [f"events of trial {n}, but the sweep has {total}" for n in beyond[:5]]

    def verdict(self, counters: SweepCounters) -> Audit:
        """Return all violations, those of the sweep's counters included."""
        unknown = [
            f"{n} {plural(n, 'event')} {what!r:.60}, which hpq does not write"
            for what, n in self._unknown.items()
        ]
        of_sweep = [
            Violation(trial=0, what=what) for what in (*self.counters_differ(counters), *unknown)
        ]
        return Audit(
            trials=counters.total,
            open=counters.waiting + counters.running,
            events=self._events,
            violations=(
                *of_sweep,
                *(self._violation(n, what) for n, what in sorted(self._differences)),
            ),
            ends={end.value: counters.ends.get(end, 0) for end in TrialState if end in _ENDS}
            | {"cancelled": counters.ends.get(TrialState.CANCELLED, 0) + counters.dropped},
            requeues=dict(sorted(self._requeues.items())),
            reused=self._reused,
            late=self._late,
            latencies_ms=tuple(sorted(self._latencies_ms)),
        )


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
