"""Check a sweep's number of trials, and warn of parameter sets that its trainer cannot run.

If the trainer can run no parameter set, that is an error. If it cannot run some, a warning counts
them: a grid may have corners that the user does not want.
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
from hpq_producer.sweepfile.spec import LIST, SweepSpec, parameter_sets

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
    each = spec.replicates
    if each == 1:
        return
    leaf = dict(spec.space.leaves).get((SEED,)) if spec.space is not None else None
    if leaf is not None and (leaf.size != 1 or type(leaf.at(0)) is not int):
        what = "replicates add 0, 1, … to it, so it must be one whole number; write value: 0"
        out.add_conflict(("parameters", SEED), what)
    cap = spec.run_cap
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
    key = "parameters" if spec.run_cap is None or total < spec.run_cap else "run_cap"
    out.add((key,), f"{total:,} trials, more than {limit:,}; use fewer values, "
            "method: random with a smaller run_cap, or --force", code="too-many-sets")  # fmt: skip


def _warn_of_cap(spec: SweepSpec, out: Problems) -> None:
    """Warn of a run_cap that cuts a grid or a list, or is larger than the number of trials."""
    total, cap = spec.uncapped_trials, spec.run_cap
    if cap is None or total is None or cap == total:
        return
    if cap > total:
        out.warn(("run_cap",), f"{cap:,}, but the sweep has {total:,} trials", code="fewer-sets")
    elif spec.method in ("grid", LIST) and ("run_cap",) not in out.source_map.flags:
        text = f"only the first {cap:,} of {total:,} trials will run"
        out.warn(("run_cap",), text, code="sets-left-out")


def check_misfits(trainer: TrainerSpec, spec: SweepSpec, out: Problems) -> None:
    """Report parameter sets that the trainer rejects, unless the file has other errors."""
    if out.errors:
        return
    corners = list(_corners(trainer, spec.space)) if spec.space is not None else []
    misfits = [corner for corner in corners if trainer.misfit(corner)]
    if corners and not misfits:
        return
    if corners and len(misfits) == len(corners):
        share = ""
    elif spec.is_late:
        share = "some trials"
    else:
        known = list(islice(parameter_sets(spec), LIMIT))
        misfits = [params for params in known if trainer.misfit(params)]
        first = "the first " if len(known) == LIMIT else ""
        is_part = len(misfits) < len(known)
        share = f"{len(misfits):,} of {first}{len(known):,} trials" if is_part else ""
    if misfits:
        _report_misfit(trainer, spec, misfits[0], share, out)


def _report_misfit(
    trainer: TrainerSpec, spec: SweepSpec, params: Params, share: str, out: Problems
) -> None:
    """Report one parameter set that does not fit, and how many do not (`share`; "" = all)."""
    misfit = trainer.misfit(params)
    assert misfit is not None
    (name, what), (located, path) = misfit, _locate(spec, params)
    what = what if located == name and name in params else f"{name} {what}"
    if not share:
        remedy = f"lower {TOGETHER[0]}, or raise {TOGETHER[1]}"
        out.add(path, f"{what}: no trial of this sweep can train; {remedy}", code="no-set-fits")
    else:
        remedy = "remove them" if spec.space is None else "list them under `exclude`"
        if spec.method in ("random", "bayes"):
            remedy += ", or narrow the ranges"  # no entry of exclude compares two parameters
        out.warn(path, f"{what}: {share} will fail; {remedy}", code="sets-fail")


def _locate(spec: SweepSpec, params: Params) -> tuple[str, KeyPath]:
    """Return the name and path of the parameter that best explains a misfit."""
    leaves = {} if spec.space is None else dict(spec.space.leaves)
    name = next(n for n in TOGETHER if (n,) in leaves or (not leaves and n in params))
    if spec.space is None:
        return name, (spec.listed.index(dict(params)), explicit_sets.KEY, name)
    known = leaves[name,].known()
    keys = (key for key, value in known if value == params.get(name))
    return name, ("parameters", name, *next(keys, ()))


def _corners(trainer: TrainerSpec, space: Space) -> Iterator[dict[str, Json]]:
    """Yield the corners of the parameters that must fit together; if all fit, every point fits.

    The first corner is the most likely to fit.
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
