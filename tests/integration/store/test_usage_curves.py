"""Usage over time: from the batch that brings it to the readers, and how long it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.attempt import Outcome, Reason, ReportBatch
from hpq.domain.trial import Point, TrialState
from hpq.domain.usage import UsageCurves
from hpq.errors import DecodeError

LEASE = 30_000
USED = UsageCurves(
    seconds=(1.0, 3.0, 7.0), values={"rss_gb": (0.5, 0.75, 12.0), "gpu.util": (None, 97.0, 3.5)}
)
POINTS = tuple(Point(step=n, name=name, value=n / 8) for n in range(4) for name in ("loss", "acc"))


def test_usage_is_kept_beside_the_curves_and_changes_none_of_them(
    store, reader, who, sweep_of, take, control, redis, keys
) -> None:
    sweep_of(3)
    plain, used = take(), take()
    store.beat(plain, who, ReportBatch(seq=1, points=POINTS), lease_ms=LEASE)
    store.beat(used, who, ReportBatch(seq=1, points=POINTS, usage=USED), lease_ms=LEASE)
    kept = replace(USED, attempt=1)
    assert reader.usage_curves([used.trial])[0] == kept
    assert reader.usage_curves([plain.trial])[0] is None
    for claim in (plain, used):
        store.commit(claim, Outcome(state=TrialState.FINISHED, step=3))
    assert reader.usage_curves([used.trial])[0] == kept
    packed = [redis.hgetall(keys.trial(claim.trial, "points")) for claim in (plain, used)]
    assert packed[1].pop(b"#usage") and {*packed[0]} == {*packed[1]} == {b"", b"loss", b"acc"}
    for name in ("loss", "acc"):
        lines = [reader.trials.metric_history(claim.trial, name) for claim in (plain, used)]
        assert lines[0] == lines[1] and len(lines[0]) == 4


def test_usage_is_that_of_the_latest_attempt_and_of_silent_trials_too(
    store, reader, who, sweep_of, take
) -> None:
    sweep_of(1)
    claim = take()
    store.beat(claim, who, ReportBatch(seq=1, usage=USED), lease_ms=LEASE)
    store.release(claim, Reason.STOPPING)
    claim = take()
    last = replace(USED, seconds=(2.0,), values={"cpu": (1.5,)})
    store.commit(claim, Outcome(state=TrialState.FINISHED), ReportBatch(seq=1, usage=last))
    assert reader.usage_curves([claim.trial])[0] == replace(last, attempt=2)


@pytest.mark.parametrize(
    "odd",
    ["", "x", "1", "1\nrss_gb 1", "1\nseconds 1 2\nrss_gb 1", "1\nseconds nan\nrss_gb 1",
     "1\nseconds 1\nrss_gb inf", "1\n\nseconds 1", "-1\nseconds 1"],
)  # fmt: skip
def test_usage_that_hpq_did_not_write_is_named(
    reader, sweep_of, take, redis, keys, odd: str
) -> None:
    sweep_of(1)
    claim = take()
    redis.hset(keys.trial(claim.trial, "points"), "#usage", odd)
    if not odd:
        assert reader.usage_curves([claim.trial])[0] is None
        return
    with pytest.raises(DecodeError, match="usage"):
        reader.usage_curves([claim.trial])[0]
