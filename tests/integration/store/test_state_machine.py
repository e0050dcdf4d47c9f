"""Any order of claims, beats, commits, releases, reaps and commands keeps the books in order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from hpq.code.signing import RowSigner
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq.errors import UserError
from hpq.store.suggest_lease import SuggestLease
from tests.support.store_machine import CLOSED, LEASE, SID, TRIALS, Machine, row

SIGNER = RowSigner(b"k3y-of-16-letters", "hpq", SID)


class LateMachine(Machine):
    """A sweep whose sets are made meanwhile, by any of the three workers."""

    def enqueue(self, sweep: SweepView) -> None:
        self.writer.create(replace(sweep, sampler="tpe", search="{}", run_cap=TRIALS))
        self.leads = [
            SuggestLease(self.store_context, SID, who.name, LEASE) for who in self.workers
        ]
        self.rows = dict[int, int]()  # what each maker believes to be there

    @rule(who=st.integers(0, 2))
    def lead(self, who: int) -> None:
        answer = self.leads[who].acquire()
        if answer.is_ok:
            self.rows[who] = answer.rows
        else:
            assert answer.word in ("held", "over")

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), twice=st.booleans(), count=st.integers(1, 2))
    def make(self, data: st.DataObject, twice: bool, count: int) -> None:
        who = data.draw(st.sampled_from(sorted(self.rows)))
        first, before = self.rows[who] + 1, self.reader.sweeps.get(SID)
        rows = [row(number) for number in range(first, first + count)]
        answers = [self.leads[who].append(first, rows) for _ in range(1 + twice)]
        after = self.reader.sweeps.get(SID).counts.total
        if answers[0].is_ok:
            # Equal rows that another suggester appended since this one read are not appended again.
            assert after == max(before.counts.total, first + count - 1) == answers[0].rows
            assert answers[-1] == answers[0]
            self.rows[who] = after
        elif answers[0].word != "over":  # another has the lease, or had it meanwhile
            assert answers[0].word in ("lost", "behind", "held") and after == before.counts.total
        assert after <= TRIALS and (after == before.counts.total or not before.no_more)

    @rule()
    def lapse(self) -> None:
        self.redis.hset(self.keys.sweep(SID), "suggest_until", 1)


class AppendMachine(Machine):
    """A sweep of known sets that begins with an older result, and is capped and grown meanwhile."""

    def enqueue(self, sweep: SweepView) -> None:
        old = TrialId(sweep="old-00000", number=3)
        done = TrialView(id=old, state=TrialState.FINISHED, params={}, attempt=1, objective=0.3)
        self.writer.stage_results(sweep, [(1, done)])
        super().enqueue(sweep)

    @rule(most=st.integers(0, 7))
    def run_cap(self, most: int) -> None:
        try:
            self.writer.set_run_cap(SID, most)
        except UserError:
            assert self.reader.sweeps.get(SID).stored in CLOSED
            return
        before = self.books()
        assert self.writer.set_run_cap(SID, most).dropped == 0
        assert self.books() == before
        states = [state for state, attempt in before if attempt == 0]
        if most and states.count(TrialState.QUEUED):
            dropped = self.redis.zcard(self.keys.sweep(SID, "dropped"))
            assert self.total - dropped <= most

    @precondition(lambda self: self.total < 8)
    @rule(first=st.integers(3, 8))
    def grow(self, first: int) -> None:
        sets = [ParameterSet(x=number) for number in range(first, first + 2)]
        known = {t.params["x"] for t in self.reader.trials.all(SID)}
        try:
            added = self.writer.append(SID, sets, varying=["x"], sign=SIGNER.sign).trials
        except UserError:
            assert self.reader.sweeps.get(SID).stored in CLOSED
            return
        assert added == len({first, first + 1} - known)
        self.total += added

    @invariant()
    def every_row_is_signed_for_its_own_number(self) -> None:
        rows = self.redis.hgetall(self.keys.sweep(SID, "params"))
        for n in range(TRIALS + 1, self.total + 1):
            assert SIGNER.has_signed(n, rows[b"%d" % n])


@pytest.mark.parametrize("kind", [LateMachine, AppendMachine])
def test_any_order_of_calls_keeps_the_books_in_order(redis_url: str, kind: type[Machine]) -> None:
    kind.url = redis_url
    machine = kind.TestCase
    machine.settings = settings(
        max_examples=25,
        stateful_step_count=30,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    machine("runTest").runTest()
