"""Count the trials of a sweep file, and the sets that its trainer cannot run. Nothing is drawn.

A set is run with all its replicates or not at all. A file of which no set can be trained is
refused. If some cannot, a warning says how many: a grid may have corners that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from random import Random

from hpq.domain.trainer_specs import TOGETHER, Number, TrainerSpec
from hpq.domain.trial import Json, Params
from hpq.search.grid import TooMany
from hpq.search.samplers import LIMIT, SEED
from hpq.search.space import TRIES, NothingLeft, Space
from hpq_producer.sweepfile import explicit_sets
from hpq_producer.sweepfile.errors import KeyPath, Problems
from hpq_producer.sweepfile.spec import LIST, SweepSpec, sets

_MOST_STEPS = 5_000_000  # sets of a grid that are gone through for those that are not excluded


def check_count(spec: SweepSpec, limit: int | None, out: Problems) -> None:
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


def check_misfits(trainer: TrainerSpec, spec: SweepSpec, out: Problems) -> None:
    """Note the sets that the trainer would refuse; a file without other errors is looked at."""
    if out.errors:
        return
    corners = list(_corners(trainer, spec.space)) if spec.space is not None else []
    wrong = [corner for corner in corners if trainer.misfit(corner)]
    if corners and not wrong:
        return
    if corners and len(wrong) == len(corners):
        share = ""
    elif spec.is_late:  # its sets are not known yet
        share = "some sets"
    else:
        some = list(islice(sets(spec), LIMIT))
        wrong = [params for params in some if trainer.misfit(params)]
        first = "the first " if len(some) == LIMIT else ""
        share = f"{len(wrong):,} of {first}{len(some):,} sets" if len(wrong) < len(some) else ""
    if wrong:
        _tell(trainer, spec, wrong[0], share, out)


def _tell(trainer: TrainerSpec, spec: SweepSpec, params: Params, share: str, out: Problems) -> None:
    """Note one set that is wrong, and how many more (`share`; "" = all of the sweep)."""
    misfit = trainer.misfit(params)
    assert misfit is not None
    (name, what), (place, path) = misfit, _place(spec, params)
    what = what if place == name and name in params else f"{name} {what}"
    if not share:
        remedy = f"lower {TOGETHER[0]}, or raise {TOGETHER[1]}"
        out.add(path, f"{what}: no set of this sweep can be trained; {remedy}", code="no-set-fits")
    else:
        remedy = "remove them" if spec.space is None else "`exclude` leaves such sets out"
        if spec.method in ("random", "bayes"):
            remedy += ", or narrow the ranges"  # no entry of exclude compares two parameters
        out.warn(path, f"{what}: {share} will fail; {remedy}", code="sets-fail")


def _place(spec: SweepSpec, params: Params) -> tuple[str, KeyPath]:
    """The parameter of the file that says the most of a set that is wrong, and where it stands."""
    leaves = {} if spec.space is None else dict(spec.space.leaves)
    name = next(n for n in TOGETHER if (n,) in leaves or (not leaves and n in params))
    if spec.space is None:
        return name, (spec.listed.index(dict(params)), explicit_sets.KEY, name)
    known = leaves[name,].known()
    keys = (key for key, value in known if value == params.get(name))
    return name, ("parameters", name, *next(keys, ()))


def _corners(trainer: TrainerSpec, space: Space) -> Iterator[dict[str, Json]]:
    """The least and the greatest values of what has to fit together; what fits between, fits.

    The first is the one that comes nearest to fitting.
    """
    leaves = dict(space.leaves)
    optional = {condition.path for condition in space.when}
    ends: list[tuple[Json, ...]] = []
    for name in TOGETHER:
        spec, leaf = trainer.params.get(name), leaves.get((name,))
        if not isinstance(spec, Number):
            continue
        if leaf is None:
            ends.append((spec.default,))
            continue
        known = [value for _, value in leaf.known() if isinstance(value, int | float)]
        known = known or [spec.low, spec.high]
        known += [spec.default] if (name,) in optional else []
        near, far = min(known), max(known)
        ends.append((near, far) if name == TOGETHER[0] else (far, near))
    names = [name for name in TOGETHER if name in trainer.params]
    yield from (dict(zip(names, values, strict=True)) for values in product(*ends))
