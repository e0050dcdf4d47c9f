"""What a sweep file comes to: a SweepSpec, its sets, and how many there are. Pure.

Imported by the commands that take a sweep file; `load` (in sweepfile) makes one. Nothing is
expanded until `sets` is iterated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hpq.sweep import DEFAULT_CLASS, EarlyTerminate, Keep, Metric
from hpq.trial import Json
from producer.sweepfile import samplers
from producer.sweepfile.samplers import LIMIT
from producer.sweepfile.space import Space

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
    listed: tuple[dict[str, Json], ...] = ()
    metric: Metric | None = None
    trainer: str = ""
    program: str = ""
    command: tuple[str, ...] = ()
    code: str = ""
    pass_env: tuple[str, ...] = ()
    resident: bool = False
    description: str = ""
    project: str = ""
    entity: str = ""
    queue: str = DEFAULT_CLASS
    owner: str = ""
    seed: int = 0
    order: str = "grid"
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
    warnings: tuple[str, ...] = ()


def sets(spec: SweepSpec) -> Iterator[dict[str, Json]]:
    """The sweep's sets in order, made one by one; without end where `count` is None."""
    if spec.space is None:
        return islice(spec.listed, spec.run_cap)
    if spec.method == "grid":
        every = samplers.grid(spec.space, shuffle=spec.order == "shuffle", seed=spec.seed)
        return islice(every, spec.run_cap)
    return samplers.random(spec.space, spec.run_cap, spec.seed)


def count(spec: SweepSpec) -> int | None:
    """How many sets there are at most, without making them; None = open-ended.

    A random sweep without run_cap ends only over a space of at most 100,000 sets.
    """
    size = len(spec.listed) if spec.space is None else spec.space.size
    if spec.space is not None and spec.method != "grid":
        size = size if spec.space.is_even else None
        if spec.run_cap is None and size is not None and size > LIMIT:
            return None
    if size is None or spec.run_cap is None:
        return spec.run_cap if size is None else size
    return min(size, spec.run_cap)
