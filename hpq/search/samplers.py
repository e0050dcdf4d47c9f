"""Grid and random: generate parameter sets of a space, lazily and the same each time. Pure.

Nothing here depends on time, process or `hash()`: a set follows from the space, the seed and its
index (and, if draws can repeat, from the draws before it).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count, islice
from random import Random

from hpq.domain.identity import ParameterSet
from hpq.search.grid import Lattice
from hpq.search.space import NothingLeft, Space

LIMIT = 100_000  # sets of a sweep, unless --force
_REPEATS = 1_000  # draws in a row without a new set, after which the space counts as exhausted
_ROUNDS = 6
_SHUFFLED = 10**1_000  # sets: draws from more never repeat, and Python prints no 4,300 digits


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
    lattice = space.grid if space.is_even else None
    if lattice is not None and lattice.size <= _SHUFFLED:
        return islice(_stepped(space, lattice, seed), n)
    return islice(_drawn(space, seed), n)


def _stepped(space: Space, lattice: Lattice, seed: int | None) -> Iterator[ParameterSet]:
    """Yield the sets of a lattice that run, in order, or shuffled by a seed."""
    size = lattice.size
    ranks = (i if seed is None else permuted(i, size, seed) for i in range(size))
    every = (space.complete(lattice.at(rank)) for rank in ranks)
    return (ParameterSet(params) for params in every if params is not None)


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
