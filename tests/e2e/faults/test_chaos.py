"""Blows of every kind against processes, connections, disks and Redis; the audit holds."""

from __future__ import annotations

import pytest

from tests.chaos import Chaos, Plan


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_sweep_survives_one_blow_after_the_other(lab, seed) -> None:
    """F1, F3, F4, F9, F11, F12, F13, F17, F18: `make chaos` in short."""
    plan = Plan(seed=seed, trials=36, sweep_trials=12, workers=3, seconds=60.0, every_s=0.7)
    Chaos(lab, plan, print).run()
