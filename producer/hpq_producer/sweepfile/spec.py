"""A checked sweep file: the SweepSpec, its sets, and how many there are. Pure.

Nothing is expanded until `sets` is iterated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from hpq.domain.identity import identity
from hpq.domain.sweep import DEFAULT_CLASS, EarlyTerminate, Keep, Metric, Wandb
from hpq.domain.trial import Json
from hpq.notice import Notice
from hpq.search import samplers
from hpq.search.samplers import LIMIT, Identified
from hpq.search.search_spec import BY_DEFAULT, Sampler
from hpq.search.space import Space

Set = dict[str, Json]
LIST = "list"  # the method of a file that lists its sets


@dataclass(frozen=True, kw_only=True)
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

    @cached_property
    def trials(self) -> int | None:
        """Count the trials at most, without making them; None = open-ended.

        A random sweep without run_cap ends only over a space of at most 100,000 sets.
        """
        return _count(self, _cap(self))

    @cached_property
    def uncapped_trials(self) -> int | None:
        """Count the trials at most as if there were no run_cap; None = open-ended."""
        return _count(self, None)

    @property
    def is_late(self) -> bool:
        """True if sets are made while the sweep runs: by bayes, or without an end."""
        return self.method == "bayes" or self.trials is None


def sets(spec: SweepSpec) -> Iterator[Set]:
    """The sweep's sets in order, made one by one; without end if `trials` is None.

    Of bayes those that it begins with, which follow from no result.
    """
    return (params for params, _ in identified(spec))


def identified(spec: SweepSpec) -> Iterator[Identified]:
    """Yield the sets of `sets`, each with its identity if drawing it computed that."""
    if spec.space is None:
        return ((params, None) for params in islice(spec.listed, _cap(spec)))
    if spec.method == "grid":
        stepped = samplers.grid(spec.space, shuffle=spec.order == "shuffle", seed=spec.seed)
        every: Iterator[Identified] = ((params, None) for params in stepped)
    else:
        every = samplers.identified(spec.space, spec.seed)
    return islice(_first(spec.points, every) if spec.points else every, _limit(spec))


def _limit(spec: SweepSpec) -> int | None:
    """How many sets `sets` makes at most."""
    if spec.method != "bayes":
        return _cap(spec)
    startup = Sampler(spec.sampler or BY_DEFAULT).startup + len(spec.points)
    return min(_cap(spec) or startup, startup)


def _cap(spec: SweepSpec) -> int | None:
    """run_cap in sets: it counts trials, and a set is run with all its replicates or not at all."""
    return None if spec.run_cap is None else spec.run_cap // spec.replicates


def _first(points: tuple[Set, ...], every: Iterator[Identified]) -> Iterator[Identified]:
    """The points, then the other sets but for the points."""
    known = {identity(point): point for point in points}
    yield from ((point, mark) for mark, point in known.items())
    for params, mark in every:
        mark = mark or identity(params)
        if mark not in known:
            yield params, mark


def _count(spec: SweepSpec, cap: int | None) -> int | None:
    """Count the trials of at most `cap` sets; None = open-ended."""
    if spec.space is None:
        size: int | None = len(spec.listed)
    elif spec.method == "grid":
        size = spec.space.size
    else:
        size = spec.space.outcomes
        if cap is None and size is not None and size > LIMIT:
            size = None
    limits = [n for n in (size, cap) if n is not None]
    return min(limits) * spec.replicates if limits else None
