"""What a worker reads of a sweep: the launch record once, the limits for each trial."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from redis import Redis

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import Launch
from hpq.domain.trial import Claim
from hpq.errors import NotFound
from hpq.settings import read
from hpq.store.control import SweepControl
from hpq.store.trials import TrialStore
from hpq_worker.attempt import trust
from hpq_worker.attempt.trust import LaunchRecords
from tests.support.worker_parts import records_of


@pytest.fixture
def launches(store: TrialStore, tmp_path: Path) -> LaunchRecords:
    home = {"HPQ_HOME": str(tmp_path), "HPQ_REDIS_URL": "unix:///x", "USER": "me"}
    return records_of(read(home), store)


def claim_of(store: TrialStore, sid: str = "") -> Claim:
    who = WorkerPresence(name="w", host="h", queue="default")
    claim = store.claim(who, nonce=secrets.token_hex(4), lease_ms=30_000, only=sid)
    assert isinstance(claim, Claim)
    return claim


def test_what_hpq_set_changes_counts_from_the_next_trial_on(
    launches: LaunchRecords, store: TrialStore, control: SweepControl, sweep_of
) -> None:
    sid = sweep_of(3, retries=1, timeout_s=60.0, stall_s=30.0).id
    sweep, refusal = launches.admit(sid, claim_of(store))
    assert refusal is None and (sweep.timeout_s, sweep.stall_s) == (60.0, 30.0)
    control.set(sid, {"timeout_s": "7.5", "stall_s": "0.0"})
    sweep, _ = launches.admit(sid, claim_of(store))
    assert (sweep.timeout_s, sweep.stall_s) == (7.5, 0.0)
    assert sweep == store.sweep(sid)


def test_a_sweep_that_was_removed_is_gone_also_for_a_worker_that_knew_it(
    launches: LaunchRecords, store: TrialStore, control: SweepControl, sweep_of
) -> None:
    sid = sweep_of(3).id
    launches.admit(sid, claim_of(store))
    control.remove(sid)
    with pytest.raises(NotFound):
        launches.admit(sid)


def test_another_sweep_under_the_id_of_a_removed_one_is_read_anew(
    launches: LaunchRecords, store: TrialStore, control: SweepControl, sweep_of
) -> None:
    sid = sweep_of(3).id
    launches.admit(sid, claim_of(store))
    control.remove(sid)
    sweep_of(3, sid=sid, launch=Launch(trainer="mnist"), digest="another", signature="another")
    assert launches.sweep(sid, claim_of(store)).launch.trainer == "mnist"


def test_a_sweep_that_was_refused_is_judged_by_what_redis_holds_the_next_time(
    launches: LaunchRecords, redis: Redis, keys, store: TrialStore, sweep_of
) -> None:
    sid = sweep_of(3, launch=Launch(trainer="other:train")).id
    assert launches.admit(sid)[1] is not None
    redis.hset(keys.sweep(sid), "launch", '{"trainer": "digits"}')
    assert launches.admit(sid)[1] is None


def test_a_worker_remembers_a_bounded_number_of_sweeps(
    launches: LaunchRecords, redis: Redis, store, sweep_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_MOST", 3)
    sids = [sweep_of(5, sid=f"demo-{i:05d}").id for i in range(5)]

    def whole_reads(sid: str) -> int:
        claim = claim_of(store, sid)
        redis.config_resetstat()
        launches.admit(sid, claim)
        return int(redis.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"])

    assert [whole_reads(sid) for sid in sids] == [1] * 5
    assert [whole_reads(sid) for sid in (sids[2], sids[4], sids[3])] == [0] * 3
    assert [whole_reads(sid) for sid in (sids[0], sids[4], sids[3], sids[2])] == [1, 0, 0, 1]
