"""What a worker's housekeeper says of the trials that it takes from lost workers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from hpq.outcome import Presence
from hpq.settings import read
from hpq.store import Store
from worker.housekeeper import Housekeeper
from worker.outage import Outage
from worker.vitals import Vitals

LEASE = 30_000


def test_the_housekeeper_tells_what_is_queued_again_from_what_is_over(
    store: Store,
    sweep_of,
    take,
    who: Presence,
    redis: Redis,
    keys,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sid = sweep_of(3).id
    store.reap("default", lease_ms=LEASE, lost_max=2)
    busy = replace(who, fields={"state": "busy", "fault": ""})
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_LOST_MAX": "2"})

    def said() -> list[str]:
        caplog.clear()
        redis.zadd(keys.leases, {name: 0 for name in redis.zrange(keys.leases, 0, -1)})
        keeper = Housekeeper(settings, store, lambda: (busy, False), Vitals(None), Outage())
        keeper.start()
        keeper.stop()
        return caplog.messages

    take()
    assert said() == ["1 trial is queued again: the worker was lost"]
    told, *_ = take(), take(), take()
    store.control(sid, "cancel", told.trial.number + 1)
    assert said() == [
        "1 trial is queued again: the worker was lost",
        "2 trials are over: the worker was lost; poison, or told to stop before",
    ]
