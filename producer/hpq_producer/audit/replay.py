"""The audit: a sweep's events, replayed against the transition table, must be what the store says.

Pure. Events are folded one after another, so that 100,000 trials cost a small record each; then the
record of each trial and the sweep's counters are compared with what the events lead to. Words of
a newer version are counted and passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpq.domain.snapshot import Event
from hpq.domain.trial import TRANSITIONS, TrialState
from hpq.store.audit_reader import SweepCounters, TrialRecord
from hpq_producer.audit.results import Results

_Q, _R = TrialState.QUEUED, TrialState.RUNNING
_ENDS = frozenset(s for s in TrialState if s.is_terminal)
# events that move no trial; `restarted`: the checkpoint of an attempt cannot be had; `prune`: it
# is told to stop; `target`: its value ends the sweep; `suggested`: sets were made
NO_STEPS = frozenset(
    "created added suggested held pause resume stop cancel set restarted prune target".split()
)

# event → the states that it may find a trial in, and the one that it leaves it in
STEPS: Mapping[str, tuple[frozenset[TrialState], TrialState]] = {
    "claimed": (frozenset({_Q}), _R),
    "resumed": (frozenset({_Q}), _R),
    "requeued": (frozenset({_R}), _Q),
    "retried": (_ENDS, _Q),
    "reused": (frozenset({_Q}), TrialState.FINISHED),  # of an older sweep, as if attempt 1
    **{end.value: (frozenset({_Q, _R}), end) for end in _ENDS},
}
# where the number of a trial in this state lies
_PLACES: Mapping[TrialState, frozenset[str]] = {
    _Q: frozenset({"waiting"}),
    _R: frozenset({"running", "leases"}),
    **{end: frozenset({"ended"}) for end in _ENDS},
}
DROPPED = frozenset({"dropped"})  # cancelled before anyone claimed it


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What is wrong with a trial (0: with the sweep), and all that happened to it."""

    trial: int
    what: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The verdict. `latencies_ms` are rising: from a lost attempt's last beat to its requeue."""

    trials: int
    open: int  # queued or running: not judged to their end yet
    events: int
    violations: tuple[Violation, ...]
    ends: Mapping[str, int]
    requeues: Mapping[str, int]  # by reason
    reused: int  # of the ends, results of older sweeps
    late: int  # attempts that came back after their lease was reaped, and were taken
    latencies_ms: tuple[int, ...]
    unknown: Mapping[str, int]  # events that this version does not know

    def quantile_ms(self, share: float) -> int | None:
        """The smallest latency that this share of all does not exceed; None where there is none."""
        if not self.latencies_ms:
            return None
        rank = -int(-share * len(self.latencies_ms) // 1)  # rounded up
        return self.latencies_ms[max(0, rank - 1)]


class _Life:
    """What the events of one trial lead to."""

    __slots__ = ("attempt", "is_reaped", "state", "told")

    def __init__(self) -> None:
        self.state, self.attempt, self.is_reaped, self.told = _Q, 0, False, ""


class Replay:
    """Folds events; `judge` and `judge_books` then compare."""

    def __init__(self, replicates: int = 1, is_ranked: bool = True) -> None:
        self._results = Results(replicates, is_ranked)
        self._wrongs: list[tuple[int, str]] = []
        self._events = self._created = self._late = self._reused = 0
        self._may_drop = False  # stop, cancel and run_cap drop what waits without an event of each
        self._lives: dict[int, _Life] = {}
        self._requeues: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._latencies_ms: list[int] = []

    @property
    def created(self) -> int:
        """How many trials the sweep was created with."""
        return self._created

    def see(self, event: Event) -> None:
        """Take the next event."""
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
        life = self._lives.setdefault(event.trial, _Life())
        reason = event.fields.get("reason") or event.fields.get("kind") or ""
        told = f"{event.what} {event.attempt}" + (f" ({reason})" if reason else "")
        life.told += f"\n{told}" if life.told else told
        if wrong := self._wrong(life, event):
            self._wrongs.append((event.trial, wrong))
        if life.state is _Q and life.is_reaped and event.what not in ("claimed", "cancelled"):
            self._late += 1
        self._reused += event.what == "reused"
        if event.what == "requeued":
            self._requeues[reason] += 1
            if beat_ms := _whole(event.fields.get("beat_ms")):
                self._latencies_ms.append(max(0, event.at_ms - beat_ms))
        life.is_reaped = event.what == "requeued" and reason == "lost"
        life.state = STEPS[event.what][1]
        self._results.see(event)
        life.attempt = max(life.attempt, event.attempt)

    def _wrong(self, life: _Life, event: Event) -> str | None:
        what, attempt, latest = event.what, event.attempt, life.attempt
        if what in ("claimed", "reused") and attempt != latest + 1:
            return f"attempt {attempt} follows attempt {latest}"
        if what not in ("claimed", "reused") and attempt != latest:
            return f"{what} by attempt {attempt}, and the latest is {latest}"
        is_late = life.state is _Q and life.is_reaped
        if what == "requeued" and is_late:  # the lost attempt came back with a failure
            return None
        if what == "retried" and life.state is _Q and not latest and self._may_drop:
            return None  # dropped with all that waited
        sources, target = STEPS[what]
        if life.state in _ENDS and target in _ENDS:
            return f"it ended twice: {life.state}, then {what}"
        if life.state not in sources or target not in TRANSITIONS[life.state]:
            return f"{what} while it was {life.state}"
        taken_back = what == "resumed" or (target in _ENDS and what not in ("cancelled", "reused"))
        if life.state is _Q and taken_back and not is_late:
            return f"{what} while it was queued, and its lease had not been lost"
        return None

    def _violation(self, number: int, what: str) -> Violation:
        life = self._lives.get(number)
        events = tuple(life.told.split("\n")) if life else ()
        return Violation(trial=number, what=what, events=events)

    def judge(self, record: TrialRecord) -> bool:
        """Compare one trial of the store with its events; a difference is a violation."""
        wrong = self.differs(record)
        if wrong:
            self._wrongs.append((record.number, wrong))
        return wrong is None

    def differs(self, record: TrialRecord) -> str | None:
        """What is different between the store and the events; None where nothing is."""
        life = self._lives.get(record.number) or _Life()
        if not record.has_params:
            return "it is lost: its parameters are gone"
        places = _PLACES[life.state]
        is_dropped = life.state is TrialState.CANCELLED or "dropped" in record.places
        if not life.attempt and is_dropped:
            if life.state is _Q and not self._may_drop:
                return "it was dropped, and no event says so"
            places = DROPPED
        elif (record.state, record.attempt) != (life.state, life.attempt):
            return (
                f"the store has it {record.state} in attempt {record.attempt},"
                f" its events say {life.state} in attempt {life.attempt}"
            )
        if record.places != places:
            there = ", ".join(sorted(record.places)) or "nowhere"
            return f"it is {life.state} and lies in {there}, not in {', '.join(sorted(places))}"
        result = record.result
        return self._results.differs(record.number, life.state, result) if result else None

    def counters_differ(self, counters: SweepCounters) -> list[str]:
        """What is different between the sweep's counters and the events."""
        lives = [life for life in self._lives.values() if life.attempt]
        tally = Counter(life.state for life in lives)
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
        out = [f"{name}: {has}, its events say {say}" for name, has, say in found if has != say]
        beyond = [n for n in self._lives if not 1 <= n <= max(counters.total, self._created)]
        return out + [f"events of trial {n}, and there are {counters.total}" for n in beyond[:5]]

    def verdict(self, counters: SweepCounters) -> Audit:
        """All that was found; the sweep's counters are judged with it."""
        whole = [Violation(trial=0, what=what) for what in self.counters_differ(counters)]
        return Audit(
            trials=counters.total,
            open=counters.waiting + counters.running,
            events=self._events,
            violations=(*whole, *(self._violation(n, what) for n, what in sorted(self._wrongs))),
            ends={end.value: counters.ends.get(end, 0) for end in TrialState if end in _ENDS}
            | {"cancelled": counters.ends.get(TrialState.CANCELLED, 0) + counters.dropped},
            requeues=dict(sorted(self._requeues.items())),
            reused=self._reused,
            late=self._late,
            latencies_ms=tuple(sorted(self._latencies_ms)),
            unknown=dict(self._unknown),
        )


def audit(
    events: Iterable[Event], counters: SweepCounters, records: Sequence[TrialRecord]
) -> Audit:
    """The verdict on a sweep whose events, counters and trials are all at hand."""
    replay = Replay()
    for event in events:
        replay.see(event)
    for record in records:
        replay.judge(record)
    return replay.verdict(counters)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
