"""Which sampler keeps up: a Gaussian process only if no worker would wait for its sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

pytest.importorskip("optuna")

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import Launch, Metric, SweepView
from hpq.search.distributions import Uniform
from hpq.search.samplers import Sampler, Search
from hpq.search.space import Space
from hpq.store.events import SweepHistory
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.search import encode_search
from hpq_worker.suggest import loop
from hpq_worker.suggest.loop import Suggester
from tests.support.libraries import needs

pytestmark = [pytest.mark.torch, needs("scipy"), needs("torch")]
SID = "paced-00000"
# Of one parameter, a Gaussian process soon suggests what exists, and TPE fills in.
UNIT = Uniform(low=0.0, high=1.0)
SPACE = Space.of({("x",): UNIT, ("y",): UNIT, ("z",): UNIT})
SEARCH = Search(space=SPACE, sampler=Sampler.AUTO)
Trials = Callable[[int, int], set[str]]
FEW = "random as results are few"
HURRY = "tpe as workers would wait for gp"


@pytest.fixture
def suggester(
    redis: Redis,
    store: TrialStore,
    request: pytest.FixtureRequest,
    writer: SweepWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> Suggester:
    """Who makes sets for so many workers."""
    # A set of a Gaussian process takes half a second, and here counts only which sampler makes it.
    monkeypatch.setattr("optuna.samplers.GPSampler.sample_relative", lambda *_: {})
    keys = Keys("hpq")
    late = {"sampler": "auto", "search": encode_search(SEARCH), "metric": Metric(name="loss")}
    launch = Launch(trainer="digits")
    writer.create(SweepView(id=SID, name="p", digest="d", launch=launch, **late))  # type: ignore[arg-type]
    for number in range(request.param):
        who = WorkerPresence(
            name=f"w{number}", host="h", queue="default",
            fields={"state": "idle", "refuses": "{}", "only": ""},
        )  # fmt: skip
        store.present(who, idle=True, lifetime_ms=600_000)
    lead = SuggestLease(StoreContext.open(redis, keys, mints=False), SID, "w0", 600_000)
    suggester = Suggester(SEARCH, SweepHistory(redis, keys, SID), lead)
    assert suggester.acquire()
    suggester.begin()
    suggester.wait_for_imports()
    return suggester


@pytest.fixture
def trials(redis: Redis, reader: StoreReader, suggester: Suggester) -> Trials:
    """So many trials, each ended so many ms after the one before; answers who made sets of them."""
    keys = Keys("hpq")
    ran, at_ms = 0, 10**13

    def run(count: int, gap_ms: int) -> set[str]:
        nonlocal ran, at_ms
        before = reader.sweeps.get(SID).made
        for _ in range(count):
            ran, at_ms = ran + 1, at_ms + gap_ms
            for at, what in enumerate(("claimed", "finished")):
                told = {"e": what, "n": ran, "a": 1, "objective": math.sin(ran)}
                redis.xadd(keys.sweep(SID, "events"), told, id=f"{at_ms + at}-0")
            suggester.step()
        made = reader.sweeps.get(SID).made
        return {by for by in made if made[by] > before.get(by, 0)} - {FEW}

    return run


@pytest.mark.parametrize("suggester", [2], indirect=True)
def test_several_workers_wait_for_a_gaussian_process_only_if_their_trials_are_long(
    trials: Trials, suggester: Suggester
) -> None:
    assert trials(12, 10) == {HURRY}
    assert trials(2, 10**8) == {"gp"}


@pytest.fixture
def burst(redis: Redis, suggester: Suggester, trials: Trials) -> list[int]:
    """Four workers have claimed the last queued sets at once; each trial takes 1,600 s, and a slow
    suggestion 400 s."""
    assert trials(12, 400_000) == {"gp"}
    suggester._make_s[Sampler.GP] = 400.0
    trials(2, 400_000)
    suggester._make_s[Sampler.GP] = 400.0
    numbers = sorted(suggester._results.waiting)
    assert len(numbers) == 4
    for number in numbers:
        redis.xadd(Keys("hpq").sweep(SID, "events"), {"e": "claimed", "n": number, "a": 1})
    return numbers


@pytest.mark.parametrize("suggester", [4], indirect=True)
def test_after_a_burst_of_claims_tpe_fills_the_queue_until_it_lasts_for_a_slow_set(
    burst: list[int], suggester: Suggester, redis: Redis, reader: StoreReader
) -> None:
    suggester.step()
    made = [e.fields["by"] for e in reader.events.read(SID) if e.what == "suggested"]
    assert made[-len(burst) :] == [HURRY, HURRY, "gp", "gp"]


@pytest.mark.parametrize("suggester", [4], indirect=True)
def test_a_result_that_arrives_while_a_set_is_made_counts_for_the_next(
    burst: list[int], suggester: Suggester, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[int] = []
    ask = suggester._chooser.ask

    def ask_while_one_ends(*args: Any, **how: Any) -> Any:
        told = {"e": "finished", "n": burst[len(running)], "a": 1, "objective": 1}
        redis.xadd(Keys("hpq").sweep(SID, "events"), told)
        running.append(len(suggester._results.running))
        return ask(*args, **how)

    monkeypatch.setattr(suggester._chooser, "ask", ask_while_one_ends)
    suggester.step()
    assert running == [4, 3, 2, 1]


@pytest.mark.parametrize("suggester", [4], indirect=True)
def test_several_workers_with_short_trials_do_not_wait_for_imports(
    trials: Trials, suggester: Suggester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_IMPORT_S", 10**6)
    assert trials(12, 400_000) == {"gp"}
    warmed = suggester._warming
    wait = partial(pytest.fail, "waits for the imports")
    monkeypatch.setattr(suggester, "_warming", SimpleNamespace(is_alive=lambda: True, join=wait))
    assert trials(8, 400_000) == {HURRY}
    monkeypatch.setattr(suggester, "_warming", warmed)
    assert trials(4, 400_000) == {"gp"}


@pytest.mark.parametrize("suggester", [1], indirect=True)
def test_one_workers_sets_follow_from_the_events_and_not_from_their_times(
    trials: Trials, suggester: Suggester
) -> None:
    suggester._make_s[Sampler.GP] = 400.0
    assert trials(13, 10) == {"gp"}


@pytest.mark.parametrize("suggester", [4], indirect=True)
def test_one_slow_set_does_not_switch_the_gaussian_process_off(
    trials: Trials, suggester: Suggester
) -> None:
    """It is tried again now and then, and what it takes then counts."""
    assert trials(12, 700_000) == {"gp"}
    suggester._make_s[Sampler.GP] = 1_500.0
    assert trials(8, 700_000) == {HURRY}
    assert trials(40, 700_000) == {HURRY, "gp"}
    assert trials(4, 700_000) == {"gp"}


@pytest.mark.parametrize("suggester", [4], indirect=True)
def test_a_gaussian_process_that_fails_slowly_counts_as_slow(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def fail(*_: object) -> None:
        nonlocal now
        now += 100.0
        raise RuntimeError("no optimum")

    monkeypatch.setattr("hpq_worker.suggest.loop.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("optuna.samplers.GPSampler.sample_relative", fail)
    assert trials(12, 10_000) == {"tpe as gp had no new set", HURRY}
    assert trials(4, 10_000) == {HURRY}


@pytest.mark.parametrize("suggester", [1], indirect=True)
def test_no_import_is_part_of_what_a_set_takes(
    trials: Trials, suggester: Suggester, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def wait_for_imports() -> None:
        nonlocal now
        now += 100.0

    monkeypatch.setattr("hpq_worker.suggest.loop.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(suggester, "wait_for_imports", wait_for_imports)
    assert trials(12, 10) == {"gp"}
    assert now > 0 and suggester._make_s[Sampler.GP] == 0.0
