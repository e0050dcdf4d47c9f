"""Grid and random: from a space to parameter sets, lazily and the same each time. Pure.

Nothing here depends on time, process or `hash()`: a set follows from the space, the seed and its
index (and, where draws can repeat, from the draws before it).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count, islice
from random import Random

from hpq.identity import identity
from hpq.search.lattice import Lattice
from hpq.search.space import NothingLeft, Space
from hpq.trial import Json

LIMIT = 100_000  # sets of a sweep, unless --force
_REPEATS = 1_000  # draws in a row that give nothing new: the space has no more
_ROUNDS = 6

Set = dict[str, Json]
Identified = tuple[Set, bytes | None]  # a set, and its identity if the sampler computed it


def grid(space: Space, *, shuffle: bool = False, seed: int = 0) -> Iterator[Set]:
    """Every combination: names sorted, the last varies fastest; shuffled by the seed if asked.

    Raises:
        ValueError: a grid cannot step through a parameter (names it).
    """
    lattice = space.grid
    if lattice is None:
        name = next(".".join(path) for path, leaf in space.leaves if leaf.size is None)
        raise ValueError(f"{name}: a grid cannot step through a continuous distribution")
    return _stepped(space, lattice, seed if shuffle else None)


def random(space: Space, n: int | None, seed: int) -> Iterator[Set]:
    """Up to n different sets (None = as many as there are); it ends when the space does."""
    return islice((params for params, _ in identified(space, seed)), n)


def identified(space: Space, seed: int) -> Iterator[Identified]:
    """Yield the sets of `random` with their identities."""
    if space.is_even:
        return ((params, None) for params in grid(space, shuffle=True, seed=seed))
    return _drawn(space, seed)


def _stepped(space: Space, lattice: Lattice, seed: int | None) -> Iterator[Set]:
    """The sets of a lattice in order, or (with a seed) shuffled, but for those excluded."""
    size = lattice.size
    ranks = (i if seed is None else permuted(i, size, seed) for i in range(size))
    return (params for params in map(lattice.at, ranks) if space.allows(params))


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


def _drawn(space: Space, seed: int) -> Iterator[Identified]:
    """Independent draws, each set once; what draws hardly ever hit comes shuffled at the end."""
    seen: set[bytes] = set()
    last = 0
    # Counting a space costs as much as its conditions are wide; it is needed at the end only.
    for i in count():
        try:
            params = space.draw(Random(f"{seed}/{i}"))
        except NothingLeft:  # hardly anything is not excluded
            break
        key = identity(params)
        if key not in seen:
            seen.add(key)
            last = i
            yield params, key
        elif i - last >= _REPEATS:
            break
    lattice = space.drawn
    if lattice is not None and lattice.size <= LIMIT:
        every = ((params, identity(params)) for params in _stepped(space, lattice, seed))
        yield from (both for both in every if both[1] not in seen)
