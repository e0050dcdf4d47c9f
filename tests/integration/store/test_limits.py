"""`hpq set` while a sweep runs: what the next claim minds, what run_cap drops and brings back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from redis import Redis

from hpq.domain.attempt import Capped, Nothing, Outcome, WorkerPresence
from hpq.domain.sweep import MAX_PRIORITY, SweepState, SweepView
from hpq.domain.trial import Claim, TrialState
from hpq.errors import UserError
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.yamlfile.strict_model import value_of
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.actions.set_limits import limits
from hpq_producer.sweepfile.model import CommonKeys
from tests.support.ids import raises

Hpq = Callable[..., subprocess.CompletedProcess[str]]
MakeSweep = Callable[..., SweepView]
Take = Callable[[], Claim | Nothing]
SID = "demo-00000"


def states(reader: StoreReader) -> str:
    return "".join(t.state.value[0] for t in reader.trials.all(SID))


def test_a_lower_run_cap_drops_the_last_and_a_higher_one_brings_them_back(
    store: TrialStore,
    writer: SweepWriter,
    reader: StoreReader,
    redis: Redis,
    keys: Keys,
    sweep_of: MakeSweep,
    take: Take,
    control: SweepControl,
) -> None:
    sweep_of(6, SID)
    first = take()
    assert first is not None
    control.cancel(SID, [3])
    for _ in range(2):  # sent twice
        done = writer.set_run_cap(SID, 3)
    assert states(reader) == "rqcqcc" and done == Capped(dropped=0, back=0, trials=3)
    assert redis.llen(keys.demand("default")) == 3
    store.commit(first, Outcome(state=TrialState.FINISHED, objective=1.0))
    assert writer.set_run_cap(SID, 1) == Capped(dropped=2, back=0, trials=1)
    assert reader.sweeps.get(SID).state is SweepState.FINISHED and take() == Nothing()
    assert writer.set_run_cap(SID, 4) == Capped(dropped=0, back=3, trials=4)
    assert states(reader) == "fqcqqc"  # what a person cancelled stays so
    second = take()
    assert second is not None and second.trial.number == 2
    assert writer.set_run_cap(SID, 0) == Capped(dropped=0, back=1, trials=5)
    assert redis.llen(keys.demand("default")) == 4
    assert audit_sweep(reader, SID).violations == ()


def test_what_has_begun_is_beyond_a_cap(
    store: TrialStore, writer: SweepWriter, reader: StoreReader, sweep_of: MakeSweep, take: Take
) -> None:
    sweep_of(4, SID)
    claims = [take() for _ in range(3)]
    assert isinstance(claims[2], Claim)
    store.release(claims[2], "stopping")  # type: ignore[arg-type]
    assert writer.set_run_cap(SID, 1) == Capped(dropped=1, back=0, trials=3)
    assert states(reader) == "rrqc"
    assert audit_sweep(reader, SID).violations == ()


def test_a_sweep_that_was_cancelled_takes_no_cap(
    writer: SweepWriter, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(2, SID)
    control.cancel(SID)
    with pytest.raises(UserError, match="hpq retry"):
        writer.set_run_cap(SID, 9)


def test_set_changes_all_limits_at_once_and_its_events_say_to_what(
    hpq: Hpq,
    reader: StoreReader,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    take: Take,
) -> None:
    sweep_of(5, SID)
    sweep_of(1, "late-00000")
    assert isinstance(take(), Claim)
    words = ("run_cap=3", "max_parallel=1", "priority=7", "timeout=90s", "stall=2h")
    done = hpq("set", SID, *words)
    assert done.returncode == 0 and "2 trials " in done.stderr
    assert done.stderr.startswith(f"{SID}: {' '.join(words)}; ")
    one = reader.sweeps.get(SID)
    assert (one.max_parallel, one.priority, one.timeout_s, one.counts.total) == (1, 7, 90.0, 5)
    got = take()
    assert (
        isinstance(got, Claim) and got.trial.sweep == "late-00000"
    )  # max_parallel, at the next claim
    told = [e.fields for e in reader.events.read(SID) if e.what == "set"]
    assert told[0].items() >= {"max_parallel": "1", "priority": "7", "timeout_s": "90.0"}.items()
    assert told[1].items() >= {"run_cap": "3", "touched": "2"}.items()
    more = hpq("set", SID, "run_cap=9")
    assert "`hpq add demo-00000 --count 4`" in more.stderr


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("run_cp=3", "run_cap?"),
        ("metric=acc", "hpq enqueue FILE --reuse"),
        ("method=grid", "method=grid: method "),
        ("patience=3", ", stall, tags, note"),
    ],
)
def test_a_limit_that_is_none_is_told_what_was_meant(word: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        limits([word])
    assert hint in str(caught.value)


def test_set_takes_the_numbers_that_a_sweep_file_takes() -> None:
    ends = {
        "priority": (-MAX_PRIORITY, MAX_PRIORITY),
        "max_parallel": (0, 100_000),
        "retries": (0, 100),
    }
    for key, (low, high) in ends.items():
        for end in (low, high):
            assert limits([f"{key}={end}"]) == {key: str(end)}
            assert value_of(CommonKeys, key, end) == end
        for beyond in (low - 1, high + 1):
            with pytest.raises(ValueError, match=f"{beyond} "):
                value_of(CommonKeys, key, beyond)
            with raises("invalid-value", key):
                limits([f"{key}={beyond}"])
    assert limits(["timeout=365d"]) == {"timeout_s": "31536000.0"}
    with raises("invalid-value", "timeout=366d"):
        limits(["timeout=366d"])
    assert limits([f"note={'x' * 1_000}"]) and limits(["note="]) == {"note": ""}
    with raises("invalid-value", "note"):
        limits([f"note={'x' * 1_001}"])


@pytest.mark.parametrize("word", ["run_cap=-1", "run_cap=1.5", "run_cap=", "run_cp=3"])
def test_a_limit_that_cannot_be_is_refused_and_nothing_is_set(
    hpq: Hpq, reader: StoreReader, sweep_of: MakeSweep, word: str
) -> None:
    sweep_of(2, SID)
    done = hpq("set", SID, "max_parallel=9", word)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert reader.sweeps.get(SID).max_parallel == 0
