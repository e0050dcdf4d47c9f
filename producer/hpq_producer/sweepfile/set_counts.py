"""Check a sweep's number of trials."""

from __future__ import annotations

from random import Random

from hpq.search.grid import TooMany
from hpq.search.replicates import SEED
from hpq.search.space import TRIES, NothingLeft, Space
from hpq_producer.sweepfile.errors import Problems
from hpq_producer.sweepfile.spec import LIST, SweepSpec

_MAX_GRID = 5_000_000  # parameter sets of a grid that `exclude` is tested on


def check_count(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Report errors of the number of trials; more than `limit` are an error (None = any)."""
    if out.errors:
        return
    try:
        if spec.space is not None and spec.space.exclude:
            _check_exclude(spec.space, spec.method == "grid", out)
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


def _check_exclude(space: Space, is_grid: bool, out: Problems) -> None:
    """Report an `exclude` that matches everything: count if possible, else draw."""
    count = space.size if is_grid else space.outcomes
    if is_grid and space.grid is not None and space.grid.size > _MAX_GRID:
        what = f"must be tested on {space.grid.size:,} grid points, more than {_MAX_GRID:,}"
        out.add(
            ("exclude",), f"{what}; use fewer values, or method: random", code="conditions-costly"
        )
    try:
        if count is None:
            space.draw(Random(0))
        elif count == 0:
            out.add(("exclude",), "excludes every trial; remove an entry", code="no-set-left")
    except NothingLeft:
        out.add(
            ("exclude",),
            f"excludes each of {TRIES:,} random draws; remove an entry",
            code="no-set-left",
        )


def _check_replicates(spec: SweepSpec, out: Problems) -> None:
    """Report replicates that run_cap cuts, or whose seeds conflict with the parameter `seed`."""
    each = spec.keys.replicates
    if each == 1:
        return
    leaf = dict(spec.space.leaves).get((SEED,)) if spec.space is not None else None
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
        text = (
            f"{cap} is not a multiple of replicates: {each}; {cap // each * each} trials will run"
        )
        out.warn(("run_cap",), text, code="replicates-cut")


def _check_limit(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Report a sweep of more than `limit` trials."""
    total = spec.trials
    if total is None or limit is None or total <= limit:
        return
    key = "parameters" if spec.keys.run_cap is None or total < spec.keys.run_cap else "run_cap"
    out.add((key,), f"{total:,} trials, more than {limit:,}; use fewer values, "
            "method: random with a smaller run_cap, or --force", code="too-many-sets")  # fmt: skip


def _warn_of_cap(spec: SweepSpec, out: Problems) -> None:
    """Warn of a run_cap that cuts a grid or a list, or is larger than the number of trials."""
    total, cap = spec.uncapped_trials, spec.keys.run_cap
    if cap is None or total is None or cap == total:
        return
    if cap > total:
        out.warn(("run_cap",), f"{cap:,}, but the sweep has {total:,} trials", code="fewer-sets")
    elif spec.method in ("grid", LIST) and ("run_cap",) not in out.source_map.flags:
        text = f"only the first {cap:,} of {total:,} trials will run"
        out.warn(("run_cap",), text, code="sets-left-out")
