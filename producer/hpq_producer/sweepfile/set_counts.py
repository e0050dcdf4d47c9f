"""Check a sweep's number of trials."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hpq.domain.trial import Json
from hpq.notice import plural
from hpq.search import samplers
from hpq.search.conditions import nest
from hpq.search.grid import MOST, Lattice, TooMany, in_digits
from hpq.search.replicates import SEED
from hpq.search.space import TRIES, NothingLeft, Rejected, Space
from hpq.yamlfile.problems import KeyPath, Problems
from hpq_producer.sweepfile.spec import LIST, SweepSpec

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
        if SEED in (name, *expression.names):
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
