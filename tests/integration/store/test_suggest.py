"""Late-bound sweeps in the store: who makes their sets, how many, and what everybody sees of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from hpq.archive.transfer import restore, write
from hpq.code.signing import is_signed, signed
from hpq.domain.attempt import Nothing, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Launch, Metric, SweepState, SweepView
from hpq.domain.trial import Claim
from hpq.redis.client import connect
from hpq.search.distributions import IntUniform
from hpq.search.samplers import Sampler, Search, random
from hpq.search.space import Space
from hpq.store.control import SweepControl
from hpq.store.events import SweepHistory
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq.store.wire.search import encode_search
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_worker.suggest import start_suggesters as processes
from hpq_worker.suggest.loop import Suggester
from tests.support.constants import DEADLINE_S
from tests.support.store_calls import ask, end, take

LEASE = 30_000
KEY = "k3y-of-16-letters"
SID = "late-00000"
UNFED = Nothing(unfed=SID)
MakeLead = Callable[..., SuggestLease]


@pytest.fixture
def late(writer: SweepWriter) -> Callable[..., SweepView]:
    """Creates a late-bound sweep."""

    def make(run_cap: int = 0, **more: object) -> SweepView:
        fields = {"launch": Launch(trainer="digits"), "metric": Metric(name="loss")}
        fields |= {"sampler": "tpe", "search": "{}", **more}
        sweep = SweepView(id=SID, name="late", digest="d", run_cap=run_cap, **fields)  # type: ignore[arg-type]
        sweep, _ = signed(KEY.encode(), "hpq", sweep)
        assert writer.create(sweep) is None
        return sweep

    return make


@pytest.fixture
def lead_of(redis: Redis) -> MakeLead:
    """Makes the lease for a worker."""

    def make(who: str = "w1", lease_ms: int = LEASE, client: Redis = redis) -> SuggestLease:
        return SuggestLease(StoreContext.open(client, Keys("hpq"), mints=False), SID, who, lease_ms)

    return make


def test_a_search_of_any_length_is_read_as_it_was_signed(late, reader: StoreReader) -> None:
    late(search=dumps({"leaves": "x" * 5_000}))
    assert is_signed(KEY.encode(), "hpq", reader.sweeps.get(SID))


def rows(first: int, last: int) -> list[tuple[str, bytes]]:
    return [(dumps({"x": n}), ParameterSet({"x": n}).identity) for n in range(first, last + 1)]


def demand(redis: Redis) -> int:
    return int(redis.llen(Keys("hpq").demand("default")))


def test_a_sweep_without_sets_runs_and_calls_for_workers(redis, store, reader, late, who) -> None:
    late(5)
    sweep = reader.sweeps.get(SID)
    assert sweep.state is SweepState.RUNNING
    assert (sweep.counts.total, sweep.counts.to_come, sweep.counts.planned) == (0, 5, 5)
    assert demand(redis) == 5
    assert ask(store, who) == UNFED  # so this worker sees to it that sets are made


def test_an_open_ended_sweep_is_never_finished_by_itself(
    redis, store, reader, late, lead_of, who, control: SweepControl
):
    late()
    lead = lead_of()
    lead.acquire()
    for n in range(1, 4):
        assert lead.append(n, rows(n, n)).is_ok
        assert end(store, take(store, who), 1.0) == "done"
    sweep = reader.sweeps.get(SID)
    assert sweep.state is SweepState.RUNNING and sweep.counts.is_open_ended
    assert demand(redis) == 1000
    control.stop(SID)
    sweep = reader.sweeps.get(SID)
    assert (sweep.state, sweep.no_more, demand(redis)) == (SweepState.FINISHED, "stopped", 0)
    assert lead.renew().word == "over"
    assert not audit_sweep(reader, SID).violations


def test_one_makes_sets_at_a_time(store, late, lead_of, redis) -> None:
    late(5)
    first, second = lead_of("w1"), lead_of("w2")
    assert first.acquire().is_ok
    assert second.acquire().word == "held"
    assert first.acquire().is_ok  # its process was started again
    redis.hset(Keys("hpq").sweep(SID), "suggest_until", 1)  # it hangs
    assert second.acquire().is_ok
    assert first.append(1, rows(1, 1)).word == "lost"
    assert first.renew().word == "lost"
    assert redis.hlen(Keys("hpq").sweep(SID, "params")) == 0
    second.release()
    assert lead_of("w3").acquire().is_ok


def test_sets_sent_twice_are_there_once(reader, late, lead_of) -> None:
    late(5)
    lead = lead_of()
    lead.acquire()
    for _ in range(2):
        answer = lead.append(1, rows(1, 2))
        assert answer.is_ok and answer.rows == 2
    assert lead.append(3, rows(2, 2)).word == "known"  # the same set under another number
    assert lead.append(2, rows(7, 7)).word == "behind"  # another set under the same number
    assert lead.append(5, rows(5, 5)).word == "behind"  # a gap
    assert reader.sweeps.get(SID).counts.total == 2
    suggested = [e for e in reader.events.read(SID) if e.what == "suggested"]
    assert [(e.trial, e.fields["count"]) for e in suggested] == [(1, "2")]


def test_the_cap_holds_whoever_makes_sets(redis_url, redis, store, reader, late, lead_of) -> None:
    """Eight at once take the lease from one another and make as many sets as they can."""
    late(50)
    clients = [connect(redis_url) for _ in range(8)]

    def work(number: int) -> None:
        lead = lead_of(f"w{number}", 3_000, clients[number])
        who = WorkerPresence(name=f"w{number}", host="h", queue="default")
        other = TrialStore(StoreContext.open(clients[number], Keys("hpq"), mints=False))
        while reader.sweeps.get(SID).counts.planned > reader.sweeps.get(SID).counts.ended:
            answer = lead.acquire()
            if answer.is_ok:
                clients[number].hset(Keys("hpq").sweep(SID), "suggest_until", 1)
                lead.append(answer.rows + 1, rows(answer.rows + 1, answer.rows + 1))
            if isinstance(claim := ask(other, who), Claim):
                assert end(other, claim, 1.0) == "done"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    for client in clients:
        client.close()
    counts = reader.sweeps.get(SID).counts
    assert (counts.finished, counts.total, reader.sweeps.get(SID).state) == (50, 50, "finished")
    found = audit_sweep(reader, SID)
    assert not found.violations and not found.open


def test_as_many_sets_wait_as_workers_may_take_them(
    store, late, lead_of, who, control: SweepControl
) -> None:
    late(50, max_parallel=3)
    lead = lead_of()
    assert lead.acquire().ahead == 0
    names = ["a", "b", "c", "d"]
    for count, name in enumerate(names, 1):
        fields = {"state": "idle", "refuses": "{}", "only": ""}
        one = WorkerPresence(name=name, host="h", queue="default", fields=fields)
        store.present(one, idle=True, lifetime_ms=LEASE)
        assert lead.renew().ahead == min(count, 3)
    refusing = {"state": "idle", "refuses": f'{{"{SID}": "no"}}', "only": ""}
    for name in names[1:]:
        one = WorkerPresence(name=name, host="h", queue="default", fields=refusing)
        store.present(one, idle=True, lifetime_ms=LEASE)
    assert lead.renew().ahead == 1
    control.pause(SID)
    assert lead.renew().ahead == 0
    assert lead.renew().word == "ok"  # it may go on yet


def test_no_more_sets_wait_than_fit_the_budget(store, redis, late, lead_of) -> None:
    late(50, budget=Budget(budget_ms=3 * 3_600_000 + 60_000), timeout_s=3600.0)
    lead, workers = lead_of(), []
    for name in ("a", "b", "c", "d"):
        fields = {"state": "idle", "refuses": "{}", "only": ""}
        one = WorkerPresence(name=name, host="h", queue="default", fields=fields)
        store.present(one, idle=True, lifetime_ms=LEASE)
        workers.append(one)
    lead.acquire()
    for count, one in enumerate(workers[:3], 1):
        lead.append(count, rows(count, count))
        take(store, one)
        assert lead.renew().ahead == max(1, 3 - count), "one may wait for hours"


def test_a_space_that_is_used_up_ends_the_sweep(store, reader, late, lead_of, who) -> None:
    late()
    lead = lead_of()
    lead.acquire()
    lead.append(1, rows(1, 1))
    assert lead.append(2, (), no_more="exhausted").word == "over"
    assert end(store, take(store, who), 1.0) == "done"
    assert (reader.sweeps.get(SID).state, reader.sweeps.get(SID).no_more) == (
        "finished",
        "exhausted",
    )


def test_retrying_a_trial_of_a_stopped_sweep_makes_no_further_sets(
    store, reader, late, lead_of, who, control: SweepControl
):
    late(5)
    lead = lead_of()
    lead.acquire()
    lead.append(1, rows(1, 1))
    claim = take(store, who)
    control.stop(SID)
    assert end(store, claim, 1.0) == "done"
    assert reader.sweeps.get(SID).state is SweepState.FINISHED
    control.retry(SID, [1])
    assert reader.sweeps.get(SID).counts.planned == 1
    assert end(store, take(store, who), 1.0) == "done"
    assert reader.sweeps.get(SID).state is SweepState.FINISHED
    assert not audit_sweep(reader, SID).violations


def test_a_higher_cap_lets_more_come(
    redis, store, reader, late, lead_of, who, control: SweepControl
) -> None:
    late(1)
    lead = lead_of()
    lead.acquire()
    assert lead.append(1, rows(1, 1)).word == "over"
    assert end(store, take(store, who), 1.0) == "done"
    assert reader.sweeps.get(SID).state is SweepState.FINISHED and demand(redis) == 0
    control.set(SID, {"run_cap": "3"})
    assert reader.sweeps.get(SID).counts.to_come == 2 and demand(redis) == 2
    assert ask(store, who) == UNFED


def test_an_archived_sweep_goes_on_where_it_comes_back(
    redis, redis_url, store, reader, late, lead_of, who, tmp_path, control: SweepControl
) -> None:
    late(5)
    lead = lead_of()
    lead.acquire()
    lead.append(1, rows(1, 2))
    assert end(store, take(store, who), 1.0) == "done"
    before = reader.sweeps.get(SID)
    context = StoreContext.open(redis, Keys("hpq"))
    file = tmp_path / "late.hpq"
    write(context, SID, file)
    control.remove(SID)
    assert demand(redis) == 0
    restore(context, file)
    assert reader.sweeps.get(SID) == before and demand(redis) == 4
    redis.hset(Keys("hpq").sweep(SID), "suggest_until", 1)  # of a worker that was there then
    again = lead_of("w9")
    assert again.acquire().rows == 2
    assert again.append(3, rows(3, 5)).word == "over"
    assert reader.sweeps.get(SID).counts.planned == 5 and not audit_sweep(reader, SID).violations


def test_a_set_that_cannot_be_read_is_passed_over(redis, late, lead_of) -> None:
    late(5)
    lead = lead_of()
    lead.acquire()
    lead.append(1, [("{torn", bytes(16)), *rows(2, 2)])
    history = SweepHistory(redis, Keys("hpq"), SID)
    assert list(history.parameters(1, 2)) == [(2, {"x": 2})]


def test_a_suggester_passes_over_what_it_does_not_trust_and_goes_on(
    redis, store, late, lead_of, who
) -> None:
    """Its own draws reach the parameters that a changed row had: it must not stop there."""
    space = Space.of({("x",): IntUniform(1, 4)})
    search = Search(space=space, sampler=Sampler.RANDOM)
    late(5, sampler="random", search=encode_search(search))
    store.present(who, idle=True, lifetime_ms=600_000)
    lead = lead_of()
    lead.acquire()
    lead.append(1, rows(1, 3))
    for _ in range(3):
        assert end(store, take(store, who), 1.0) == "done"
    lead.release()
    history = SweepHistory(redis, Keys("hpq"), SID, lambda _number, _row: False)
    suggester = Suggester(search, history, lead_of())
    assert suggester.acquire()
    suggester.begin()
    assert redis.hget(Keys("hpq").sweep(SID, "params"), "4") == b'{"x":4}'


def test_a_suggester_that_trials_were_added_before_reads_them_and_draws_what_it_would_have(
    redis, store, writer, late, lead_of, who, reader, monkeypatch
) -> None:
    space = Space.of({("x",): IntUniform(1, 100)})
    search = Search(space=space, sampler=Sampler.RANDOM)
    late(3, sampler="random", search=encode_search(search))
    store.present(who, idle=True, lifetime_ms=600_000)
    wanted = list(random(space, 4, search.seed))
    added = [ParameterSet(x=1_000), wanted[1]]
    lead = lead_of()
    suggester = Suggester(search, SweepHistory(redis, Keys("hpq"), SID), lead)
    append = lead.append

    def late_append(*words: object, **more: object) -> object:
        if added:  # each time between its reading and its writing
            writer.append(SID, [added.pop()])
        return append(*words, **more)

    monkeypatch.setattr(lead, "append", late_append)
    assert suggester.acquire()
    suggester.begin()
    for _ in range(5):
        assert end(store, take(store, who), 1.0) == "done"
        suggester.step()
    found = [trial.params for trial in reader.trials.all(SID)]
    assert [one for one in found if one != {"x": 1_000}] == [wanted[1], wanted[0], *wanted[2:]]
    counts = reader.sweeps.get(SID).counts
    assert (counts.finished, counts.to_come) == (5, 0)  # three of its own, as run_cap says
    assert audit_sweep(reader, SID).violations == ()


def test_a_removed_sweep_is_unknown(redis, store, late, lead_of, control: SweepControl) -> None:
    late(5)
    lead = lead_of()
    lead.acquire()
    lead.append(1, rows(1, 1))
    control.remove(SID)
    assert lead.append(2, rows(2, 2)).word == "unknown"
    assert not redis.keys(f"hpq:s:{SID}*") and demand(redis) == 0


def test_the_best_value_stands_beside_the_objective(store, reader, late, lead_of, who) -> None:
    late(5)
    lead = lead_of()
    lead.acquire()
    lead.append(1, rows(1, 1))
    end(store, take(store, who), 1.0, best=0.5)
    (event,) = [e for e in reader.events.read(SID) if e.what == "finished"]
    assert (float(event.fields["objective"]), float(event.fields["best"])) == (1.0, 0.5)


def test_a_live_maker_is_left_alone(redis, store, late, lead_of, who, reader: StoreReader) -> None:
    late(5)
    lead = lead_of()
    lead.acquire()
    assert ask(store, who) == Nothing()
    lead.append(1, rows(1, 1))
    claim = take(store, who)
    assert claim.unfed == ""
    redis.hset(Keys("hpq").sweep(SID), "suggest_until", 1)
    assert ask(store, who) == UNFED


def test_no_more_sets_are_taken_than_the_cap_of_the_sweep(reader, late, lead_of) -> None:
    late(3)
    lead = lead_of()
    lead.acquire()
    assert lead.append(1, rows(1, 5)).word == "over"  # the cap was lowered meanwhile
    assert reader.sweeps.get(SID).counts.total == 3 and not audit_sweep(reader, SID).violations


def test_what_fails_to_make_sets_again_and_again_is_said_and_tried_more_rarely(
    environ, late, lead_of, monkeypatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(processes, "_AGAIN_S", 0.0)
    # The pause is counted from the start of a process, which may take long to fail.
    monkeypatch.setattr(processes, "_FIRST_TRY_S", 2 * DEADLINE_S)
    sweep = late(3)  # its search is none that anybody can read
    env = {**os.environ, **environ, "HPQ_CODE_KEY": KEY}
    makers = processes.SuggesterProcesses(env, "w1", lambda _: lead_of())
    try:
        reason, deadline = None, time.monotonic() + DEADLINE_S
        while reason is None:
            assert time.monotonic() < deadline
            reason = makers.ensure_running(sweep)
            time.sleep(0.05)
        assert reason.code == "sampler-failed" and "3 times" in reason.text
        assert "hpq:" in reason.text and reason == makers.ensure_running(sweep)
    finally:
        makers.close()
