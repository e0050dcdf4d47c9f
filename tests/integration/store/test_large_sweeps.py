"""A sweep of 100,000 sets: looking at it costs what a small one costs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from redis import Redis

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_a_look_at_100_000_sets_reads_no_more_than_one_at_fifty(
    hpq: Hpq, redis: Redis, sweep_of
) -> None:
    """F30: 100,000 sets are enqueued, and `hpq watch` looks."""
    spent: list[tuple[int, int]] = []
    for count, sid in ((50, "small-00000"), (100_000, "large-00000")):
        sweep_of(count, sid)
        redis.config_resetstat()
        shown = hpq("watch", sid, "--once").stdout
        told = redis.info("all")
        spent.append((told["total_commands_processed"], told["total_net_output_bytes"]))
        assert f"0/{count} " in shown
    (commands, size), (more_commands, more_size) = spent
    assert more_commands <= commands + 5 and more_size < size + 4096, spent
