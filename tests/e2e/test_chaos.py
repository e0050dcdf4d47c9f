"""Workers, runners and Redis are killed at random while a sweep runs; the audit holds."""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest

from hpq.trial import TrialState

QUICK = """
    import time

    def train(params, trial):
        for step in range(1, 6):
            trial.report({"loss": params["x"] / step}, step=step)
            time.sleep(0.03)
        return {"loss": params["x"] / 10}
"""
TRIALS, BLOWS = 40, 14


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", list(range(1, 7)))
def test_a_sweep_survives_one_blow_after_the_other(lab, seed) -> None:
    rng = random.Random(seed)
    lab.write("quick.py", QUICK)
    sid = lab.enqueue(
        "trainer: quick:train\nmethod: grid\nmetric: {name: loss}\nretries: 100\n"
        f"parameters: {{x: {{values: {list(range(1, TRIALS + 1))}}}}}\n",
        HPQ_LOST_MAX="1000",
    )

    def blow(pattern: str, number: int) -> None:
        pids = sorted(lab.processes(pattern))
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(pids), number)

    def bounce() -> None:
        lab.server.kill()
        lab.server.start()

    blows = (
        lambda: blow(r"-m worker\.one", signal.SIGKILL),
        lambda: blow(r"-m worker\.runner", signal.SIGKILL),
        lambda: blow(r"-m worker($| --workers)", signal.SIGTERM),
        bounce,
    )
    for ended in range(BLOWS):
        while sum(fleet.poll() is None for fleet in lab.workers) < 2:
            lab.worker(HPQ_LOST_MAX="1000")
        lab.wait_until(lambda n=ended: lab.view.sweep(sid).counts.ended > n, "the next result")
        rng.choice(blows)()
    lab.worker(HPQ_LOST_MAX="1000")
    lab.wait_over(sid)
    trials = list(lab.view.all_trials(sid))
    assert {t.state for t in trials} == {TrialState.FINISHED}
    assert [t.objective for t in trials] == [t.params["x"] / 10 for t in trials]
