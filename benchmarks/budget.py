"""Measure what a sweep spends beyond its budget while eight workers race for its trials.

The workers are threads that claim and commit by the store's calls. A trial sleeps: 20 ms in the
median, lognormal, as long as its number says. Times are the server's.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.figures import Figure
from benchmarks.server import Server, private_server
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import Claim, TrialId, TrialState
from hpq.redis.client import connect
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq.store.wire.row import NewRow

_WORKERS, _TRIALS, _BUDGET_MS = 8, 400, 2_000
_MEDIAN_S, _SIGMA, _SWEEPS = 0.02, 0.5, 20
_KEYS = Keys("hpq")


def measure(rounds: int) -> Iterator[Figure]:
    """Measure the overspend of 20 sweeps, and what their last running trials had reserved."""
    with private_server() as server:
        found = [_sweep(server, seed) for seed in range(_SWEEPS)]
    spent, reserved = zip(*found, strict=True)
    shares = [100 * (ms / _BUDGET_MS - 1) for ms in spent]
    yield Figure(what="spent beyond the budget (below 0: left)", unit="%", values=shares)
    part = [100 * ms / _BUDGET_MS for ms in reserved]
    yield Figure(what="reserved by the trials that ran at the last claim", unit="%", values=part)
    beyond = [max(0.0, 100 * over / held) for over, held in zip(shares, part, strict=True)]
    yield Figure(what="spent beyond, as a share of these", unit="%", values=beyond)


def _sweep(server: Server, seed: int) -> tuple[int, int]:
    """Run a sweep until no trial fits; return what it spent and had reserved, in ms."""
    server.empty()
    context = StoreContext.open(server.redis, _KEYS, mints=False)
    budget = Budget(budget_ms=_BUDGET_MS)
    sweep = SweepView(
        id="s-00000", name="s", digest="d", launch=Launch(trainer="digits"), budget=budget
    )
    writer = SweepWriter(context)
    ids = [n.to_bytes(16, "big") for n in range(_TRIALS)]
    writer.add_rows(sweep.id, 1, [NewRow(dumps({"x": n}), one) for n, one in enumerate(ids)])
    writer.create(sweep)
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(lambda number: _work(server, number, seed), range(_WORKERS)))
    spent = server.redis.hget(_KEYS.sweep(sweep.id), "spent_ms")
    names = ("claimed_ms", "ended_ms", "reserved_ms")
    trials = (_KEYS.trial(TrialId(sweep=sweep.id, number=n)) for n in range(1, _TRIALS + 1))
    found: Iterator[Any] = (server.redis.hmget(key, names) for key in trials)
    rows = [list(map(int, row)) for row in found if all(row)]
    last = max(claimed for claimed, _, _ in rows)
    return int(spent or 0), sum(reserved for _, ended, reserved in rows if ended >= last)


def _work(server: Server, number: int, seed: int) -> None:
    """Run trials until none can be claimed."""
    redis = connect(server.url)
    store = TrialStore(StoreContext.open(redis, _KEYS, mints=False))
    who = WorkerPresence(name=f"w{number}", host=f"h{number}", queue="default")
    while True:
        claim = store.claim(who, nonce=secrets.token_hex(8), lease_ms=60_000)
        if not isinstance(claim, Claim):
            redis.close()
            return
        drawn = random.Random(f"{seed} {claim.trial.number}")
        time.sleep(_MEDIAN_S * drawn.lognormvariate(0, _SIGMA))
        store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0))
