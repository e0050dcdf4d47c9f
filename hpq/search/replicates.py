"""Replicates: trials of the same set, each with a seed of its own. Pure.

Their numbers are consecutive, so a trial's number determines its replicate.
"""

from __future__ import annotations

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import RunnableSweep, SweepView
from hpq.domain.trial import Params, TrialView

SEED = "seed"  # a parameter of this name rises by one from replicate to replicate


def replicated(params: ParameterSet, replicates: int) -> list[ParameterSet]:
    """Return the set once for each replicate; a parameter `seed` rises by one each time."""
    seed = seed_param(params)
    if seed is None:
        return [params] * replicates
    others = (ParameterSet({**params, SEED: seed + i}) for i in range(1, replicates))
    return [params, *others]


def seed_param(params: Params) -> int | None:
    """Return the parameter `seed`, which tells replicates apart; None if no integer is there."""
    seed = params.get(SEED)
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def replicate_of(sweep: RunnableSweep, number: int) -> int:
    """Return the place of a trial among the replicates of its set, from 1."""
    return (number - 1) % sweep.replicates + 1


def first_of_set(sweep: RunnableSweep, number: int) -> int:
    """Return the number of the first trial with the same set as a trial."""
    return number - (number - 1) % sweep.replicates


def set_of(sweep: RunnableSweep, number: int) -> int:
    """Return the number of a trial's set among those of the sweep, from 1."""
    return (number - 1) // sweep.replicates + 1


def seed_of(sweep: RunnableSweep, number: int, params: Params) -> int:
    """Return a trial's seed for random numbers, below 2^31, which any library accepts."""
    return seed_at(sweep.seed, replicate_of(sweep, number) - 1, params)


def seed_of_result(sweep: SweepView, trial: TrialView) -> int:
    """Like `seed_of`; for a result of an older sweep, the seed that it ran with."""
    return seed_of(sweep, trial.id.number, trial.params) if trial.seed is None else trial.seed


def seed_at(base: int, replicate: int, params: Params) -> int:
    """Return a set's parameter `seed`; else the sweep's seed plus the replicate (from 0)."""
    own = params.get(SEED)
    if isinstance(own, int) and not isinstance(own, bool):
        return own % 2**31
    return (base + replicate) % 2**31
