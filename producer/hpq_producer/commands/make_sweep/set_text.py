"""Describe parameter sets as text, for `hpq plan`, `hpq try` and `hpq add`. Pure."""

from __future__ import annotations

from hpq.domain.trial import Json, Params, flatten
from hpq.yamlfile.yaml_reader import AMBIGUOUS, resolve
from hpq_producer.sweepfile.spec import SweepSpec, parameter_sets
from hpq_views.text.text import clean, trials_of, value


def describe_set(params: Params) -> str:
    """Return a parameter set as text: `lr=0.03 optimizer.name=adam`."""
    return " ".join(f"{clean(name)}={quoted_value(v)}" for name, v in flatten(params).items())


def quoted_value(param: Json) -> str:
    """Return a value; quote a text that YAML would read as another type."""
    if not isinstance(param, str):
        return value(param)
    try:
        is_text = resolve(param) == param and not AMBIGUOUS.match(param)
    except ValueError:
        is_text = False
    return clean(param) if is_text else f"'{clean(param)}'"


def describe_rest(spec: SweepSpec, shown: int, total: int | None) -> str | None:
    """Describe the sets after those shown; None if there are none."""
    if spec.method != "bayes":
        if total is None:
            return "and so on, until `hpq stop`"
        sets = -(-total // spec.keys.replicates)
        rest = sets - shown
        more = trials_of(rest, "more set") if spec.keys.replicates > 1 else f"{rest:,} more"
        return f"{more} (--first {sets})" if rest > 0 else None
    known = sum(1 for _ in parameter_sets(spec))  # a few, which need no result
    parts = []
    if known > shown:
        how = "drawn at random" if shown >= len(spec.points) else "before any result"
        parts.append(f"{known - shown} more {how} (--first {known})")
    if total is None or total > known * spec.keys.replicates:
        parts.append(f"then {spec.method} chooses the rest from the results")
    return ", ".join(parts) or None
