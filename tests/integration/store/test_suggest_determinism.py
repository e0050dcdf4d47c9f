"""With one worker the same events lead to the same sets, whoever makes them, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

pytest.importorskip("optuna")

from hpq.domain.attempt import WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Impute, Launch, Metric, SweepView
from hpq.domain.trial import Params, TrialId
from hpq.search.distributions import Uniform
from hpq.search.samplers import Sampler, Search
from hpq.search.space import Space
from hpq.store.events import SweepHistory
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.search import encode_search
from hpq_worker.suggest.loop import Suggester

SPACE = Space.of({("x",): Uniform(low=0.0, high=1.0)})
COUNT = 15
Between = Callable[[int, Callable[[], None], str], None]


@pytest.fixture
def sets_of(redis: Redis, store: TrialStore, writer: SweepWriter) -> Callable[..., list[Params]]:
    """Runs a sweep's trials one by one; `between` is called in each, and may have a set made."""
    keys = Keys("hpq")
    who = WorkerPresence(
        name="w", host="h", queue="default",
        fields={"state": "idle", "refuses": "{}", "only": ""},
    )  # fmt: skip
    store.present(who, idle=True, lifetime_ms=600_000)

    def run(sid: str, between: Between, **more: object) -> list[Params]:
        search = Search(space=SPACE, sampler=Sampler.TPE, **more)  # type: ignore[arg-type]
        late = {"sampler": "tpe", "search": encode_search(search), "metric": Metric(name="loss")}
        launch = Launch(trainer="digits")
        writer.create(SweepView(id=sid, name=sid, digest=sid, launch=launch, **late))  # type: ignore[arg-type]

        def begin() -> Suggester:
            lead = SuggestLease(StoreContext.open(redis, keys, mints=False), sid, "w", 600_000)
            one = Suggester(search, SweepHistory(redis, keys, sid), lead)
            assert one.acquire()
            one.begin()
            return one

        def tell(what: str, number: int) -> None:
            told = {"e": what, "n": number, "a": 1, "objective": (number * 7 % 11) / 10}
            redis.xadd(keys.sweep(sid, "events"), told)

        maker = begin()

        def make(*, anew: bool = False) -> None:
            nonlocal maker
            maker = begin() if anew else maker
            maker.step()

        for number in range(1, COUNT + 1):
            tell("claimed", number)
            between(number, make, sid)
            tell("finished", number)
            if int(redis.hlen(keys.sweep(sid, "params"))) <= number:
                make(anew=True)
        history = SweepHistory(redis, keys, sid)
        return [params for _, params in history.parameters(1, COUNT + 1)]

    return run


def test_a_set_that_is_made_late_or_by_another_is_the_same(sets_of) -> None:
    """The process was killed between a claim and its set: trials have ended before another came."""
    plain = sets_of("plain-00000", lambda _number, make, _sid: make())
    late = sets_of("late-00000", lambda n, make, _sid: make() if n not in (11, 13) else None)
    assert len(plain) == COUNT + 1 and plain == late


def test_what_one_workers_trial_reports_while_its_next_set_is_made_leads_to_none(
    sets_of, redis: Redis
) -> None:
    def report(number: int, make: Callable[[], None], sid: str) -> None:
        key = Keys("hpq").trial(TrialId(sweep=sid, number=number))
        redis.hset(key, "objective", "-5.0")
        make()

    plain = sets_of("plain-00000", lambda _number, make, _sid: make())
    latest = sets_of("latest-00000", report, impute_while_running=Impute.LATEST)
    assert plain == latest


def test_bayes_learns_from_an_added_trial_and_its_random_draws_keep_their_order(
    sets_of, writer: SweepWriter
) -> None:
    def add(number: int, make: Callable[[], None], sid: str) -> None:
        if number == 3:
            writer.append(sid, [ParameterSet(x=0.125)])
        make()

    plain = sets_of("plain-00000", lambda _number, make, _sid: make())
    added = sets_of("added-00000", add)
    place = added.index({"x": 0.125})
    own = [*added[:place], *added[place + 1 :]]
    draws = 9  # of ten sets before the model
    assert own[:draws] == plain[:draws]
    assert own[draws + 1 :] != plain[draws + 1 : len(own)]
