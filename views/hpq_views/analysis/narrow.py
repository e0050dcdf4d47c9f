"""Narrow the search space of a sweep to where its best settings lie. Pure.

The importance says which parameters matter. Of these, a range becomes that of the best quarter of
the settings with a margin, and a value in a list is left out if none of the best settings has it
and chance would hardly do so. All other parameters stay as the file has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpq.domain.sweep import SweepView
from hpq.domain.trainer_specs import BUILT_IN, Number
from hpq.domain.trial import Json, Params
from hpq.search import wandb_distributions
from hpq.search.conditions import key
from hpq.search.distributions import (
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    QuantizedDistribution,
    Uniform,
    Weighted,
)
from hpq_views.analysis.importance import MIN_SETS, Importance
from hpq_views.analysis.space import are_numbers
from hpq_views.text.text import number, trials_of, value

_BEST = 4  # one in N settings is among the best
_LEAST = 3  # of the best settings; a range of fewer is a guess
_MARGIN = 0.1  # of the old range, beyond the best settings at each side
_EDGE = 0.05  # of the old range: the best setting is at its end
_WIDE = 0.9  # of the old range: no use to narrow it
_CHANCE = 0.05  # that no best setting has a value, if the value does not matter
_ORDER = ("distribution", "value", "values", "probabilities", "min", "max")  # of an entry's keys
_KEYS = ("when", "exclude", "zip")  # whose parameters keep all values that these keys name

Entry = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A parameter as the narrowed file has it, and why; `names` are those of its nested keys."""

    names: tuple[str, ...]
    entry: Entry
    reason: str = ""  # "" of a constant
    is_narrower: bool = False

    @property
    def param(self) -> str:
        """The name, nested ones with dots."""
        return ".".join(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a sweep by their flat parameters, best first, and how many lead."""

    every: Sequence[Params]
    leaders: int

    @property
    def best(self) -> Sequence[Params]:
        """The best quarter."""
        return self.every[: self.leaders]

    def __str__(self) -> str:
        return f"the best {self.leaders:,} of {len(self.every):,} settings"


def settings_of(ranked: Sequence[tuple[Params, float]], others: Sequence[Params]) -> Settings:
    """Return the settings; `ranked` are the feasible ones with their result, best first.

    `others` have no feasible result. Equal results at the end of the best quarter are all best.
    """
    total = len(ranked) + len(others)
    leaders = min(len(ranked), max(_LEAST, math.ceil(total / _BEST)))
    while 0 < leaders < len(ranked) and ranked[leaders][1] == ranked[leaders - 1][1]:
        leaders += 1
    return Settings(every=[*(params for params, _ in ranked), *others], leaders=leaders)


def why_not(sweep: SweepView, settings: Settings, importance: Importance) -> str:
    """Return why the results narrow no parameter, in one line; "" if they may."""
    count = len(settings.every)
    if count < MIN_SETS or settings.leaders < _LEAST:
        has = f"has {trials_of(count, 'setting')} with a result"
        return f"{has}; a narrower range needs {MIN_SETS}, {_LEAST} of them feasible"
    if importance.shares or len(sweep.varying) == 1:
        return ""
    return f"narrows no parameter: {importance.answer}"


def narrow(sweep: SweepView, settings: Settings, importance: Importance) -> list[Narrowed]:
    """Return each parameter of the sweep file, narrowed or as it is.

    The stored file has lost its order: those that vary come as `varying` has them, then the others.
    """
    named = _named(sweep.spec)
    found = []
    leaves = dict(_leaves(sweep.spec.get("parameters"), ()))
    places = {name: place for place, name in enumerate(sweep.varying)}
    for names in sorted(leaves, key=lambda one: places.get(".".join(one), len(places))):
        entry = leaves[names]
        param = ".".join(names)
        leaf = wandb_distributions.build(wandb_distributions.name_of(entry) or "", entry)
        kept = _why_kept(sweep, param, leaf, named, importance)
        if kept is None:
            found.append(Narrowed(names=names, entry=entry))
        elif kept:
            found.append(Narrowed(names=names, entry=entry, reason=f"kept: {kept}"))
        else:
            share = importance.of_param(param)
            matters = "the only one"
            if share:
                matters = f"{share.share:.0%} ({share.range}) of the explained variance"
                matters += f" ({importance.rests})"
            new, why = _narrowed(sweep, param, leaf, entry, settings)
            reason = f"{matters}; {why}" if new else f"kept: {matters}, but {why}"
            is_narrower = new is not None
            found.append(
                Narrowed(names=names, entry=new or entry, reason=reason, is_narrower=is_narrower)
            )
    return found


def _leaves(data: Json, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Entry]]:
    for name, entry in data.items() if isinstance(data, dict) else ():
        if isinstance(entry, dict) and "parameters" in entry:
            yield from _leaves(entry["parameters"], (*names, name))
        elif isinstance(entry, dict):
            order = sorted(
                entry, key=lambda one: _ORDER.index(one) if one in _ORDER else len(_ORDER)
            )
            yield (*names, name), {one: entry[one] for one in order}


def _named(spec: Mapping[str, Json]) -> Mapping[str, str]:
    """Return the parameters whose values the file names elsewhere, each with the key that does."""
    found = dict[str, str]()

    def add(data: Json, word: str, before: str = "") -> None:
        for name, inner in data.items() if isinstance(data, dict) else ():
            found.setdefault(before + name, word)
            add(inner, word, f"{before}{name}.")

    for word in _KEYS:
        data = spec.get(word)
        if word == "when" and isinstance(data, dict):  # of a target, what it tests
            data = [*data.values()]
        for one in data if isinstance(data, list) else ():
            for item in one if isinstance(one, list) else [one]:
                add({item: None} if isinstance(item, str) else item, word)
    return found


def _why_kept(
    sweep: SweepView,
    param: str,
    leaf: Distribution,
    named: Mapping[str, str],
    importance: Importance,
) -> str | None:
    """Return why a parameter stays as it is; None for a constant, "" if it may be narrowed."""
    if isinstance(leaf, Categorical) and len(leaf.values) == 1:
        return None
    if word := named.get(param):
        return f"`{word}` names its values"
    if param not in sweep.varying:
        return "it did not vary"
    if len(sweep.varying) == 1:
        return ""
    share = importance.of_param(param)
    if share is None:
        return "it is unclear whether it matters"
    if share.is_negligible:
        return f"it hardly matters ({share.range})"
    return "" if share.matters else f"it is unclear whether it matters ({share.range})"


def _narrowed(
    sweep: SweepView, param: str, leaf: Distribution, entry: Entry, settings: Settings
) -> tuple[Entry | None, str]:
    """Return the new entry, or None, and why."""
    if isinstance(leaf, Categorical | Weighted):
        return _fewer(param, leaf, entry, settings)
    if isinstance(leaf, Uniform | LogUniform | IntUniform):
        return _shorter(sweep, param, leaf, entry, settings)
    return None, "its distribution has no ends"


def _fewer(
    param: str, leaf: Categorical | Weighted, entry: Entry, settings: Settings
) -> tuple[Entry | None, str]:
    """Leave out values of a list that clearly lose; of numbers, only beyond those that stay."""
    best = {key(one[param]) for one in settings.best if param in one}
    if not best & {key(v) for v in leaf.values}:
        return None, f"none of {settings} has one of its values"
    total, leaders = len(settings.every), settings.leaders
    lost = dict[object, int]()
    for v in leaf.values:
        count = sum(param in one and key(one[param]) == key(v) for one in settings.every)
        chance = math.comb(total - count, leaders) / math.comb(total, leaders)
        if key(v) not in best and chance < _CHANCE:
            lost[key(v)] = count
    kept = [v for v in leaf.values if key(v) not in lost]
    if are_numbers(leaf.values):
        numbers = [v for v in kept if isinstance(v, int | float)]
        for v in leaf.values:
            if isinstance(v, int | float) and min(numbers) < v < max(numbers):
                lost.pop(key(v), None)
        kept = [v for v in leaf.values if key(v) not in lost]
    if not lost:
        return None, "no value clearly loses"
    words = [f"{value(v)} ({lost[key(v)]})" for v in leaf.values if key(v) in lost]
    why = f"none of {settings} has {', '.join(words)}"
    new: dict[str, Json] = {**entry, "values": kept}
    if isinstance(leaf, Weighted):
        pairs = zip(leaf.values, leaf.probabilities, strict=True)
        shares = [p for v, p in pairs if key(v) not in lost]
        if not math.fsum(shares):
            return None, "its other values have no probability"
        new["probabilities"] = [p / math.fsum(shares) for p in shares]
    return new, why


def _shorter(
    sweep: SweepView,
    param: str,
    leaf: Uniform | LogUniform | IntUniform,
    entry: Entry,
    settings: Settings,
) -> tuple[Entry | None, str]:
    """Shorten a range to the best settings with a margin, or move it beyond an end that leads."""
    found = [one[param] for one in settings.best if param in one]
    best = [v for v in found if isinstance(v, int | float)]
    if len(best) < _LEAST:
        return None, f"only {len(best)} of {settings} have it"
    is_log = isinstance(leaf, LogUniform)
    to: Callable[[float], float] = math.log if is_log else float
    back: Callable[[float], float] = math.exp if is_log else float
    old_low, old_high = to(leaf.low), to(leaf.high)
    width = old_high - old_low
    lowest, highest = _limits(sweep, param, leaf)
    place = (to(best[0]) - old_low) / width
    margin = _MARGIN * width
    low, high = to(min(best)) - margin, to(max(best)) + margin
    is_stepped = isinstance(leaf, QuantizedDistribution) and leaf.q is not None
    beyond = []
    if low < old_low:
        if place <= _EDGE and not is_stepped and leaf.low > lowest:
            beyond.append("lowest")
        else:
            low = old_low
    if high > old_high:
        if place >= 1 - _EDGE and not is_stepped and leaf.high < highest:
            beyond.append("highest")
        else:
            high = old_high
    if not beyond and high - low > _WIDE * width:
        return None, f"{settings} lie all over its range"
    ends = _rounded(leaf, back(low), back(high), low == old_low, high == old_high)
    new_low, new_high = max(ends[0], lowest), min(ends[1], highest)
    if not new_low < new_high:
        return None, f"{settings} have one value"
    why = f"{settings} have {number(min(best))} to {number(max(best))}, widened at each end by"
    scale = " on a log scale" if is_log else ""
    why += f" a tenth of the file's range ({number(leaf.low)} to {number(leaf.high)}{scale})"
    if beyond:
        why += f"; the best one is at the {beyond[0]}"
    return _with_ends(leaf, entry, new_low, new_high), why


def _limits(
    sweep: SweepView, param: str, leaf: Uniform | LogUniform | IntUniform
) -> tuple[float, float]:
    """Return the numbers beyond which no value makes sense, as the file's range tells them.

    Counts begin at 0 or 1, shares and probabilities end at 0 and 1, and no sign changes. Those of a
    built-in trainer are known.
    """
    is_whole = isinstance(leaf, IntUniform)
    low, high = -math.inf, math.inf
    if leaf.low >= 0:
        low = 1.0 if is_whole and leaf.low >= 1 else 0.0
    if leaf.high <= 0:
        high = 0.0
    if not is_whole and leaf.low >= 0 and leaf.high <= 1:
        high = 1.0
    trainer = BUILT_IN.get(sweep.launch.trainer)
    known = trainer.params.get(param) if trainer else None
    if isinstance(known, Number):
        low, high = max(low, known.low), min(high, known.high)
    return low, high


def _rounded(
    leaf: Uniform | LogUniform | IntUniform,
    low: float,
    high: float,
    keeps_low: bool,
    keeps_high: bool,
) -> tuple[float, float]:
    """Return the ends with two digits, rounded away from each other; the file's own as they are."""
    if isinstance(leaf, IntUniform):
        return (
            leaf.low if keeps_low else math.floor(low),
            leaf.high if keeps_high else math.ceil(high),
        )
    is_log = isinstance(leaf, LogUniform)
    units = [_unit(low if is_log else high - low), _unit(high if is_log else high - low)]
    step = 0.0
    if leaf.q is not None:  # a grid steps from low by q, and leaves out high
        units, step = [leaf.q, leaf.q], leaf.q
    base = leaf.low if leaf.q is not None else 0
    new_low = base + math.floor((low - base) / units[0]) * units[0]
    new_high = base + math.ceil((high - base) / units[1]) * units[1] + step
    if leaf.q is not None:
        new_low = max(new_low, leaf.low)
        new_high = min(new_high, leaf.high)
    return (
        leaf.low if keeps_low else float(f"{new_low:.12g}"),
        leaf.high if keeps_high else float(f"{new_high:.12g}"),
    )


def _unit(size: float) -> float:
    return 10.0 ** (math.floor(math.log10(abs(size))) - 1)


def _with_ends(
    leaf: Uniform | LogUniform | IntUniform, entry: Entry, low: float, high: float
) -> Entry:
    """Return the entry with other ends; those that were exponents become values."""
    name = wandb_distributions.name_of(entry) or ""
    ends: dict[str, Json] = {"min": low, "max": high}
    if name not in wandb_distributions.EXPONENTS:
        return {**entry, **ends}
    is_stepped = isinstance(leaf, LogUniform) and leaf.q is not None
    kind = "q_log_uniform_values" if is_stepped else "log_uniform_values"
    steps = {"q": entry["q"]} if "q" in entry else {}
    return {"distribution": kind, **ends, **steps}
