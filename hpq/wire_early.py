"""The half of `wire` that belongs to early termination: its rule, and what it decided."""

from __future__ import annotations

import json
from dataclasses import asdict

from hpq.fields import known, word
from hpq.sweep import EarlyTerminate, Reached, Rule
from hpq.trial import Pruning


def encode(early: EarlyTerminate | None) -> str:
    """The rule as JSON, as lua/early.lua reads it; empty for none."""
    return json.dumps(asdict(early), sort_keys=True, separators=(",", ":")) if early else ""


def decode(text: str) -> EarlyTerminate | None:
    """The rule from its JSON (ValueError, TypeError, KeyError where it is not one).

    None for a rule of a newer version: its scripts alone know it.
    """
    data = json.loads(text)
    rule = word(Rule, str(data["rule"]))
    if rule is None:
        return None
    return EarlyTerminate(
        rule=rule,
        bands=tuple(int(band) for band in data["bands"]),
        eta=float(data["eta"]),
        strict=data["strict"] is True,
        min_trials=int(data["min_trials"]),
    )


def bands(text: str) -> tuple[int, ...]:
    """The bands that some trial has reached, rising."""
    return tuple(sorted(map(int, text.split())))


def reached(text: str) -> Reached:
    """Which value reached the target."""
    return known(Reached, text)


def pruning(text: str) -> Pruning:
    """Why a trial was told to stop."""
    return known(Pruning, text)
