"""Grid and random: generate parameter sets of a space, lazily and the same each time. Pure.

Nothing here depends on time, process or `hash()`: a set follows from the space, the seed and its
index (and, if draws can repeat, from the draws before it).

Replicates are trials of the same set, each with a seed of its own. Their numbers are consecutive,
so a trial's number determines its replicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count, islice
from random import Random

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import RunnableSweep, SweepView
from hpq.domain.trial import Params, TrialView
from hpq.search.grid import Lattice
from hpq.search.space import NothingLeft, Space

LIMIT = 100_000  # sets of a sweep, unless --force
_REPEATS = 1_000  # draws in a row without a new set, after which the space counts as exhausted
_ROUNDS = 6


def grid(space: Space, *, shuffle: bool = False, seed: int = 0) -> Iterator[ParameterSet]:
    """Yield every combination: names sorted, the last varies fastest; or shuffled by the seed.

    Raises:
        ValueError: a grid cannot list the values of a parameter (names it).
    """
    lattice = space.grid
    if lattice is None:
        name = next(".".join(path) for path, leaf in space.leaves if leaf.size is None)
        raise ValueError(f"{name}: a grid cannot step through a continuous distribution")
    return _stepped(space, lattice, seed if shuffle else None)


def random(space: Space, n: int | None, seed: int) -> Iterator[ParameterSet]:
    """Yield at most n different sets (None: no limit), until the space is exhausted."""
    every = grid(space, shuffle=True, seed=seed) if space.is_even else _drawn(space, seed)
    return islice(every, n)


def _stepped(space: Space, lattice: Lattice, seed: int | None) -> Iterator[ParameterSet]:
    """Yield the allowed sets of a lattice in order, or shuffled by a seed."""
    size = lattice.size
    ranks = (i if seed is None else permuted(i, size, seed) for i in range(size))
    return (ParameterSet(params) for params in map(lattice.at, ranks) if space.allows(params))


def permuted(index: int, size: int, seed: int) -> int:
    """Return the element at an index of a seeded shuffle of range(size), which may be 10^18.

    A Feistel network on the next even number of bits, repeated until the result is in the range.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(_ROUNDS):
            mixed = blake2b(b"%d/%d/%d/%d" % (seed, size, turn, right)).digest()
            left, right = right, left ^ (int.from_bytes(mixed, "big") & mask)
        index = left << half | right
        if index < size:
            return index


def _drawn(space: Space, seed: int) -> Iterator[ParameterSet]:
    """Yield independent draws, each set once; then, shuffled, the sets that draws hardly hit."""
    seen: set[bytes] = set()
    last = 0
    # A space with many conditions is costly to count, so it is counted at the end only.
    for i in count():
        try:
            params = ParameterSet(space.draw(Random(f"{seed}/{i}")))
        except NothingLeft:  # nearly all sets are excluded
            break
        if params.identity not in seen:
            seen.add(params.identity)
            last = i
            yield params
        elif i - last >= _REPEATS:
            break
    lattice = space.drawn
    if lattice is not None and lattice.size <= LIMIT:
        every = _stepped(space, lattice, seed)
        yield from (params for params in every if params.identity not in seen)


SEED = "seed"  # a parameter of this name rises by one from replicate to replicate


def replicated(params: ParameterSet, replicates: int) -> list[ParameterSet]:
    """Return the set once for each replicate; a parameter `seed` rises by one each time."""
    seed = params.get(SEED)
    if isinstance(seed, bool) or not isinstance(seed, int):
        return [params] * replicates
    others = (ParameterSet({**params, SEED: seed + i}) for i in range(1, replicates))
    return [params, *others]


def replicate_of(sweep: RunnableSweep, number: int) -> int:
    """Return the place of a trial among the replicates of its set, from 1."""
    return (number - 1) % sweep.replicates + 1


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
