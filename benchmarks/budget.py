"""Measure what a sweep spends beyond its budget while 8 or 64 workers race for its trials.

The workers are threads that claim and commit by the store's calls. A trial sleeps: 1 s in the
median, lognormal, as long as its number says. Times are the server's.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figures import Figure
from benchmarks.server import Server, private_server
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import Claim, TrialState
from hpq.redis.client import connect
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq.store.wire.row import NewRow

_MEDIAN_S, _SIGMA, _SWEEPS, _POLL_S = 1.0, 0.5, 5, 0.2
_KEYS, _SID, _LEASE_MS = Keys("hpq"), "s-00000", 60_000
_CASES = ((8, 80), (64, 640), (64, 192), (64, 64))  # workers, and seconds of the budget


def measure(rounds: int) -> Iterator[Figure]:
    """Measure the overspend of five sweeps for each number of workers and budget."""
    with private_server() as server:
        for workers, seconds in _CASES:
            found = [_sweep(server, workers, seconds, seed) for seed in range(_SWEEPS)]
            spent, took = zip(*found, strict=True)
            case = f"{workers} workers, {seconds / workers:g} s of the budget for each"
            shares = [100 * (one / seconds - 1) for one in spent]
            yield Figure(what=f"{case}: spent beyond it", unit="%", values=shares)
            yield Figure(what=f"{case}: time of the sweep", unit="s", values=took)


def _sweep(server: Server, workers: int, seconds: int, seed: int) -> tuple[float, float]:
    """Run a sweep until no trial fits; return what it spent and how long it ran, in s."""
    server.empty()
    context = StoreContext.open(server.redis, _KEYS, mints=False)
    budget = Budget(budget_ms=1000 * seconds)
    sweep = SweepView(id=_SID, name="s", digest="d", launch=Launch(trainer="digits"), budget=budget)
    writer = SweepWriter(context)
    ids = [n.to_bytes(16, "big") for n in range(workers + 3 * seconds)]
    writer.add_rows(_SID, 1, [NewRow(dumps({"x": n}), one) for n, one in enumerate(ids)])
    writer.create(sweep)
    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda number: _work(server, number, seed), range(workers)))
    took = time.monotonic() - began
    return int(server.redis.hget(_KEYS.sweep(_SID), "spent_ms") or 0) / 1000, took


def _work(server: Server, number: int, seed: int) -> None:
    """Run trials until the budget holds the sweep."""
    redis = connect(server.url)
    who = WorkerPresence(name=f"w{number}", host=f"h{number}", queue="default")
    reader = StoreReader(redis, _KEYS, _LEASE_MS)
    store = TrialStore(StoreContext.open(redis, _KEYS, mints=False))
    while True:
        claim = store.claim(who, nonce=secrets.token_hex(8), lease_ms=_LEASE_MS)
        if not isinstance(claim, Claim):
            if reader.sweeps.get(_SID).is_over_budget:
                return
            time.sleep(_POLL_S)  # running trials may take less than expected
            continue
        drawn = random.Random(f"{seed} {claim.trial.number}")
        time.sleep(_MEDIAN_S * drawn.lognormvariate(0, _SIGMA))
        store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0))
