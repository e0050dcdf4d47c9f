"""What a sweep file comes to: a SweepSpec, its sets, and how many there are. Pure.

Imported by the commands that take a sweep file; `load` (in sweepfile) makes one. Nothing is
expanded until `sets` is iterated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hpq.codes import Notice
from hpq.identity import identity
from hpq.search import samplers
from hpq.search.record import BY_DEFAULT, Sampler
from hpq.search.replicates import replicated
from hpq.search.samplers import LIMIT
from hpq.search.space import Space
from hpq.sweep import DEFAULT_CLASS, EarlyTerminate, Keep, Metric, Wandb
from hpq.trial import Json

Set = dict[str, Json]
LIST = "list"  # the method of a file that lists its sets


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """A checked sweep file, with the defaults for what it leaves out.

    Exactly one of `trainer` and `program` is set, and one of `space` and `listed` gives the sets.
    `run_cap` is the file's or --count's. `varying` are names in the file's order, with dots where
    they are nested.
    `source` is the data as it stands after the flags; the digest is made of it.
    """

    name: str
    method: str
    space: Space | None = None
    listed: tuple[Set, ...] = ()
    points: tuple[Set, ...] = ()  # sets of the space that come first
    metric: Metric | None = None
    trainer: str = ""
    program: str = ""
    command: tuple[str, ...] = ()
    code: str = ""
    pass_env: tuple[str, ...] = ()
    resident: bool = False
    wandb: Wandb = Wandb.STAND_IN
    description: str = ""
    project: str = ""
    entity: str = ""
    queue: str = DEFAULT_CLASS
    owner: str = ""
    seed: int = 0
    replicates: int = 1  # trials of each set
    order: str = "grid"
    sampler: str = ""  # the file's; "" = by default
    priority: int = 0
    max_parallel: int = 0  # 0 = no cap
    retries: int = 0
    timeout_s: float = 0.0  # 0 = none
    stall_s: float = 0.0  # 0 = by default
    keep: Keep | None = None
    early: EarlyTerminate | None = None
    run_cap: int | None = None
    varying: tuple[str, ...] = ()
    source: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()


def is_late(spec: SweepSpec) -> bool:
    """True where sets are made while the sweep runs: by bayes, and where there is no end."""
    return spec.method == "bayes" or count(spec) is None


def sets(spec: SweepSpec) -> Iterator[Set]:
    """The sweep's sets in order, made one by one; without end where `count` is None.

    Of bayes those that it begins with, which follow from no result.
    """
    if spec.space is None:
        return islice(spec.listed, _cap(spec))
    if spec.method == "grid":
        every = samplers.grid(spec.space, shuffle=spec.order == "shuffle", seed=spec.seed)
    else:
        every = samplers.random(spec.space, None, spec.seed)
    return islice(_first(spec.points, every), _limit(spec))


def _limit(spec: SweepSpec) -> int | None:
    """How many sets `sets` makes at most."""
    if spec.method != "bayes":
        return _cap(spec)
    startup = Sampler(spec.sampler or BY_DEFAULT).startup + len(spec.points)
    return min(_cap(spec) or startup, startup)


def _cap(spec: SweepSpec) -> int | None:
    """run_cap in sets: it counts trials, and a set is run with all its replicates or not at all."""
    return None if spec.run_cap is None else spec.run_cap // spec.replicates


def rows(sets: Iterable[Set], replicates: int) -> Iterator[tuple[Set, int]]:
    """Each set with each of its replicates: what becomes a trial."""
    for params in sets:
        yield from ((again, i) for i, again in enumerate(replicated(params, replicates)))


def _first(points: tuple[Set, ...], every: Iterator[Set]) -> Iterator[Set]:
    """The points, then the other sets but for the points."""
    yield from points
    known = {identity(point) for point in points}
    yield from (params for params in every if not known or identity(params) not in known)


def count(spec: SweepSpec) -> int | None:
    """How many trials there are at most, without making them; None = open-ended.

    A random sweep without run_cap ends only over a space of at most 100,000 sets.
    """
    limits = [n for n in (_number_of_sets(spec), _cap(spec)) if n is not None]
    return min(limits) * spec.replicates if limits else None


def _number_of_sets(spec: SweepSpec) -> int | None:
    if spec.space is None:
        return len(spec.listed)
    if spec.method == "grid":
        return spec.space.size
    size = spec.space.outcomes
    return None if size is not None and size > LIMIT and spec.run_cap is None else size
