"""A checked sweep file: the SweepSpec, its parameter sets, and how many trials it has.

No parameters are drawn until `parameter_sets` is iterated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hpq.code.command import DEFAULT
from hpq.domain.budget import Budget
from hpq.domain.constraint import Constraint
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import DEFAULT_QUEUE, FUNCTION, EarlyTerminate, Metric
from hpq.domain.trial import Json
from hpq.notice import Notice
from hpq.search import samplers
from hpq.search.samplers import LIMIT
from hpq.search.space import Space
from hpq.yamlfile.problems import SourceMap
from hpq_producer.sweepfile.model import CommonKeys, SweepFile

LIST = "list"  # the method of a file that lists its parameter sets


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """A checked sweep file: its keys, and what follows from them.

    `keys` have the values of flags such as --count, and defaults for missing keys. The default of
    `name` is the file's name, that of `metric` a built-in trainer's. Exactly one of `space` and
    `listed` is set. `varying` has names in the file's order; nested names are joined with dots.
    `source` is the data after the overrides; the digest hashes it.
    """

    keys: CommonKeys
    name: str
    metric: Metric | None = None
    objectives: tuple[Metric, ...] = ()  # `metric` first; () if there is only one
    constraints: tuple[Constraint, ...] = ()
    space: Space | None = None
    listed: tuple[ParameterSet, ...] = ()
    points: tuple[ParameterSet, ...] = ()  # parameters of the space that run first
    varying: tuple[str, ...] = ()
    source: Mapping[str, Json] = field(default_factory=dict)
    text: str = ""  # YAML of a sweep that Python code enqueues; "": a file has it
    warnings: tuple[Notice, ...] = ()
    source_map: SourceMap = field(default=SourceMap(file=""), repr=False, compare=False)

    @property
    def method(self) -> str:
        """Return the file's method; LIST if it lists its parameter sets."""
        return self.keys.method if isinstance(self.keys, SweepFile) else LIST

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command of a program, W&B's by default; () if a trainer runs."""
        return self.keys.command or (DEFAULT if self.keys.program else ())

    @property
    def queue(self) -> str:
        """Return the queue whose workers run the sweep."""
        return self.keys.queue or (FUNCTION if self.keys.trainer == FUNCTION else DEFAULT_QUEUE)

    @property
    def early(self) -> EarlyTerminate | None:
        """Return the rule of early termination with its bands."""
        return self.keys.early_terminate.rule() if self.keys.early_terminate else None

    @property
    def budget(self) -> Budget | None:
        """Return what the sweep may spend; None if the file sets no limit."""
        return self.keys.budget.budget() if self.keys.budget else None

    @property
    def trials(self) -> int | None:
        """Count the sweep's trials without drawing parameters; None = open-ended.

        A random sweep without run_cap is open-ended over a space of more than 100,000 points.
        """
        return _count(self, _cap(self))

    @property
    def uncapped_trials(self) -> int | None:
        """Count the sweep's trials without run_cap; None = open-ended."""
        return _count(self, None)

    @property
    def is_late(self) -> bool:
        """Return whether trials are added while the sweep runs: bayes, or open-ended."""
        return self.method == "bayes" or self.trials is None


def parameter_sets(spec: SweepSpec) -> Iterator[ParameterSet]:
    """Yield the sweep's parameter sets in order; without end if `trials` is None.

    For bayes, only the startup sets, which no result influences.
    """
    keys = spec.keys
    if spec.space is None or not isinstance(keys, SweepFile):
        return islice(spec.listed, _cap(spec))
    if keys.method == "grid":
        every = samplers.grid(spec.space, shuffle=keys.order == "shuffle", seed=keys.seed)
    else:
        every = samplers.random(spec.space, None, keys.seed)
    return islice(_points_first(spec.points, every) if spec.points else every, _limit(spec))


def _limit(spec: SweepSpec) -> int | None:
    """Return the maximum number of parameter sets that `identified` yields."""
    if spec.method != "bayes":
        return _cap(spec)
    startup = spec.keys.sampler.startup + len(spec.points)
    return min(_cap(spec) or startup, startup)


def _cap(spec: SweepSpec) -> int | None:
    """Convert run_cap from trials to parameter sets: each set runs with all its replicates."""
    return None if spec.keys.run_cap is None else spec.keys.run_cap // spec.keys.replicates


def _points_first(
    points: tuple[ParameterSet, ...], every: Iterator[ParameterSet]
) -> Iterator[ParameterSet]:
    """Yield the points, then every drawn parameter set that is not a point."""
    known = {point.identity for point in points}
    yield from points
    yield from (params for params in every if params.identity not in known)


def _count(spec: SweepSpec, cap: int | None) -> int | None:
    """Count the trials of at most `cap` parameter sets; None = open-ended."""
    if spec.space is None:
        size: int | None = len(spec.listed)
    elif spec.method == "grid":
        size = spec.space.size
    else:
        size = spec.space.outcomes
        if cap is None and size is not None and size > LIMIT:
            size = None
    limits = [n for n in (size, cap) if n is not None]
    return min(limits) * spec.keys.replicates if limits else None
