"""The audit, from hand-made events: what holds, and each kind of violation by its name."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from hpq.domain.status import Event
from hpq.domain.trial import TRANSITIONS, TrialState
from hpq.store.audit_reader import SweepCounters, TrialRecord
from hpq_ops.audit.replay import NO_STEPS, STEPS, Audit, Replay
from tests.support.constants import ROOT
from tests.support.golden import Golden

RUNNING = frozenset({"running", "leases"})
ENDED, WAITING, DROPPED = frozenset({"ended"}), frozenset({"waiting"}), frozenset({"dropped"})


def audit(
    events: Iterable[Event], counters: SweepCounters, records: Sequence[TrialRecord]
) -> Audit:
    replay = Replay()
    for event in events:
        replay.add(event)
    for record in records:
        replay.judge(record)
    return replay.verdict(counters)


def events(*told: str, total: int = 1) -> list[Event]:
    """`claimed 1`, `requeued 1 reason=lost` of trial 1; `stop` and the like of the sweep.

    A number before the word names another trial: `2 claimed 1`.
    """
    out = [Event(id="1-0", what="created", fields={"count": str(total)})]
    for i, text in enumerate(told, start=2):
        words = text.split()
        number = int(words.pop(0)) if words[0].isdigit() else 1
        what, *rest = words
        pairs = dict(word.split("=") for word in rest if "=" in word)
        attempt = int(rest[0]) if rest and rest[0].isdigit() else None
        trial = 0 if attempt is None else number
        out.append(
            Event(id=f"{i}000-0", what=what, trial=trial, attempt=attempt or 0, fields=pairs)
        )
    return out


def record(state: str, attempt: int, indexes: frozenset[str], number: int = 1) -> TrialRecord:
    return TrialRecord(number=number, state=state, attempt=attempt, indexes=indexes)


def counters_of(records: list[TrialRecord], total: int | None = None) -> SweepCounters:
    """The counters that fit these trials."""
    places = Counter(place for s in records for place in s.indexes)
    ends = Counter(s.state for s in records if "ended" in s.indexes)
    return SweepCounters(
        total=len(records) if total is None else total,
        waiting=places["waiting"],
        running=places["running"],
        dropped=places["dropped"],
        ended=places["ended"],
        ends={state: ends[state] for state in TrialState if state.is_terminal},
    )


def _of_sweep(found: Audit) -> str:
    return "\n".join(v.what for v in found.violations if not v.trial)


def held(told: list[str], *records: TrialRecord) -> Audit:
    """The verdict where the counters fit the trials."""
    some = list(records)
    return audit(events(*told, total=len(some)), counters_of(some), some)


FINISHED = record("finished", 1, ENDED)
SECOND = record("finished", 2, ENDED)
HOLDS: dict[str, tuple[list[str], TrialRecord]] = {
    "waits": ([], record("queued", 0, WAITING)),
    "runs": (["claimed 1"], record("running", 1, RUNNING)),
    "ends": (["claimed 1", "finished 1"], FINISHED),
    "is given back": (
        ["claimed 1", "requeued 1 reason=stopping", "claimed 2", "finished 2"],
        SECOND,
    ),
    "is lost": (
        ["claimed 1", "requeued 1 reason=lost beat_ms=2500", "claimed 2", "finished 2"],
        SECOND,
    ),
    "is lost and comes back late": (
        ["claimed 1", "requeued 1 reason=lost", "finished 1"],
        FINISHED,
    ),
    "is lost and goes on": (
        ["claimed 1", "requeued 1 reason=lost", "resumed 1", "finished 1"],
        FINISHED,
    ),
    "is lost and fails late": (
        ["claimed 1", "requeued 1 reason=lost", "requeued 1 reason=killed", "claimed 2",
         "finished 2"],
        SECOND,
    ),
    "is retried": (["claimed 1", "failed 1", "retried 1", "claimed 2", "finished 2"], SECOND),
    "is dropped": (["stop"], record("queued", 0, DROPPED)),
    "is cancelled by itself": (["cancelled 0", "cancel"], record("queued", 0, DROPPED)),
    "is dropped and retried": (["cancel", "retried 0"], record("queued", 0, WAITING)),
    "is cancelled while it waits again": (
        ["claimed 1", "requeued 1 reason=killed", "cancelled 1", "cancel"],
        record("cancelled", 1, ENDED),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOLDS)
def test_a_trial_that(case: str) -> None:
    told, there = HOLDS[case]
    assert held(told, there).violations == ()


VIOLATIONS: dict[str, tuple[list[str], TrialRecord]] = {
    "ends twice": (["claimed 1", "finished 1", "finished 1"], FINISHED),
    "ends by an old attempt": (
        ["claimed 1", "requeued 1 reason=lost", "claimed 2", "finished 1"],
        SECOND,
    ),
    "has an attempt that does not rise": (
        ["claimed 1", "requeued 1 reason=lost", "claimed 1", "finished 1"],
        FINISHED,
    ),
    "misses an attempt": (["claimed 2", "finished 2"], SECOND),
    "is claimed while it runs": (["claimed 1", "claimed 2", "finished 2"], SECOND),
    "is claimed after its end": (["claimed 1", "finished 1", "claimed 2", "finished 2"], SECOND),
    "is requeued after its end": (
        ["claimed 1", "finished 1", "requeued 1 reason=lost"],
        record("queued", 1, WAITING),
    ),
    "is retried while it runs": (["claimed 1", "retried 1", "claimed 2", "finished 2"], SECOND),
    "ends after it was given back": (
        ["claimed 1", "requeued 1 reason=stopping", "finished 1"],
        FINISHED,
    ),
    "ends without a claim": (["finished 0"], record("finished", 0, ENDED)),
    "is retried from nowhere": (["retried 0"], record("queued", 0, WAITING)),
    "is in no set": (["claimed 1", "requeued 1 reason=lost"], record("queued", 1, frozenset())),
    "is in two sets": (["claimed 1", "finished 1"], record("finished", 1, ENDED | WAITING)),
    "runs without a lease": (["claimed 1"], record("running", 1, frozenset({"running"}))),
    "has lost its end": (["claimed 1", "finished 1"], record("running", 1, RUNNING)),
    "disappeared": ([], record("queued", 0, DROPPED)),
    "has lost its parameters": ([], TrialRecord(number=1, has_params=False)),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_violation_names_the_trial_its_events_and_what_is_wrong_where_it(
    golden: Golden, case: str
) -> None:
    told, there = VIOLATIONS[case]
    violations = [v for v in held(told, there).violations if v.trial]
    assert len(violations) == 1 and violations[0].trial == 1
    golden.check("audit", f"a trial that {case}", violations[0].what)
    assert [text.split(" (")[0] for text in violations[0].events] == [
        " ".join(word for word in text.split() if "=" not in word) for text in told
    ]


@pytest.mark.parametrize("field", ["total", "running", "waiting", "ended"])
def test_a_set_whose_size_is_not_what_the_events_say(golden: Golden, field: str) -> None:
    right = counters_of([FINISHED])
    fields = {f: getattr(right, f) for f in right.__slots__} | {field: getattr(right, field) + 1}
    found = audit(events("claimed 1", "finished 1"), SweepCounters(**fields), [FINISHED])
    golden.check("audit", f"a set of another size: {field}", _of_sweep(found))


def test_a_counter_that_is_not_what_the_events_say(golden: Golden) -> None:
    right = counters_of([FINISHED])
    wrong = SweepCounters(total=1, ended=1, ends={**right.ends, TrialState.FINISHED: 2})
    found = audit(events("claimed 1", "finished 1"), wrong, [FINISHED])
    golden.check("audit", "a counter that is wrong", _of_sweep(found))


def test_events_of_a_trial_that_the_sweep_does_not_have(golden: Golden) -> None:
    found = held(["claimed 1", "finished 1", "9 claimed 1"], FINISHED)
    golden.check("audit", "events of a trial that is not there", _of_sweep(found))


def test_a_sweep_that_still_runs_is_judged_so_far() -> None:
    waits = record("queued", 0, WAITING, 2)
    runs = record("running", 1, RUNNING, 3)
    found = held(["claimed 1", "finished 1", "3 claimed 1"], FINISHED, waits, runs)
    assert found.violations == () and found.open == 2 and found.ends["finished"] == 1


def test_sets_that_were_made_later_count_as_those_that_were_there(golden: Golden) -> None:
    told = events("suggested 0 count=1", "claimed 1", "finished 1", total=0)
    assert not audit(told, counters_of([FINISHED]), [FINISHED]).violations
    lost = audit(
        [*told, *events("suggested 0 count=1", total=0)], counters_of([FINISHED]), [FINISHED]
    )
    golden.check("audit", "a suggested set that is not there", _of_sweep(lost))


def test_latencies_are_from_the_last_beat_to_the_requeue() -> None:
    told = []
    for attempt in range(1, 101):  # claimed at 2 s, 4 s, …; requeued a second later
        at = (2 * attempt + 1) * 1000
        told += [f"claimed {attempt}", f"requeued {attempt} reason=lost beat_ms={at - attempt}"]
    found = held(told, record("queued", 100, WAITING))
    assert found.violations == ()
    quantiles = [found.quantile_ms(share) for share in (0.5, 0.99, 1.0)]
    assert quantiles == [50, 99, 100] and found.requeues == {"lost": 100}
    assert held([], record("queued", 0, WAITING)).quantile_ms(0.5) is None


def test_an_event_that_hpq_does_not_write_is_a_violation_of_the_sweep() -> None:
    found = held(["claimed 1", "photographed 1", "finished 1"], FINISHED)
    (odd,) = found.violations
    assert odd.trial == 0 and "photographed" in odd.what


def test_the_audit_knows_every_event_that_a_script_appends() -> None:
    scripts = (ROOT / "hpq" / "store" / "lua").rglob("*.lua")
    text = "\n".join(path.read_text("utf-8") for path in scripts)
    words = set(re.findall(r"\bevent(?:_ids)?\((?:sid|t|s\.SID), '(\w+)'", text))
    words |= set(re.findall(r"function verbs\.(\w+)", text))
    assert len(words) > 10 and words <= NO_STEPS | set(STEPS)


def test_every_step_of_an_event_is_in_the_table_of_transitions() -> None:
    for sources, target in STEPS.values():
        assert all(target in TRANSITIONS[source] for source in sources)
    steps = {(source, target) for sources, target in STEPS.values() for source in sources}
    assert steps == {(a, b) for a, targets in TRANSITIONS.items() for b in targets}


def test_the_replay_of_a_trial_takes_few_bytes_however_large_its_number_is() -> None:
    replay, count = Replay(), 20_000

    def end(numbers: Iterable[int]) -> None:
        for n in numbers:
            for what in ("claimed", "finished"):
                told = {"objective": str(n / 7)}
                replay.add(Event(id="1-0", what=what, trial=n, attempt=1, fields=told))

    end([1, 2**62])
    tracemalloc.start()
    try:
        end(range(1_000, 1_000 + count))
        spent = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert spent < 50, "bytes a trial: a million would take more than 50 MB"
