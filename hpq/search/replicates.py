"""Replicates: the same set several times, each with a seed of its own. Pure.

The trials of a set have numbers in a row, so a trial's number says which replicate it is.
"""

from __future__ import annotations

from hpq.sweep import Sweep
from hpq.trial import Json, Params, Trial

SEED = "seed"  # the parameter that is counted up, where a sweep has it


def replicated(params: dict[str, Json], replicates: int) -> list[dict[str, Json]]:
    """The set once for each replicate, with its parameter `seed` (if it has one) counted up."""
    seed = params.get(SEED)
    if isinstance(seed, bool) or not isinstance(seed, int):
        return [params] * replicates
    return [{**params, SEED: seed + replicate} for replicate in range(replicates)]


def replicate_of(sweep: Sweep, number: int) -> int:
    """Which replicate of its set a trial is, from 1."""
    return (number - 1) % sweep.replicates + 1


def seed_of(sweep: Sweep, number: int, params: Params) -> int:
    """What a trial is to seed its random numbers with, below 2^31, which any library takes."""
    return seed_at(sweep.seed, replicate_of(sweep, number) - 1, params)


def seed_of_result(sweep: Sweep, trial: Trial) -> int:
    """As `seed_of`; of a result that was taken from an older sweep, what it was seeded with."""
    return seed_of(sweep, trial.id.number, trial.params) if trial.seed is None else trial.seed


def seed_at(base: int, replicate: int, params: Params) -> int:
    """The parameter `seed` of a set, if it has one; else a sweep's, plus the replicate (from 0)."""
    own = params.get(SEED)
    if isinstance(own, int) and not isinstance(own, bool):
        return own % 2**31
    return (base + replicate) % 2**31
