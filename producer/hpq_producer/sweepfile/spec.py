"""A checked sweep file: the SweepSpec, its parameter sets, and how many trials it has.

No parameters are drawn until `parameter_sets` is iterated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import DEFAULT_QUEUE, EarlyTerminate, Keep, Metric, ObjectiveValue, Wandb
from hpq.domain.trial import Json
from hpq.notice import Notice
from hpq.search import samplers
from hpq.search.samplers import LIMIT
from hpq.search.search_spec import BY_DEFAULT, Sampler
from hpq.search.space import Space
from hpq_producer.sweepfile.errors import SourceMap

LIST = "list"  # the method of a file that lists its parameter sets


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """A checked sweep file, with defaults for missing keys.

    Exactly one of `trainer` and `program` is set, and exactly one of `space` and `listed`.
    `run_cap` is the file's or --count's. `varying` has names in the file's order; nested names are
    joined with dots. `source` is the data after the overrides; the digest hashes it.
    """

    name: str
    method: str
    space: Space | None = None
    listed: tuple[ParameterSet, ...] = ()
    points: tuple[ParameterSet, ...] = ()  # parameters of the space that run first
    metric: Metric | None = None
    learns_from: ObjectiveValue = ObjectiveValue.BEST  # the value that bayes learns from
    trainer: str = ""
    program: str = ""
    command: tuple[str, ...] = ()
    code: str = ""
    pass_env: tuple[str, ...] = ()
    resident: bool = False
    preload: tuple[str, ...] = ()
    wandb: Wandb = Wandb.STAND_IN
    queue: str = DEFAULT_QUEUE
    owner: str = ""
    seed: int = 0
    replicates: int = 1  # trials of each parameter set
    order: str = "grid"
    sampler: Sampler = BY_DEFAULT
    priority: int = 0
    max_parallel: int = 0  # 0 = no cap
    retries: int = 0
    timeout_s: float = 0.0  # 0 = none
    stall_s: float = 0.0  # 0 = the default
    keep: Keep | None = None
    early: EarlyTerminate | None = None
    run_cap: int | None = None
    varying: tuple[str, ...] = ()
    source: Mapping[str, Json] = field(default_factory=dict)
    text: str = ""  # YAML of a sweep that Python code enqueues; "": a file has it
    warnings: tuple[Notice, ...] = ()
    source_map: SourceMap = field(default=SourceMap(file=""), repr=False, compare=False)

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
    if spec.space is None:
        return islice(spec.listed, _cap(spec))
    if spec.method == "grid":
        every = samplers.grid(spec.space, shuffle=spec.order == "shuffle", seed=spec.seed)
    else:
        every = samplers.random(spec.space, None, spec.seed)
    return islice(_points_first(spec.points, every) if spec.points else every, _limit(spec))


def _limit(spec: SweepSpec) -> int | None:
    """Return the maximum number of parameter sets that `identified` yields."""
    if spec.method != "bayes":
        return _cap(spec)
    startup = spec.sampler.startup + len(spec.points)
    return min(_cap(spec) or startup, startup)


def _cap(spec: SweepSpec) -> int | None:
    """Convert run_cap from trials to parameter sets: each set runs with all its replicates."""
    return None if spec.run_cap is None else spec.run_cap // spec.replicates


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
    return min(limits) * spec.replicates if limits else None
