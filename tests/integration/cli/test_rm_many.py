"""`hpq rm --older` and `hpq archive --older --rm`: what they delete, name and keep."""

from __future__ import annotations

import subprocess

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome
from hpq.domain.trial import Claim, TrialState
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from tests.conftest import MakeSweep
from tests.support.ids import ids, refused

ENDED, OLD, OTHERS, RUNNING, WAITING = "ended-00000", "old-00000", "anns-00000", "run-00000", "w-0"


def make_idle(redis: Redis, sid: str) -> None:
    """Move all events of a sweep nine days into the past."""
    key = Keys("hpq").sweep(sid, "events")
    entries = redis.xrange(key)
    redis.delete(key)
    for eid, fields in entries:
        ms, number = eid.decode().split("-")
        redis.xadd(key, fields, id=f"{int(ms) - 9 * 86_400_000}-{number}")


@pytest.fixture
def sweeps(redis, sweep_of: MakeSweep, take, store, control) -> None:
    """Sweeps that are over now, long over, another user's, running, and waiting for nine days."""
    for sid in (ENDED, OLD, OTHERS, RUNNING):
        sweep_of(1, sid, owner="ann" if sid == OTHERS else "me", digest=sid)
        claim = take()
        assert isinstance(claim, Claim) and claim.trial.sweep == sid
        if sid != RUNNING:
            store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0))
    sweep_of(2, WAITING, digest=WAITING)
    control.pause(WAITING)
    for sid in (OLD, OTHERS, WAITING):
        make_idle(redis, sid)
        redis.zadd("hpq:sweeps", {sid: 1})  # created before that


def left(reader: StoreReader) -> set[str]:
    return set(reader.sweeps.ids())


@pytest.mark.parametrize("command", [("rm", "--yes"), ("archive", "--rm", "kept")])
@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--older", "0"], {ENDED, OLD}),
        (["--older", "7d"], {OLD}),
        (["--older", "30d"], set()),
        (["--older", "7d", "--force"], {OLD, OTHERS}),
        (["--older", "0", "--force"], {ENDED, OLD, OTHERS}),
    ],
)
def test_only_my_sweeps_that_are_over_and_old_enough_go(
    hpq, sweeps, reader: StoreReader, tmp_path, command, words: list[str], gone: set[str]
) -> None:
    done = hpq(*command, *words)
    assert done.returncode == 0, done.stderr
    assert left(reader) == {ENDED, OLD, OTHERS, RUNNING, WAITING} - gone
    assert {sid for sid in (ENDED, OLD, OTHERS) if f"{sid}: " in done.stderr} == gone
    if command[0] == "archive":
        assert {path.name for path in (tmp_path / "kept").iterdir()} == {f"{g}.hpq" for g in gone}


@pytest.mark.parametrize("command", [("rm", "--yes"), ("archive", "--rm", "kept")])
def test_the_age_of_a_sweep_that_came_back_begins_anew(
    hpq, sweeps, redis, reader: StoreReader, command
) -> None:
    redis.hset(Keys("hpq").sweep(OLD), "restored_ms", reader.now_ms() - 86_400_000)
    assert hpq(*command, "--older", "7d").returncode == 0
    assert OLD in left(reader)
    assert hpq(*command, "--older", "12h").returncode == 0
    assert OLD not in left(reader)


def test_the_sweeps_are_named_before_hpq_asks(hpq, sweeps, reader: StoreReader) -> None:
    done: subprocess.CompletedProcess[str] = hpq("rm", "--older", "0")
    refused(done, "confirmation-missing", "2 sweeps")
    assert ENDED in done.stderr and OLD in done.stderr and RUNNING not in done.stderr
    assert len(left(reader)) == 5


@pytest.mark.parametrize(
    "line",
    [
        "rm --yes --older soon",
        "rm --yes --older -1d",
        f"rm --yes {OLD} --older 0",
        "archive --older soon --rm kept",
        "archive --rm kept",
        "archive --older 0",
        "archive --older 0 kept",
        "archive --rm --older 0 kept",
        f"archive {OLD} --older 0 --rm kept",
        f"archive {OLD} x.hpq --force",
        "archive --older 0 --rm kept --all kept",
        "archive --all kept --force",
    ],
)
def test_what_names_no_age_or_two_choices_is_refused(
    hpq, sweeps, reader, tmp_path, line: str
) -> None:
    refused(hpq(*line.split()), "usage")
    assert len(left(reader)) == 5 and not (tmp_path / "kept").exists()


def test_a_sweep_that_changed_meanwhile_stays(hpq, sweeps, reader, control, monkeypatch) -> None:
    def retried(question: str, yes: bool) -> None:
        control.retry(OLD, [1])

    monkeypatch.setattr("hpq_producer.commands.change.rm.confirm", retried)
    done = hpq("rm", "--older", "0")
    assert done.returncode == 0 and "sweep-changed" in ids(done.stderr)
    assert left(reader) == {OLD, OTHERS, RUNNING, WAITING}
