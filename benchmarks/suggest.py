"""Measure the cost of a suggestion, compare with plain Optuna; measure the workers' gaps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from statistics import median

import optuna
import yaml

from benchmarks.figures import Figure, percentile
from benchmarks.processes import HPQ, running
from benchmarks.server import Server, private_server
from benchmarks.sweeps import TRAINING, put, wait_over
from hpq.domain.attempt import WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Launch, Metric, SweepView
from hpq.search.distributions import Categorical, IntUniform, LogUniform, Uniform
from hpq.search.samplers import Sampler, Search
from hpq.search.space import Space
from hpq.store.events import SweepHistory
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.row import encode_new
from hpq.store.wire.search import encode_search
from hpq_worker.suggest.loop import Suggester

_SPACE = Space.of(
    {
        ("lr",): LogUniform(low=1e-5, high=1.0),
        ("momentum",): Uniform(low=0.0, high=0.99),
        ("layers",): IntUniform(1, 12),
        ("width",): Categorical((64, 128, 256, 512)),
        ("dropout",): Uniform(low=0.0, high=0.8),
    }
)
# The default is a Gaussian process for few results, then tpe.
_SIZES = ((50, Sampler.GP), (200, Sampler.GP), (1_000, Sampler.AUTO), (10_000, Sampler.AUTO))
_WORKERS, _TRIALS, _TRIAL_S = 4, 60, 1.0
_LEASE_MS = 600_000


def measure(rounds: int) -> Iterator[Figure]:
    """Measure CPU time per suggestion in turns, then gaps of four workers with 1 s trials."""
    for size, sampler in _SIZES:
        with private_server() as server:
            mine, theirs = Ours(server, size, sampler), Theirs(size, sampler)
            ours_ms, theirs_ms = [], []
            for _ in range(rounds if sampler is Sampler.GP else 4 * rounds):
                ours_ms.append(mine.one())
                theirs_ms.append(theirs.one())
        ours = Figure(
            what=f"hpq's {sampler}, from a result to the next set in Redis, at {size:,}",
            unit="ms", values=ours_ms, target=median(theirs_ms),
        )  # fmt: skip
        yield ours
        yield ours.peer(f"optuna by hand, tell and ask, at {size:,}", theirs_ms)
        yield Figure(what=f"hpq, all read anew, at {size:,}", unit="ms", values=[mine.begun_ms])
    with private_server() as server:
        late, early = _gaps_ms(server, "bayes"), _gaps_ms(server, "random")
    gap = Figure(what="bayes, end of a trial to the next claim, 4 workers", unit="ms", values=late)
    yield gap
    yield gap.peer("random, whose sets all stand there", early)
    yield Figure(what="bayes, 95th percentile", unit="ms", values=[percentile(late, 95)])
    yield Figure(what="random, 95th percentile", unit="ms", values=[percentile(early, 95)])


def _value(rng: Random) -> float:
    return rng.random()


class Ours:
    """A sweep with `size` finished trials, and its suggester."""

    def __init__(self, server: Server, size: int, sampler: Sampler) -> None:
        keys = server.session().keys
        self._redis, self._events = server.redis, keys.sweep("s", "events")
        self._rng, self._next = Random(1), 1
        search = Search(space=_SPACE, sampler=sampler)
        sweep = SweepView(
            id="s", name="s", digest="d", launch=Launch(trainer="digits"),
            metric=Metric(name="loss"), sampler=sampler, search=encode_search(search),
        )  # fmt: skip
        context = StoreContext.open(server.redis, keys, mints=False)
        SweepWriter(context).create(sweep)
        lead = SuggestLease(context, "s", "w", _LEASE_MS)
        lead.acquire()
        draws = (_SPACE.draw(Random(f"0/{i}")) for i in range(size))
        rows = [encode_new(ParameterSet(params), 0) for params in draws]
        for start in range(0, size, 500):
            lead.append(start + 1, rows[start : start + 500])
        for _ in range(size):
            self._end(self._claim())
        self._store = TrialStore(context)
        self._is_there()
        self._suggester = Suggester(search, SweepHistory(server.redis, keys, "s"), lead)
        begun = time.process_time()
        self._suggester.acquire()
        self._suggester.begin()
        self.begun_ms = 1000 * (time.process_time() - begun)
        self._running = self._claim()
        self._suggester.step()

    def _is_there(self) -> None:
        """Register one live worker, for which suggestions are generated."""
        fields = {"state": "idle", "refuses": "{}", "only": ""}
        who = WorkerPresence(name="w", host="h", queue="default", fields=fields)
        self._store.present(who, idle=True, lifetime_ms=_LEASE_MS)

    def _claim(self) -> int:
        number = self._next
        self._next += 1
        self._redis.xadd(self._events, {"e": "claimed", "n": number, "a": 1})
        return number

    def _end(self, number: int) -> None:
        fields = {"e": "finished", "n": number, "a": 1, "objective": _value(self._rng)}
        self._redis.xadd(self._events, fields)  # type: ignore[arg-type]

    def one(self) -> float:
        """Return the CPU time of one suggestion in milliseconds."""
        self._is_there()
        self._end(self._running)
        self._running = self._claim()
        begun = time.process_time()
        self._suggester.step()  # the end, the claim, the set
        return 1000 * (time.process_time() - begun)


class Theirs:
    """The same with Optuna's ask and tell, in memory."""

    def __init__(self, size: int, sampler: Sampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        is_gp = sampler is Sampler.GP
        kind = optuna.samplers.GPSampler if is_gp else optuna.samplers.TPESampler
        self._study = optuna.create_study(sampler=kind(seed=0))
        self._axes: dict[str, optuna.distributions.BaseDistribution] = {
            "lr": optuna.distributions.FloatDistribution(1e-5, 1.0, log=True),
            "momentum": optuna.distributions.FloatDistribution(0.0, 0.99),
            "layers": optuna.distributions.IntDistribution(1, 12),
            "width": optuna.distributions.CategoricalDistribution((64, 128, 256, 512)),
            "dropout": optuna.distributions.FloatDistribution(0.0, 0.8),
        }
        self._rng = Random(1)
        for i in range(size):
            trial = optuna.trial.create_trial(
                params=_SPACE.draw(Random(f"0/{i}")),
                distributions=self._axes,
                value=_value(self._rng),
            )
            self._study.add_trial(trial)
        self._running = self._study.ask(self._axes)
        self._next = self._study.ask(self._axes)

    def one(self) -> float:
        """Return the CPU time of one suggestion in milliseconds, one generated ahead as in hpq."""
        begun = time.process_time()
        self._study.tell(self._running, _value(self._rng))
        self._running, self._next = self._next, self._study.ask(self._axes)
        return 1000 * (time.process_time() - begun)


def _gaps_ms(server: Server, method: str) -> list[float]:
    """Return the times from the end of a trial to the worker's next claim, from events."""
    server.empty()
    data = {
        "trainer": "stamps:second", "code": str(TRAINING), "resident": True, "method": method,
        "metric": {"name": "loss", "goal": "minimize"}, "run_cap": _TRIALS,
        "parameters": {"x": {"min": 0.0, "max": 1.0}, "seconds": {"value": _TRIAL_S}},
    }  # fmt: skip
    file = server.folder / f"{method}.yaml"
    file.write_text(yaml.safe_dump(data), "utf-8")
    sid = put(server, file)
    fleet = [*HPQ, "worker", "--workers", str(_WORKERS)]
    with running(fleet, server.env):
        wait_over(server, sid)
    ended: dict[str, int] = {}
    who: dict[int, str] = {}
    gaps = []
    for event in server.session().reader.events.read(sid):
        if event.what == "claimed":
            worker = who[event.trial] = event.fields["worker"]
            if worker in ended:
                gaps.append(float(event.at_ms - ended[worker]))
        elif event.what == "finished":
            ended[who[event.trial]] = event.at_ms
    return gaps
