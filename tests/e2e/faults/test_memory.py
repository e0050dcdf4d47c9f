"""A server at its maxmemory under real workers: what runs ends well, what waits waits."""

from __future__ import annotations

import pytest

from hpq.domain.trial import TrialId
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids


@pytest.mark.slow
def test_workers_on_a_server_at_its_maxmemory_end_what_they_run_and_then_wait(lab) -> None:
    """F15: maxmemory is reached while two of four trials run, and raised again."""
    sid = lab.steered(4)
    fleet = lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    lab.redis.config_set("maxmemory", 1)
    lab.go()
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.finished == 2, "two results")
    lab.wait_until(lambda: "redis-memory" in ids(lab.log()), "the line that says why")
    assert lab.reader.sweeps.get(sid).counts.queued == 2 and len(lab.reader.workers.live()) == 2
    done = lab.hpq("enqueue", lab.code / "sweep-1.yaml", "--new")
    assert done.returncode == 3 and "maxmemory" in done.stderr
    lab.redis.config_set("maxmemory", 0)
    lab.wait_over(sid)
    assert [t.objective for t in lab.reader.trials.all(sid)] == [0.1, 0.2, 0.3, 0.4]
    assert all(lab.events(sid, n) == ["claimed", "finished"] for n in range(1, 5))
    assert fleet.poll() is None and "Traceback" not in lab.log()


@pytest.mark.slow
def test_a_worker_that_starts_on_a_full_server_makes_room_and_runs_trials(lab) -> None:
    """F15: maxmemory is reached while no worker runs."""
    ended = lab.steered(1)
    lab.go()
    first = lab.worker()
    lab.wait_over(ended)
    first.terminate()
    assert first.wait(DEADLINE_S) == 0
    curves = lab.keys.trial(TrialId(sweep=ended, number=1), "points")
    assert lab.redis.exists(curves)
    sid = lab.steered(2)
    lab.redis.config_set("maxmemory", 1)
    lab.worker()
    lab.wait_until(lambda: not lab.redis.exists(curves), "room")
    lab.redis.config_set("maxmemory", 0)
    lab.wait_over(sid)
    assert not {"worker-ended", "value-unreadable"} & set(ids(lab.log()))


@pytest.mark.slow
def test_a_lease_on_a_full_server_is_kept_and_a_lost_one_is_reaped(lab, short_lease) -> None:
    """F15: maxmemory is reached for longer than two leases."""
    sid = lab.steered(2)
    lab.worker()
    lab.wait_for("began-1-1")
    lab.redis.config_set("maxmemory", 1)
    claimed = lab.trial(sid).claimed_ms
    beyond_ms = claimed + 2000 * short_lease
    lab.wait_until(lambda: lab.trial(sid).beat_ms > beyond_ms, "beats beyond two leases")
    assert lab.events(sid) == ["claimed"]
    lab.redis.config_set("maxmemory", 0)
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "finished"]
