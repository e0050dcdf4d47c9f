"""`hpq user`, and what commands say of operators' limits of owners."""

from __future__ import annotations

import json

import pytest

from hpq.domain.attempt import WorkerPresence
from hpq.domain.trial import Claim
from tests.support.ids import ids, refused

SWEEP = """
command: [echo, "loss=1"]
method: grid
metric: {name: loss}
parameters: {x: {values: [1, 2, 3]}}
"""


@pytest.fixture
def busy(store, take):
    """Return a function that lets a worker run one trial."""

    def busy(name: str = "w1") -> Claim:
        fields = {"state": "busy", "takes": '["digits"]'}
        who = WorkerPresence(name=name, host="h1", queue="default", fields=fields)
        claim = store.claim(who, nonce=name, lease_ms=30_000)
        store.present(who, idle=False, lifetime_ms=90_000)
        assert isinstance(claim, Claim)
        return claim

    return busy


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ana", "--limit", "runing=8"), "unknown-key"),
        (("ana", "--limit", "running"), "unknown-key"),
        (("ana", "--limit", "running=-1"), "invalid-value"),
        (("ana", "--limit", "running=1.5"), "invalid-value"),
        (("ana", "--limit", "running="), "invalid-value"),
        (("ana", "--limit", "priority=1001"), "invalid-value"),
        (("ana", "--limit", "gpu_hours=nan"), "invalid-value"),
        (("ana", "--limit", "gpu_hours=inf"), "invalid-value"),
        (("ana", "--limit", "running=1", "--limit", "running=none"), "conflicting-keys"),
        (("--limit", "running=1"), "usage"),
        (("", "--limit", "running=1"), "usage"),
    ],
)
def test_a_limit_that_is_none_is_refused_and_nothing_changes(hpq, redis, words, code) -> None:
    refused(hpq("user", *words), code)
    assert redis.keys("*limits*") == []


def test_owners_are_listed_with_their_limits_and_what_they_use(hpq, sweep_of, take) -> None:
    assert "no limits" in hpq("user").stderr
    sweep_of(3, owner="ana")
    done = hpq("user", "anna", "--limit", "running=2")
    assert done.returncode == 0 and "ana" in done.stderr  # a note: no sweep is anna's
    hpq("user", "anna", "--limit", "running=none")
    hpq("user", "ana", "--limit", "running=2", "--limit", "gpu_hours=0.5")
    hpq("user", "*", "--limit", "priority=10", "--limit", "running=9")
    take()
    everybody, ana = json.loads(hpq("user", "-o", "json").stdout)
    assert everybody["owner"] == "*" and everybody["defaults"] == []
    assert (ana["owner"], ana["running"], ana["gpu_hours"]) == ("ana", 1, 0.0)
    assert ana["limits"] == {"running": 2, "gpu_hours": 0.5, "priority": 10}
    assert ana["defaults"] == ["priority"]
    refused(hpq("user", "bob"), "not-found", exit=4)
    for word in ("running", "gpu_hours"):
        hpq("user", "ana", "--limit", f"{word}=none")
    (ana,) = json.loads(hpq("user", "ana", "-o", "json").stdout)
    assert ana["limits"] == {"running": 9, "gpu_hours": None, "priority": 10}


def test_a_priority_above_the_limit_is_refused_before_anything_is_written(
    hpq, tmp_path, redis, reader
) -> None:
    hpq("user", "*", "--limit", "priority=10", "--limit", "running=2")
    path = tmp_path / "s.yaml"
    path.write_text(f"priority: 11\n{SWEEP}", "utf-8")
    refused(hpq("enqueue", path), "owner-limit", "10", exit=4)
    assert reader.sweeps.ids() == [] and redis.keys("hpq:s:*") == []
    path.write_text(f"priority: 10\n{SWEEP}", "utf-8")
    done = hpq("enqueue", path)
    assert done.returncode == 0 and "2 trials" in done.stderr
    refused(hpq("set", "priority=11"), "owner-limit", "10", exit=4)
    assert hpq("set", "priority=-3").returncode == 0


def test_a_new_sweep_is_warned_of_hours_when_a_fifth_of_them_is_left(
    hpq, tmp_path, redis, keys
) -> None:
    hpq("user", "*", "--limit", "gpu_hours=10")
    path = tmp_path / "s.yaml"
    path.write_text(SWEEP, "utf-8")
    for used_hours, is_warned in ((7, False), (8, True)):
        redis.hset(keys.spent, "me", used_hours * 3_600_000)
        assert ("of 10 GPU-hours of me" in hpq("enqueue", path, "--new").stderr) == is_warned


@pytest.mark.parametrize("limit", ["running=0", "gpu_hours=0", "priority=-1"])
def test_a_sweep_that_a_limit_stops_is_no_riddle(hpq, sweep_of, limit: str) -> None:
    """With the command that raises the limit, in each view; without a worker, too."""
    sweep_of(3, sid="demo-00000", owner="me")
    assert "owner-limit" not in ids(hpq("ls").stderr)
    hpq("user", "me", "--limit", limit)
    for words in (("ls",), ("show", "demo-00000"), ("watch", "--once", "demo-00000")):
        done = hpq(*words)
        said = done.stdout + done.stderr
        assert f"hpq user me --limit {limit.partition('=')[0]}=" in " ".join(said.split()), words
    (row,) = json.loads(hpq("ls", "-o", "json").stdout)
    assert row["state"] == "waiting"


def test_an_owner_at_its_limit_is_told_what_it_waits_for(hpq, sweep_of, busy, store) -> None:
    sweep_of(1, sid="first-00000", owner="me")
    second = sweep_of(3, sid="second-00000", owner="me", priority=-1).id
    hpq("user", "me", "--limit", "running=1")
    busy()
    assert "owner-limit" in ids(hpq("ls").stderr)
    hpq("user", "me", "--limit", "running=2")
    assert "owner-limit" not in ids(hpq("ls").stderr)
    busy("w2")
    done = hpq("show", second)
    assert "hpq user me" not in done.stdout  # its trial runs: it does not wait


def test_a_sweep_that_is_passed_over_is_not_what_others_wait_behind(
    hpq, sweep_of, busy, store
) -> None:
    sweep_of(1, sid="mine-00000", owner="me")
    busy()
    sweep_of(3, sid="theirs-00000", owner="bob", priority=900)
    sweep_of(3, sid="later-00000", owner="me")
    assert "behind" in ids(hpq("ls").stderr)
    hpq("user", "*", "--limit", "priority=10")
    assert "behind" not in ids(hpq("ls").stderr)
