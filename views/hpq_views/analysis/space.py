"""The search space of an existing sweep, read from the sweep file that it stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpq.domain.sweep import SweepView
from hpq.domain.trial import Json
from hpq.search import wandb_distributions
from hpq.search.distributions import (
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    Normal,
    Uniform,
)

_DECADES = 100.0  # highest / lowest of a uniform range: from here on it is drawn as logarithmic
_LOG_RATIO = 20.0  # highest / lowest of listed values: from here on an axis is logarithmic


def space_of(sweep: SweepView) -> Mapping[str, Distribution]:
    """Return the distributions by dotted name; empty if the file lists its parameter sets."""
    return dict(_leaves(sweep.spec.get("parameters"), ""))


def _leaves(data: Json, parents: str) -> Iterator[tuple[str, Distribution]]:
    for name, entry in data.items() if isinstance(data, dict) else ():
        if not isinstance(entry, dict):
            continue
        if "parameters" in entry:
            yield from _leaves(entry["parameters"], f"{parents}{name}.")
        elif kind := wandb_distributions.name_of(entry):
            yield parents + name, wandb_distributions.build(kind, entry)


def are_numbers(values: Sequence[Json]) -> bool:
    """Return True if all values are numbers."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def is_log(leaf: Distribution | None, values: Sequence[Json]) -> bool:
    """Return True if these numbers belong on a logarithmic axis: the file decides if it can."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if not numbers or not are_numbers(values) or min(numbers) <= 0:
        return False
    if isinstance(leaf, LogUniform) or (isinstance(leaf, Normal) and leaf.log):
        return True
    is_listed = leaf is None or isinstance(leaf, Categorical)
    return is_listed and max(numbers) / min(numbers) >= _LOG_RATIO


def is_log_axis(leaf: Distribution | None, values: Sequence[Json]) -> bool:
    """Return True if a chart draws these numbers on a logarithmic axis: also a wide uniform range.

    Its draws are uniform, so only a chart treats it so.
    """
    if isinstance(leaf, Uniform | IntUniform):
        return leaf.low > 0 and leaf.high / leaf.low >= _DECADES
    return is_log(leaf, values)
