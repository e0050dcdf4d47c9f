"""Claims of a worker whose allocation ends: which trials begin in the time that is left."""

from __future__ import annotations

import secrets

import pytest
from redis import Redis

from hpq.domain.attempt import Nothing, Outcome, Reason, WorkerPresence
from hpq.domain.trial import Checkpoint, Claim, TrialState
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.conftest import MakeSweep
from tests.support.store_calls import LEASE, beat

MINUTE, SID = 60_000, "demo-00000"


class Allocations:
    """Workers of one host; the tests move the time of a claim back, so attempts last minutes."""

    def __init__(self, store: TrialStore, redis: Redis, keys: Keys, who: WorkerPresence) -> None:
        self.store, self.redis, self.keys, self.who = store, redis, keys, who

    def claim(self, left: float | None, ran: float = 0) -> Claim | Nothing:
        """Claim with these minutes left; the trial will seem to have run for `ran` minutes."""
        left_ms = None if left is None else round(left * MINUTE)
        nonce = secrets.token_hex(8)
        got = self.store.claim(self.who, nonce=nonce, lease_ms=LEASE, left_ms=left_ms)
        if isinstance(got, Claim):
            self.redis.hincrby(self.keys.trial(got.trial), "claimed_ms", -round(ran * MINUTE))
        return got

    def begin(self, left: float | None, ran: float = 0) -> Claim:
        got = self.claim(left, ran)
        assert isinstance(got, Claim)
        return got

    def run(self, *minutes: float) -> None:
        """Finish trials of these minutes."""
        for one in minutes:
            claim = self.begin(None, one)
            self.store.commit(claim, Outcome(state=TrialState.FINISHED, objective=0.5))


@pytest.fixture
def allocations(store: TrialStore, redis: Redis, keys: Keys, who: WorkerPresence) -> Allocations:
    return Allocations(store, redis, keys, who)


def test_a_trial_that_is_expected_to_take_longer_is_not_claimed(
    allocations: Allocations, sweep_of: MakeSweep
) -> None:
    sweep_of(9)
    assert allocations.begin(0.1), "nothing is known of the first trials"
    allocations.run(9, 10, 11)  # mean 10, deviation 0.8
    assert allocations.claim(10.7) == Nothing(short=SID)
    assert allocations.begin(11)
    assert allocations.begin(None), "a worker without an end claims everything"


def test_a_trial_that_was_cut_off_needs_a_longer_allocation(
    allocations: Allocations, sweep_of: MakeSweep, reader: StoreReader
) -> None:
    sweep_of(3)
    first = allocations.begin(60, ran=59)
    early_ms = MINUTE  # Slurm sends its signal up to a minute early
    assert allocations.store.release(first, Reason.TIME_UP, early_ms) == "released"
    assert allocations.claim(61) == Nothing(short=SID), "not the others, either: none has ended"
    assert reader.sweeps.get(SID).least_ms == pytest.approx(60 * MINUTE, rel=0.01)
    assert allocations.begin(67).trial == first.trial
    assert audit_sweep(reader, SID).violations == ()


def test_the_short_trials_of_a_sweep_do_not_wait_for_the_one_that_was_cut_off(
    allocations: Allocations, sweep_of: MakeSweep
) -> None:
    sweep_of(6)
    first = allocations.begin(60, ran=60)
    allocations.run(10, 10, 10)
    allocations.store.release(first, Reason.TIME_UP)
    assert allocations.begin(60).trial.number == 5
    assert allocations.begin(60).trial.number == 6
    assert allocations.claim(60) == Nothing(short=SID)
    assert allocations.begin(70).trial == first.trial


def test_a_trial_with_a_checkpoint_goes_on_in_any_allocation(
    allocations: Allocations, sweep_of: MakeSweep, reader: StoreReader, who: WorkerPresence
) -> None:
    sweep_of(5)
    allocations.run(60, 60, 60)
    first = allocations.begin(None, ran=60)
    pointer = Checkpoint(store="a" * 16, path="p", step=3)
    beat(allocations.store, who, first, 1, 3, checkpoint=pointer)
    allocations.store.release(first, Reason.TIME_UP)
    assert reader.sweeps.get(SID).least_ms == 0
    assert allocations.begin(1).trial == first.trial
    assert allocations.claim(1) == Nothing(short=SID), "the last one would begin"


@pytest.mark.parametrize("reason", [one for one in Reason if one is not Reason.TIME_UP])
def test_any_other_return_sets_no_least_time(
    reason: Reason, allocations: Allocations, sweep_of: MakeSweep, reader: StoreReader
) -> None:
    sweep_of(1)
    allocations.store.release(allocations.begin(60, ran=60), reason)
    assert reader.sweeps.get(SID).least_ms == 0
    assert allocations.begin(1)
