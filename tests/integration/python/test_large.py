"""Tables of many trials: a bounded number of round trips, whatever the sweep's size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

import hpq
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId
from hpq.store.keys import Keys
from tests.support.desk import Desk

TRIALS, POINTS = 2_000, 5
LONG = 60  # points of the first trial


@pytest.fixture
def large(desk: Desk, redis: Redis, keys: Keys, sweep_of: Callable[..., SweepView]) -> hpq.Sweep:
    """A sweep of finished trials with a curve each, one of them long, written without workers."""
    sid, pipe = sweep_of(TRIALS).id, redis.pipeline(transaction=False)
    for number in range(1, TRIALS + 1):
        trial = TrialId(sweep=sid, number=number)
        for step in range(1, (LONG if number == 1 else POINTS) + 1):
            pipe.xadd(keys.points(trial, "acc"), {"s": step, "v": step / number}, id=f"{step}-1")
        row = {"state": "finished", "attempt": 1, "claimed_ms": 1, "ended_ms": 2, "m:acc": number}
        pipe.hset(keys.trial(trial), mapping=row)
        pipe.zadd(keys.sweep(sid, "ended"), {str(number): 2})
        if number % 500 == 0:
            pipe.execute()
    return hpq.Sweep(sid)


@pytest.mark.slow
def test_history_and_pandas_take_a_round_trip_for_hundreds_of_trials(
    large: hpq.Sweep, redis: Redis
) -> None:
    """The server reads a pipeline in a few pieces; a session adds about 20 reads."""
    for read, rows, per_trial, chunks in (
        (large.to_pandas, TRIALS, 1, TRIALS // 500),
        (large.history, LONG + (TRIALS - 1) * POINTS, 3, TRIALS // 500 + TRIALS // 200),
    ):
        redis.config_resetstat()
        assert len(read()) == rows
        spent = redis.info("stats")
        assert spent["total_commands_processed"] <= per_trial * TRIALS + 100, spent
        assert spent["total_reads_processed"] <= 8 * chunks + 60, spent
