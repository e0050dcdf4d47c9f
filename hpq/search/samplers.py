"""The samplers of a sweep: what each needs, and the parameter sets of a grid and of random draws.

A `Search` is what the producer writes with a suggested sweep, and the worker that holds the suggest
lease reads. Grid and random generate their sets lazily and the same each time: nothing depends on
time, process or `hash()`. A set follows from the space, the seed and its index (and, if draws can
repeat, from the draws before it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from importlib.util import find_spec
from itertools import count, islice
from random import Random
from typing import Final

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.extras import install_command
from hpq.search.grid import Lattice
from hpq.search.space import NothingLeft, Space


class Sampler(StrEnum):
    """What suggests parameters: draws, one of Optuna's samplers, or GP and then TPE (auto)."""

    RANDOM = "random"
    AUTO = "auto"
    TPE = "tpe"
    GP = "gp"
    CMAES = "cmaes"
    QMC = "qmc"
    NSGA2 = "nsga2"

    @property
    def startup(self) -> int:
        """Number of results from which it learns; until then parameters are drawn at random."""
        return 1 if self in (Sampler.CMAES, Sampler.QMC) else 10

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules that it requires, besides hpq's own."""
        return _NEEDS[self]

    @property
    def wants(self) -> tuple[str, ...]:
        """The modules that it uses if they are installed."""
        return Sampler.GP.needs if self is Sampler.AUTO else self.needs


BY_DEFAULT: Final = Sampler.AUTO
_NEEDS: dict[Sampler, tuple[str, ...]] = {
    Sampler.RANDOM: (),
    Sampler.AUTO: ("optuna",),
    Sampler.TPE: ("optuna",),
    Sampler.GP: ("optuna", "scipy", "torch"),
    Sampler.CMAES: ("optuna", "cmaes"),
    Sampler.QMC: ("optuna", "scipy"),
    Sampler.NSGA2: ("optuna",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The space and how it is searched.

    `take` selects the value of a trial that counts: the best, as with W&B, unless the file sets
    another. Without `impute_while_running` a running trial has no result yet.
    """

    space: Space
    sampler: Sampler = Sampler.TPE
    seed: int = 0
    replicates: int = 1  # trials of each set
    maximize: bool = False
    metric: str = ""
    take: ObjectiveValue = ObjectiveValue.BEST
    impute: Impute = Impute.WORST
    impute_while_running: Impute | None = None
    maximizes: tuple[bool, ...] = ()  # for each of several metrics; () for one
    constraints: int = 0  # how many


def is_installed(name: str) -> bool:
    """True if a module can be imported here; does not import it."""
    return find_spec(name) is not None


def missing(sampler: Sampler, has_module: Callable[[str], bool]) -> str | None:
    """Return a line that names what to install if a sampler cannot run; None if it can."""
    absent = [name for name in sampler.needs if not has_module(name)]
    return f"sampler {sampler} needs {_install(absent)}" if absent else None


def unaided(sampler: Sampler, has_module: Callable[[str], bool]) -> str | None:
    """Return a line that names what to install for better suggestions; None if the sampler has
    all that it wants, or cannot run at all."""
    absent = [name for name in sampler.wants if not has_module(name)]
    if not absent or missing(sampler, has_module):
        return None
    return f"sampler {sampler} is {Sampler.TPE} alone without {_install(absent)}"


def _install(absent: Sequence[str]) -> str:
    return f"{', '.join(absent)}; run: {install_command(' '.join(absent))}"


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
