"""What a worker's reaper logs of the trials that it takes from lost workers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.trial import TrialState
from hpq.settings import read
from hpq.store.control import SweepControl
from hpq.store.trials import TrialStore
from hpq_worker.health.telemetry import Telemetry
from hpq_worker.lease.reaper import Reaper
from hpq_worker.lease.redis_outage import Outage

LEASE = 30_000


def test_the_reaper_tells_what_is_queued_again_from_what_is_over(
    store: TrialStore,
    sweep_of,
    take,
    who: WorkerPresence,
    redis: Redis,
    keys,
    caplog: pytest.LogCaptureFixture,
    control: SweepControl,
) -> None:
    sid = sweep_of(3).id
    store.reap("default", lease_ms=LEASE, lost_max=2)
    busy = replace(who, fields={"state": "busy", "fault": ""})
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_LOST_MAX": "2"})

    def said() -> list[str]:
        caplog.clear()
        redis.zadd(keys.leases, {name: 0 for name in redis.zrange(keys.leases, 0, -1)})
        reaper = Reaper(settings, store, lambda: (busy, False), Telemetry(None), Outage())
        reaper.start()
        reaper.stop()
        return caplog.messages

    take()
    (line,) = said()
    assert line.startswith("1 trial ")
    told, *_ = take(), take(), take()
    control.cancel(sid, [told.trial.number + 1])
    again, over = said()
    assert again.startswith("1 trial ") and over.startswith("2 trials ") and "poison" in over


def test_a_worker_whose_record_went_while_it_was_silent_sends_it_again(
    store: TrialStore, sweep_of, who: WorkerPresence, redis: Redis, keys, control: SweepControl
) -> None:
    """A worker is stopped for longer than it counts as live, and the last sweep is removed."""
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_REAP_S": "0.05"})
    it = replace(who, fields={"state": "idle", "fault": "", "ran_on": "d1"})
    sent: list[str] = []

    def send() -> None:
        sent.append("d1")
        store.keep_provenance("d1", '{"host":"h"}')

    def alive() -> bool:
        return bool(redis.exists(keys.worker(it.name)))

    old = sweep_of(1).id
    store.keep_provenance("d1", '{"host":"h"}')
    reaper = Reaper(settings, store, lambda: (it, True), Telemetry(None), Outage(), send)
    reaper.run_once()
    assert not sent and alive()
    claim = store.claim(it, nonce="n", lease_ms=LEASE, provenance="d1")
    assert claim is not None
    store.commit(claim, Outcome(state=TrialState.FINISHED))
    redis.delete(keys.worker(it.name))  # as it expires
    redis.zrem(keys.workers, it.name)
    control.remove(old)
    assert not redis.hexists(keys.provenance, "d1")
    reaper.run_once()
    assert sent == ["d1"] and redis.hexists(keys.provenance, "d1")
    reaper.run_once()
    assert sent == ["d1"]
