"""Sets whose values are fine one by one, but not together: no shipped trainer takes them.

Imported by load. Where no set of a sweep can be trained its file is refused. Where some cannot, a
warning says how many, since a grid may have corners that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from hpq.hyperparams import TOGETHER, Number, TrainerSpec
from hpq.search.samplers import LIMIT
from hpq.search.space import Space
from hpq.trial import Json, Params
from producer.sweepfile import listed
from producer.sweepfile.problems import Path, Problems
from producer.sweepfile.spec import SweepSpec, sets


def check(trainer: TrainerSpec, spec: SweepSpec, out: Problems) -> None:
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


def _place(spec: SweepSpec, params: Params) -> tuple[str, Path]:
    """The parameter of the file that says the most of a set that is wrong, and where it stands."""
    leaves = {} if spec.space is None else dict(spec.space.leaves)
    name = next(n for n in TOGETHER if (n,) in leaves or (not leaves and n in params))
    if spec.space is None:
        return name, (spec.listed.index(dict(params)), listed.KEY, name)
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
