"""Compute permutation importance of parameters on out-of-bag trials, with bootstrap intervals.

A forest of 100 trees predicts the rank of each trial from the trees that did not train on it. A
parameter is important if shuffling its values makes these predictions worse. Terminal, page and
Python API show the numbers of `importance_of`, which imports scikit-learn: seconds, so that the
answer is kept in a file. The file names the results that it rests on: a retry makes it void. While
a sweep runs, a summary shows an answer that lacks few of its results, and says so.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

from hpq import __version__
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Json, Params
from hpq.extras import install_command
from hpq.notice import plural
from hpq.private_files import replace_private
from hpq_views.text.text import clean, number, trials_of, value

MIN_SETS, MIN_R2 = 8, 0.3  # below either, no importance is shown
UNCLEAR = "unclear which parameter matters"  # what every view says, before the reason
_TREES = 100
_SHUFFLES = 5
_BOOTSTRAPS = 200
_MOST_SETS = 2_000  # a sample of more takes seconds and changes nothing
# Errors are resampled, and not the trials that the forest learned from: of two equal parameters, 83
# to 88 % of the intervals contained the truth in 80 simulated sweeps; with this factor, 90 to 95 %.
_WIDER = 1.5
_NEXT_TO_NOTHING = 0.02
_MOST_NEWER, _OLDEST_S = 0.25, 600.0  # of an answer for a running sweep that is shown again
_MANY_WORDS = 30  # a parameter with more texts names trials, not choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of the explained variance a parameter carries; the interval holds 90 %."""

    param: str
    share: float
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Return whether all of the interval says that the parameter matters."""
        return self.low >= _NEXT_TO_NOTHING

    @property
    def is_negligible(self) -> bool:
        """Return whether all of the interval says that it explains next to nothing."""
        return self.high < _NEXT_TO_NOTHING

    @property
    def range(self) -> str:
        """`55–82%`; `0%` if both ends are so."""
        low, high = f"{self.low:.0%}", f"{self.high:.0%}"
        return high if low == high else f"{low.removesuffix('%')}–{high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """The shares, largest first; none if too few trials, or too much noise (`why_none`).

    `r2` is the share of the variance that out-of-bag predictions explain. `looked` says where an
    adaptive sampler drew its later sets, on which alone the shares rest. `newer` sets have had a
    result since.
    """

    sets: int
    of: int = 0  # sets that there are; `sets` of them were drawn evenly if they are very many
    r2: float | None = None
    shares: tuple[Share, ...] = ()
    why_none: str = ""
    looked: str = ""
    noun: str = "trial"  # what a set is called: with replicates, a setting
    results: int = 0  # of which sets with equal parameters are one, by their mean
    newer: int = 0

    def of_param(self, name: str) -> Share | None:
        """Return the share of a parameter; None if it is unknown."""
        return next((one for one in self.shares if one.param == name), None)

    @property
    def is_clear(self) -> bool:
        """Return whether one parameter matters more than every other."""
        return bool(self.shares) and all(s.high < self.shares[0].low for s in self.shares[1:])

    @property
    def answer(self) -> str:
        """`lr: 71% (55–82%) of the explained variance`, or why that is unclear."""
        if not self.shares:
            return self.why_none
        rivals = [one for one in self.shares[:3] if one.high >= self.shares[0].low]
        if self.is_clear:
            share = f"{rivals[0].share:.0%} ({rivals[0].range})"
            return f"{clean(rivals[0].param)}: {share} of the explained variance"
        if rivals[0].low < _NEXT_TO_NOTHING:  # its bars show 0 to 86 %, which is no answer
            return f"{UNCLEAR}: each may explain next to nothing"
        names = " or ".join(clean(one.param) for one in rivals)
        return f"{UNCLEAR} more, {names}: their intervals overlap"

    @property
    def verdict(self) -> str:
        """`answer`, and on what it rests: `…; R² 0.85 on 64 trials; 3 newer not counted`."""
        newer = f"{self.newer:,} newer not counted" if self.newer else ""
        return "; ".join(filter(None, (self.answer, self.rests, newer)))

    @property
    def rests(self) -> str:
        """`R² 0.85 on 64 trials`: on what the shares rest; "" if there are none."""
        sample = f"{self.sets:,} of " if self.sets < self.of else ""
        every = _sets_of(self.of, self.results, self.noun)
        return f"R² {self.r2:.2f} on {sample}{every}" if self.shares else ""

    @property
    def negligible(self) -> frozenset[str]:
        """The parameters that explain about nothing, however wide the interval."""
        return frozenset(one.param for one in self.shares if one.share < _NEXT_TO_NOTHING)


def _sets_of(count: int, results: int, noun: str) -> str:
    """Return `64 trials`, or `10 different ones of 12 trials` if some have equal parameters."""
    is_same = noun != "trial" or results <= count
    return f"{count:,} {noun}s" if is_same else f"{count:,} different ones of {results:,} {noun}s"


def noun_of(sweep: SweepView) -> str:
    """Return what results are counted by: `setting` of replicates, else `trial`."""
    return "setting" if sweep.replicates > 1 else "trial"


def mean_of(results: Sequence[float]) -> float:
    """Return the mean of the results of replicates; a sum of large ones does not overflow."""
    return math.fsum(value / len(results) for value in results)


def _why_none(sweep: SweepView, count: int) -> str:
    if count and count < MIN_SETS and len(sweep.varying) > 1:
        have = f"{trials_of(count, f'different {noun_of(sweep)}')} {plural(count, 'has', 'have')}"
        return f"only {have} a result (at least {MIN_SETS} are needed)"
    return "fewer than 2 parameters vary" if count else "no trial has a result"


def importance_of(
    sweep: SweepView,
    sets: Sequence[Params],
    objectives: Sequence[float],
    cache: Path | None = None,
    *,
    may_lag: bool = False,
) -> Importance:
    """Compute the importance of each parameter that varies.

    `sets` hold the leaves by dotted name; equal ones (replicates) are averaged. `cache` is the
    directory that keeps the answer. If it `may_lag`, the last answer serves while the sweep runs:
    at most ten minutes, and until a quarter more of its results are there.
    """
    merged: dict[str, tuple[Params, list[float]]] = {}
    for params, objective in zip(sets, objectives, strict=True):
        if math.isfinite(objective):
            key = json.dumps(params, sort_keys=True)
            merged.setdefault(key, (params, []))[1].append(objective)
    means = [(params, mean_of(same)) for params, same in merged.values()]
    stride = max(1, math.ceil(len(means) / _MOST_SETS))
    rows, count = means[::stride], len(means)
    results = sum(len(same) for _, same in merged.values())
    derived = sweep.spec.get("derive")  # functions of other parameters
    names = [n for n in sweep.varying if not (isinstance(derived, dict) and n in derived)]
    columns = {name: _column([params.get(name) for params, _ in rows]) for name in names}
    varying = {name: column for name, column in columns.items() if column}
    if count < MIN_SETS or len(varying) < 2:  # one parameter always explains all
        return Importance(sets=count, why_none=f"not computed, since {_why_none(sweep, count)}")
    file, basis, digest = None, "", ""
    if cache is not None:
        metrics = [metric.name for metric in sweep.objectives]
        place = metrics.index(sweep.metric.name) if metrics and sweep.metric else 0
        file = cache / "importance" / f"{sweep.id}{f'.{place}' if place else ''}.json"
        of = (__version__, noun_of(sweep), sweep.varying, sweep.method, sweep.sampler)
        basis, digest = _digest_of(of), _digest_of([*of, *merged.items()])
        known = _kept(file, basis, digest, count)
        if known and (not known.newer or (may_lag and not sweep.state.is_over)):
            return known
    try:
        numpy, forest = import_module("numpy"), import_module("sklearn.ensemble")
    except ImportError:
        lacks = f"not computed; run: {install_command('scikit-learn')}"
        return Importance(sets=count, why_none=lacks)
    ranks = _ranks([objective for _, objective in rows])
    r2, shares = _permuted(numpy, forest, varying, ranks)
    if not r2 >= MIN_R2:  # also NaN, of results near the largest number
        used = _sets_of(count, results, noun_of(sweep))
        words = f"{UNCLEAR}: the model of {used} predicts too little (R² {r2:.2f} < {MIN_R2})"
        found = Importance(sets=len(rows), of=count, r2=r2, why_none=words)
    else:
        looked = _where_it_looked(sweep, shares[0].param, [params for params, _ in means])
        found = Importance(
            sets=len(rows),
            of=count,
            r2=r2,
            shares=shares,
            looked=looked,
            noun=noun_of(sweep),
            results=results,
        )
    if file is not None:
        _keep(file, basis, digest, found)
    return found


def _digest_of(basis: Iterable[object]) -> str:
    digest = blake2b(digest_size=16)
    for part in basis:
        digest.update(repr(part).encode())
    return digest.hexdigest()


def _kept(file: Path, basis: str, digest: str, count: int) -> Importance | None:
    """Return the answer in a file for these results, or a recent one that lacks few of N."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        record = json.loads(file.read_text("utf-8"))
        shares = tuple(Share(**one) for one in record["found"].pop("shares"))
        found = Importance(**record["found"], shares=shares)
        if record["digest"] == digest:
            return found
        newer, age_s = count - found.of, time.time() - file.stat().st_mtime
        is_recent = 0 < newer <= _MOST_NEWER * found.of and 0 <= age_s <= _OLDEST_S
        return replace(found, newer=newer) if is_recent and record["basis"] == basis else None
    return None


def _keep(file: Path, basis: str, digest: str, found: Importance) -> None:
    record = {"basis": basis, "digest": digest, "found": asdict(found)}
    with suppress(OSError):  # a full or read-only disk: it is computed again
        replace_private(file, json.dumps(record).encode())


def _column(values: Sequence[Json]) -> list[list[float]] | None:
    """A parameter as columns of numbers, one row a set; None if it is constant.

    Words are one column each. An absent value is a level of its own: below all numbers.
    """
    kinds = {json.dumps(v, sort_keys=True) for v in values}
    if len(kinds) < 2:
        return None
    present = [v for v in values if v is not None]
    if all(isinstance(v, int | float) for v in present):
        # Trees split by order alone, so a rank says what a number or its logarithm would.
        ranks = {v: float(rank) for rank, v in enumerate(sorted(set(present)))}  # type: ignore
        return [[-1.0 if v is None else ranks[v]] for v in values]
    words = sorted(kinds)[:_MANY_WORDS]
    return [[float(json.dumps(v, sort_keys=True) == word) for word in words] for v in values]


def _ranks(objectives: Sequence[float]) -> list[float]:
    """Return the rank of each result, equal ones at their mean.

    In squares of a loss from 0.09 to 119, a few bad trials would be all of the variance.
    """
    places = dict[float, list[int]]()
    for rank, result in enumerate(sorted(objectives)):
        places.setdefault(result, []).append(rank)
    return [math.fsum(places[one]) / len(places[one]) for one in objectives]


def _permuted(
    numpy: Any, ensemble: Any, columns: Mapping[str, list[list[float]]], objectives: Sequence[float]
) -> tuple[float, tuple[Share, ...]]:
    """R² out of bag, and the shares of the parameters."""
    x = numpy.hstack([numpy.asarray(column) for column in columns.values()]).astype("float32")
    y, rng = numpy.asarray(objectives), numpy.random.default_rng(0)
    counts = [len(column[0]) for column in columns.values()]
    groups = [list(range(end - n, end)) for n, end in zip(counts, accumulate(counts), strict=True)]
    forest = ensemble.RandomForestRegressor(_TREES, random_state=0, min_samples_leaf=1).fit(x, y)
    jobs = 1 + len(groups) * _SHUFFLES
    sums, seen = numpy.zeros((jobs, len(y))), numpy.zeros(len(y))
    for tree, used in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        out = numpy.setdiff1d(numpy.arange(len(y)), used)
        if not len(out):
            continue
        plain = tree.tree_.predict(x[out]).ravel()
        sums[0, out] += plain
        split_on = set(tree.tree_.feature)
        for k, group in enumerate(groups):
            jobs_of = slice(1 + k * _SHUFFLES, 1 + (k + 1) * _SHUFFLES)
            if split_on.isdisjoint(group):  # shuffling it changes nothing
                sums[jobs_of, out] += plain
                continue
            shuffled = numpy.repeat(x[out][None], _SHUFFLES, axis=0)
            for one in shuffled:
                one[:, group] = x[rng.permutation(out)][:, group]
            predicted = tree.tree_.predict(shuffled.reshape(-1, x.shape[1]))
            sums[jobs_of, out] += predicted.reshape(_SHUFFLES, -1)
        seen[out] += 1
    kept = seen > 0
    errors = (sums[:, kept] / seen[kept] - y[kept]) ** 2
    spread = float(((y[kept] - y[kept].mean()) ** 2).mean())
    r2 = 1 - float(errors[0].mean()) / spread if spread else 0.0
    # Row: parameter, column: trial: by how much its error grows.
    grown = errors[1:].reshape(len(groups), _SHUFFLES, -1).mean(axis=1) - errors[0]
    picks = rng.integers(0, grown.shape[1], (_BOOTSTRAPS, grown.shape[1]))
    # One by one: all draws at once take megabytes.
    drawn = _shares(numpy, numpy.stack([grown[:, p].mean(axis=1) for p in picks], axis=1))
    low, high = numpy.quantile(drawn, [0.05, 0.95], axis=1)
    middle = _shares(numpy, grown.mean(axis=1)[:, None])[:, 0]
    low = numpy.maximum(0, middle - _WIDER * (middle - low))
    high = numpy.minimum(1, middle + _WIDER * (high - middle))
    shares = [
        Share(param=name, share=float(m), low=float(a), high=float(b))
        for name, m, a, b in zip(columns, middle, low, high, strict=True)
    ]
    return r2, tuple(sorted(shares, key=lambda one: -one.share))


def _shares(numpy: Any, grown: Any) -> Any:
    positive = numpy.maximum(grown, 0)
    return positive / numpy.maximum(positive.sum(axis=0), 1e-300)


def _where_it_looked(sweep: SweepView, name: str, sets: Sequence[Params]) -> str:
    """Return `bayes tried mostly lr 0.01 to 0.1`: the middle 80 % of the later half."""
    if not sweep.sampler or sweep.sampler in ("random", "qmc"):
        return ""
    later = [params[name] for params in sets[len(sets) // 2 :] if name in params]
    numbers = sorted(v for v in later if isinstance(v, int | float) and not isinstance(v, bool))
    if numbers and len(numbers) == len(later):
        tenth = len(numbers) // 10
        where = f"{number(numbers[tenth])} to {number(numbers[-1 - tenth])}"
    else:
        where = value(max(later, key=later.count)) if later else "none"
    return f"{sweep.method} tried mostly {clean(name)} {where}; the shares hold for that range"
