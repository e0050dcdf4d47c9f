"""How many trials a sweep file comes to: none, too many, fewer than it says. Imported by load.

Counted, never made. A set is run with all its replicates or not at all.
"""

from __future__ import annotations

from random import Random

from hpq.search.lattice import TooMany
from hpq.search.replicates import SEED
from hpq.search.space import TRIES, NothingLeft, Space
from producer.sweepfile.problems import Problems
from producer.sweepfile.spec import LIST, SweepSpec

_MOST_STEPS = 5_000_000  # sets of a grid that are gone through for those that are not excluded


def check(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Note what is wrong with the number of sets; `limit` is the most trials that are taken."""
    if out.errors:
        return
    try:
        if spec.space is not None and spec.space.exclude:
            _check_left(spec.space, spec.method == "grid", out)
        _check_replicates(spec, out)
        if not out.errors:
            _check_limit(spec, limit, out)
            _tell_cap(spec, out)
    except TooMany as error:
        out.add(
            ("exclude" if "exclude" in spec.source else "when",),
            str(error),
            code="conditions-costly",
        )


def _check_left(space: Space, is_grid: bool, out: Problems) -> None:
    """Note an `exclude` that leaves nothing, found by counting or, where that fails, by drawing."""
    number = space.size if is_grid else space.outcomes
    if is_grid and space.grid is not None and space.grid.size > _MOST_STEPS:
        what = f"is asked of {space.grid.size:,} sets one by one; at most {_MOST_STEPS:,}"
        out.add(
            ("exclude",), f"{what}; use fewer values, or method: random", code="conditions-costly"
        )
    try:
        if number is None:
            space.draw(Random(0))
        elif number == 0:
            out.add(("exclude",), "leaves no set at all; remove an entry", code="no-set-left")
    except NothingLeft:
        out.add(
            ("exclude",), f"leaves none in {TRIES:,} draws; remove an entry", code="no-set-left"
        )


def _check_replicates(spec: SweepSpec, out: Problems) -> None:
    """Note replicates that the cap cuts, or whose seeds the parameter `seed` has, too."""
    each = spec.replicates
    if each == 1:
        return
    leaf = dict(spec.space.leaves).get((SEED,)) if spec.space is not None else None
    if leaf is not None and (leaf.size != 1 or type(leaf.at(0)) is not int):
        what = "replicates count it up from one whole number; write value: 0, or leave it out"
        out.add(("parameters", SEED), what, code="conflicting-keys")
    cap = spec.run_cap
    if cap is not None and cap < each:
        out.add(
            ("run_cap",),
            f"{cap} is less than the {each} replicates of one set",
            code="replicates-cut",
        )
    elif cap is not None and cap % each:
        text = f"{cap} trials hold no whole number of sets with {each} replicates each"
        out.warn(("run_cap",), f"{text}; {cap // each * each} are run", code="replicates-cut")


def _check_limit(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Note a sweep of more trials than are taken."""
    total = spec.trials
    if total is None or limit is None or total <= limit:
        return
    key = "parameters" if spec.run_cap is None or total < spec.run_cap else "run_cap"
    out.add((key,), f"{total:,} sets, more than {limit:,}; use fewer values, "
            "method: random with a smaller run_cap, or --force", code="too-many-sets")  # fmt: skip


def _tell_cap(spec: SweepSpec, out: Problems) -> None:
    """Say it where run_cap leaves sets out, or asks for more than there are."""
    all_, cap = spec.uncapped_trials, spec.run_cap
    if cap is None or all_ is None or cap == all_:
        return
    if cap > all_:
        out.warn(
            ("run_cap",), f"{cap:,} is more than the {all_:,} sets there are", code="fewer-sets"
        )
    elif spec.method in ("grid", LIST):
        out.warn(
            ("run_cap",),
            f"the first {cap:,} of {all_:,} sets are taken, the others left out",
            code="sets-left-out",
        )
