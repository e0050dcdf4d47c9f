"""Grid and random: from a space to parameter sets, lazily and the same each time. Pure.

Nothing here depends on time, process or `hash()`: a set follows from the space, the seed and its
index (and, where draws can repeat, from the draws before it).

Replicates: the same set several times, each with a seed of its own. Pure.

The trials of a set have numbers in a row, so a trial's number says which replicate it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count, islice
from random import Random

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Params, TrialView
from hpq.search.grid import Lattice
from hpq.search.space import NothingLeft, Space

LIMIT = 100_000  # sets of a sweep, unless --force
_REPEATS = 1_000  # draws in a row that give nothing new: the space has no more
_ROUNDS = 6


def grid(space: Space, *, shuffle: bool = False, seed: int = 0) -> Iterator[ParameterSet]:
    """Every combination: names sorted, the last varies fastest; shuffled by the seed if asked.

    Raises:
        ValueError: a grid cannot step through a parameter (names it).
    """
    lattice = space.grid
    if lattice is None:
        name = next(".".join(path) for path, leaf in space.leaves if leaf.size is None)
        raise ValueError(f"{name}: a grid cannot step through a continuous distribution")
    return _stepped(space, lattice, seed if shuffle else None)


def random(space: Space, n: int | None, seed: int) -> Iterator[ParameterSet]:
    """Up to n different sets (None = as many as there are); it ends when the space does."""
    every = grid(space, shuffle=True, seed=seed) if space.is_even else _drawn(space, seed)
    return islice(every, n)


def _stepped(space: Space, lattice: Lattice, seed: int | None) -> Iterator[ParameterSet]:
    """The sets of a lattice in order, or (with a seed) shuffled, but for those excluded."""
    size = lattice.size
    ranks = (i if seed is None else permuted(i, size, seed) for i in range(size))
    return (ParameterSet(params) for params in map(lattice.at, ranks) if space.allows(params))


def permuted(index: int, size: int, seed: int) -> int:
    """Where a seeded shuffle of range(size) has the index; no list is made, so size may be 10^18.

    A Feistel network on the next even number of bits, walked until it is back inside the range.
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
    """Independent draws, each set once; what draws hardly ever hit comes shuffled at the end."""
    seen: set[bytes] = set()
    last = 0
    # Counting a space costs as much as its conditions are wide; it is needed at the end only.
    for i in count():
        try:
            params = ParameterSet(space.draw(Random(f"{seed}/{i}")))
        except NothingLeft:  # hardly anything is not excluded
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


SEED = "seed"  # the parameter that is counted up, where a sweep has it


def replicated(params: ParameterSet, replicates: int) -> list[ParameterSet]:
    """The set once for each replicate, with its parameter `seed` (if it has one) counted up."""
    seed = params.get(SEED)
    if isinstance(seed, bool) or not isinstance(seed, int):
        return [params] * replicates
    others = (ParameterSet({**params, SEED: seed + i}) for i in range(1, replicates))
    return [params, *others]


def replicate_of(sweep: Sweep, number: int) -> int:
    """Which replicate of its set a trial is, from 1."""
    return (number - 1) % sweep.replicates + 1


def seed_of(sweep: Sweep, number: int, params: Params) -> int:
    """What a trial is to seed its random numbers with, below 2^31, which any library takes."""
    return seed_at(sweep.seed, replicate_of(sweep, number) - 1, params)


def seed_of_result(sweep: Sweep, trial: TrialView) -> int:
    """As `seed_of`; of a result that was taken from an older sweep, what it was seeded with."""
    return seed_of(sweep, trial.id.number, trial.params) if trial.seed is None else trial.seed


def seed_at(base: int, replicate: int, params: Params) -> int:
    """The parameter `seed` of a set, if it has one; else a sweep's, plus the replicate (from 0)."""
    own = params.get(SEED)
    if isinstance(own, int) and not isinstance(own, bool):
        return own % 2**31
    return (base + replicate) % 2**31
