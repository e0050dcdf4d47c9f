"""The parameters that every shipped trainer has, and what the loop asks of them.

The limits of `hpq.hyperparams` lie within these: a trainer of a user's own comes without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from hpq.hyperparams import batch_problem
from worker.trainers.context import BadParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The parameters that every shipped trainer has."""

    seed: int
    epochs: int
    batch_size: int
    momentum: float
    max_learning_rate: float
    weight_decay: float


def check(recipe: Recipe, train_images: int) -> None:
    """See that so many images can be trained on by the recipe.

    Raises:
        BadParams: a parameter is of another kind, beyond its limits, or the batch is too large.
    """
    for name in ("epochs", "batch_size"):
        value = getattr(recipe, name)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise BadParams(f"{name}: {value!r} is not a whole number (int) of at least 1")
    _number(recipe, "max_learning_rate", math.ulp(0.0), math.inf, "a number above 0")
    _number(recipe, "momentum", 0, 1, "a number from 0 to below 1")
    _number(recipe, "weight_decay", 0, math.inf, "a number of at least 0")
    if wrong := batch_problem(recipe.batch_size, train_images):
        raise BadParams(f"batch_size: {wrong}")


def _number(recipe: Recipe, name: str, least: float, below: float, allowed: str) -> None:
    value = getattr(recipe, name)
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not least <= value < below:
        raise BadParams(f"{name}: {value!r} is not {allowed}")
