"""A checked sweep file: the SweepSpec, its parameter sets, and how many trials it has.

No parameters are drawn until `parameter_sets` is iterated. `check_count` reports a sweep without
trials, or with too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from hpq.code.command import DEFAULT
from hpq.domain.budget import Budget
from hpq.domain.constraint import Constraint
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import DEFAULT_QUEUE, FUNCTION, EarlyTerminate, Metric
from hpq.domain.trial import Json
from hpq.notice import Notice, plural
from hpq.search import samplers
from hpq.search.conditions import nest
from hpq.search.grid import MOST, Lattice, TooMany, in_digits
from hpq.search.replicates import SEED
from hpq.search.samplers import LIMIT
from hpq.search.space import TRIES, NothingLeft, Rejected, Space
from hpq.yamlfile.problems import KeyPath, Problems, SourceMap
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
    return islice(points_first(spec.points, every), _limit(spec))


def _limit(spec: SweepSpec) -> int | None:
    """Return the maximum number of parameter sets that `identified` yields."""
    if spec.method != "bayes":
        return _cap(spec)
    startup = spec.keys.sampler.startup + len(spec.points)
    return min(_cap(spec) or startup, startup)


def _cap(spec: SweepSpec) -> int | None:
    """Convert run_cap from trials to parameter sets: each set runs with all its replicates."""
    return None if spec.keys.run_cap is None else spec.keys.run_cap // spec.keys.replicates


def points_first(
    points: tuple[ParameterSet, ...], every: Iterator[ParameterSet]
) -> Iterator[ParameterSet]:
    """Yield the points, then every drawn parameter set that is not a point."""
    if not points:
        yield from every
        return
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


_MAX_GRID = 5_000_000  # parameter sets of a grid that `exclude` is tested on
_SAMPLE = 1_000  # parameter sets for which expressions are computed, if all are too many


def check_count(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Report errors of the number of trials; more than `limit` are an error (None = any)."""
    if out.errors:
        return
    try:
        if spec.space is not None and (spec.space.exclude or spec.space.has_expressions):
            _check_left(spec.space, spec.method == "grid", out)
        _check_replicates(spec, out)
        if not out.errors:
            _check_limit(spec, limit, out)
            _warn_of_cap(spec, out)
    except TooMany as error:
        out.add(
            ("exclude" if "exclude" in spec.source else "when",),
            str(error),
            code="conditions-costly",
        )


def describe_share(spec: SweepSpec) -> str:
    """Return how many parameter sets `require` leaves, exactly or of a sample; "" without it."""
    space = spec.space
    if space is None or not space.require:
        return ""
    is_grid = spec.method == "grid"
    lattice, kept = (space.grid, space.size) if is_grid else (space.drawn, space.outcomes)
    if lattice is not None and kept is not None:
        of = lattice.count
        sets = f"{in_digits(of)} parameter {plural(of, 'combination')}"
        remain = plural(kept, "remains", "remain")
        return f"require: {in_digits(kept)} of {sets} {remain} ({kept / of:.1%})"
    found = [space.complete(params) is not None for params in _sample(space)]
    return f"require: about {sum(found) / len(found):.1%} of random draws remain"


def _check_left(space: Space, is_grid: bool, out: Problems) -> None:
    """Report `exclude`, `derive` and `require` that leave nothing: count if possible, else draw.

    Warn of expressions that have no value in some trials.
    """
    key = "require" if space.require else "derive" if space.derive else "exclude"
    most = MOST if space.has_expressions else _MAX_GRID
    if is_grid and space.grid is not None and space.grid.size > most:
        what = f"must be tested on {in_digits(space.grid.size)} grid points, more than {most:,}"
        out.add((key,), f"{what}; use fewer values, or method: random", code="conditions-costly")
        return
    count, text = space.size if is_grid else space.outcomes, ""
    verb = "excludes" if key == "exclude" else "rejects"
    try:
        if count is None:
            space.draw(Random(0))
        elif count == 0:
            text = f"{verb} every trial; remove an entry"
    except NothingLeft:
        text = f"{verb} each of {TRIES:,} random draws; remove an entry"
    reasons = _reasons(space, is_grid) if space.has_expressions else {}
    for path, reason in reasons.items():
        if text:
            out.add(path, f"{reason}; change it", code="no-set-left")
        else:
            out.warn(path, f"{reason}; such trials do not run", code="not-computed")
    if text and not reasons:
        out.add((key,), text, code="no-set-left")


def _reasons(space: Space, is_grid: bool) -> dict[KeyPath, str]:
    """Return why expressions have no value for some parameters, the first of a sample."""
    reasons: dict[KeyPath, str] = {}
    for params in _sample(space, space.grid if is_grid else None):
        try:
            space.check(params)
        except Rejected as error:
            if error.reason:
                reasons.setdefault(error.place, error.reason)
    return reasons


def _sample(space: Space, lattice: Lattice | None = None) -> Iterator[dict[str, Json]]:
    """Yield parameter sets of a grid, or random ones; the same each time."""
    if lattice is not None:
        for i in range(min(lattice.size, _SAMPLE)):
            yield lattice.at(samplers.permuted(i, lattice.size, 0))
    else:
        rng = Random(0)
        for _ in range(_SAMPLE):
            yield space.without_inactive(
                nest([(path, leaf.draw(rng)) for path, leaf in space.leaves])
            )


def _check_replicates(spec: SweepSpec, out: Problems) -> None:
    """Report replicates that run_cap cuts, and uses of the parameter `seed`, which they change."""
    for name, expression in spec.space.derive if spec.space is not None else ():
        if SEED in (name, *(one.text for one in expression.names)):
            what = f"replicates and best --confirm change the parameter {SEED}; remove this entry"
            out.add_conflict(("derive", name), what)
    each = spec.keys.replicates
    if each == 1:
        return
    leaf = spec.space.parameters.get((SEED,)) if spec.space is not None else None
    if leaf is not None and (leaf.size != 1 or type(leaf.at(0)) is not int):
        what = "replicates add 0, 1, … to it, so it must be one whole number; write value: 0"
        out.add_conflict(("parameters", SEED), what)
    cap = spec.keys.run_cap
    if cap is not None and cap < each:
        out.add(
            ("run_cap",),
            f"{cap} is less than replicates: {each}; raise it",
            code="replicates-cut",
        )
    elif cap is not None and cap % each:
        count = cap // each * each
        some = f"{count} {plural(count, 'trial')}"
        text = f"{cap} is not a multiple of replicates: {each}; {some} will run"
        out.warn(("run_cap",), text, code="replicates-cut")


def _check_limit(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Report a sweep of more than `limit` trials."""
    total = spec.trials
    if total is None or limit is None or total <= limit:
        return
    key = "parameters" if spec.keys.run_cap is None or total < spec.keys.run_cap else "run_cap"
    out.add((key,), f"{in_digits(total)} trials, more than {limit:,}; use fewer values, "
            "method: random with a smaller run_cap, or --force", code="too-many-sets")  # fmt: skip


def _warn_of_cap(spec: SweepSpec, out: Problems) -> None:
    """Warn of a run_cap that cuts a grid or a list, or is larger than the number of trials."""
    total, cap = spec.uncapped_trials, spec.keys.run_cap
    if cap is None or total is None or cap == total:
        return
    if cap > total:
        has = f"{total:,} {plural(total, 'trial')}"
        out.warn(("run_cap",), f"{cap:,}, but the sweep has {has}", code="fewer-sets")
    elif spec.method in ("grid", LIST) and ("run_cap",) not in out.source_map.flags:
        text = f"only the first {cap:,} of {in_digits(total)} trials will run"
        out.warn(("run_cap",), text, code="sets-left-out")
