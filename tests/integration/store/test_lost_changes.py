"""Changes that a primary lost, where the next one gave their ids to other events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from hpq.acknowledged import report_lost
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq.store.events import EventReader
from hpq.store.keys import Keys
from hpq.store.scripts import Durability, Mark, StoreContext
from hpq.store.trials import TrialStore


class Primaries:
    """A primary whose clock is behind its newest event, and the next one, which lacks the rest."""

    def __init__(self, redis: Redis, keys: Keys, sid: str) -> None:
        self.redis, self.keys, self.sid, self.marks = redis, keys, sid, list[Mark]()
        durability = Durability(keep=self.marks.append)
        self.context = StoreContext.open(redis, keys, durability=durability)
        self._store, self.control = TrialStore(self.context), SweepControl(self.context)
        redis.execute_command("XSETID", keys.sweep(sid, "events"), "9999999999999-0")
        self._replica = {key: redis.dump(key) for key in redis.keys("*")}

    def claim(self, worker: str) -> Claim:
        """Claim the next trial."""
        who = WorkerPresence(name=worker, host=worker, queue="default")
        claim = self._store.claim(who, nonce=f"{worker}-{len(self.marks)}", lease_ms=60_000)
        assert isinstance(claim, Claim)
        return claim

    def finish(self, claim: Claim, objective: float) -> str:
        """Commit a result; return the reply."""
        outcome = Outcome(state=TrialState.FINISHED, objective=objective)
        return self._store.commit(claim, outcome)

    def lose(self) -> tuple[list[Mark], str]:
        """Promote the replica; return what was acknowledged, and the id of the newest event."""
        marks, newest = [*self.marks], self.newest()
        self.redis.flushall()
        for key, data in self._replica.items():
            self.redis.restore(key, 0, data)
        self.marks.clear()
        return marks, newest

    def newest(self) -> str:
        return EventReader(self.redis, self.keys).last_id(self.sid)


@pytest.fixture
def primaries(redis: Redis, keys: Keys, sweep_of) -> Primaries:
    return Primaries(redis, keys, sweep_of(3).id)


def finish_first(primaries: Primaries) -> None:
    primaries.finish(primaries.claim("w1"), 1.0)


def claim_first_later(primaries: Primaries) -> None:
    set_retries(primaries)
    primaries.claim("w1")


def finish_first_as_another(primaries: Primaries) -> None:
    primaries.finish(primaries.claim("w2"), 2.0)


def pause(primaries: Primaries) -> None:
    primaries.control.pause(primaries.sid)


def set_retries(primaries: Primaries) -> None:
    primaries.control.set(primaries.sid, {"retries": "1"})


@pytest.mark.parametrize(
    ("lost", "instead"),
    [
        (finish_first, claim_first_later),
        (finish_first, finish_first_as_another),
        (pause, set_retries),
    ],
)
def test_a_lost_change_is_named_if_another_event_has_its_id(
    primaries: Primaries,
    lost: Callable[[Primaries], None],
    instead: Callable[[Primaries], None],
) -> None:
    lost(primaries)
    marks, event = primaries.lose()
    instead(primaries)
    assert primaries.newest() == event
    notice, kept = report_lost(primaries.context, marks)
    assert notice and notice.code == "server-went-back"
    assert report_lost(primaries.context, kept) == (None, kept)
    notice, kept = report_lost(primaries.context, primaries.marks)
    assert notice is None and kept == primaries.marks


def test_a_result_that_is_sent_again_is_kept_by_the_primary_that_has_it(
    primaries: Primaries,
) -> None:
    claim = primaries.claim("w1")
    assert [primaries.finish(claim, 1.0) for _ in range(2)] == ["done", "already"]
    pause(primaries)
    assert primaries.finish(claim, 1.0) == "already"
    assert report_lost(primaries.context, primaries.marks) == (None, primaries.marks)
    marks, _ = primaries.lose()
    assert len(marks) == 4 and report_lost(primaries.context, marks)[0]
