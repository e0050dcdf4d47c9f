"""Judge whether the winner is real: its gap to the second, noise, luck of the best of N, curve.

Terminal, page and Python API show the lines of `Winner`. Pure but for `judge_winner`, which reads.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist

from hpq.domain.identity import slug
from hpq.domain.sweep import Goal, ObjectiveValue, SweepView
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Json, Point, ReplicateGroup, TrialView, flatten
from hpq.notice import plural
from hpq.search.distributions import (
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    Uniform,
    Weighted,
)
from hpq.search.replicates import SEED
from hpq.store.reader import StoreReader
from hpq_views.analysis.space import are_numbers, is_log, space_of
from hpq_views.text.text import clean, deviation, measure, progress, value

MOST_JUDGED = 50  # the best settings, whose replicates give the noise
_COMPARED = 10  # of them, whose order is judged
_DRAWS = 1_000  # repetitions of the sweep, with the measured noise
# Of them, from which the lead counts as real. The leader was chosen by its value: of two equal
# sets either may lead, so each end of a two-sided test at 5 % has 2.5 %.
SURE = 0.975
CONFIRMS = "confirms-"  # a tag: and the id of the sweep whose best trials this one repeats
_EDGE = 0.05  # of a range, at each end
_LATE = 0.9  # of the steps: a best value after it may not be the last
_STILL = 0.02  # of the curve's range: less is no rise


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Evidence on whether the best trial is better or was lucky. Values are the metric's.

    `noise` is the pooled standard deviation of replicates, None if there are none or the program
    ignores the seed. `luck` is how far the best of `of` equal trials lies above their mean, in
    standard deviations. `edges` holds a sentence for each parameter at the end of its range.
    """

    trial: int
    second: int | None
    gap: float | None
    noise: float | None
    replicates: int
    of: int
    luck: float
    edges: Mapping[str, str] = field(default_factory=dict)
    is_rising: bool = False
    has_start: bool = False  # `hpq add --from` can begin at its checkpoint
    unrepeatable: str = ""  # why `--confirm` refuses the first or the next
    steps: str = ""  # how the value relates to the best of the curve
    stays_first: float | None = None  # share of repetitions with other seeds
    order_holds: float | None = None
    ignores_seed: bool = False  # all repetitions of each set gave the same value
    names: Mapping[int, str] = field(default_factory=dict)  # of trials that repeat others
    confirmed: str = ""  # what a sweep of `hpq best --confirm` found, or that it is not over

    @property
    def has_verdict(self) -> bool:
        """Return whether seeds, or a tie, tell something of the lead."""
        known = self.stays_first is not None or self.ignores_seed or bool(self.confirmed)
        return known or self.gap == 0

    def lines(self, sid: str, negligible: Container[str] = ()) -> Iterator[tuple[str, str]]:
        """Yield a label and a sentence for each thing known; the verdict comes first.

        `negligible` names parameters that hardly matter, so that their range need not grow.
        """
        if self.gap is not None or self.confirmed:
            yield "verdict", self.confirmed or self._verdict(sid, self.gap or 0.0)
        if self.order_holds != self.stays_first:
            text = f"all of the best {min(_COMPARED, self.of)} would keep their ranks in"
            yield "order", f"{text} {self.order_holds:.0%} of repetitions"
        if self.noise is not None:
            sd = deviation(self.luck * self.noise / math.sqrt(self.replicates), 0.0)
            text = f"the best of {self.of:,} equally good settings would be about {sd} better than"
            yield "luck", f"{text} their mean by chance"
        if edges := [text for name, text in self.edges.items() if name not in negligible]:
            yield "edge", f"{', '.join(edges)}: a better value may lie beyond"
        if self.is_rising:
            longer = f": hpq add {sid} --from {self.trial} NAME=VALUE" if self.has_start else ""
            yield "curve", f"still improving at the end: train it longer{longer}"
        if self.steps:
            yield "ranking", self.steps

    @property
    def name(self) -> str:
        """`#7`."""
        return self.names.get(self.trial, f"#{self.trial}")

    @property
    def rival(self) -> str:
        """The second, likewise."""
        return self.names.get(self.second or 0, f"#{self.second}")

    def _verdict(self, sid: str, gap: float) -> str:
        if not gap:
            return f"a tie: {self.name} and {self.rival} have the same value"
        lead = f"{self.name} leads {self.rival} by {measure(gap)}"
        if self.ignores_seed:
            return (
                f"unknown: {lead}, and repetitions with other seeds gave the same value; let the"
                " program seed itself from HPQ_SEED (if nothing in it is random, the lead is real)"
            )
        if self.stays_first is None and self.unrepeatable:
            return f"unknown: {lead}; {self.unrepeatable}"
        if self.stays_first is None:
            return f"unknown: {lead}; measure the noise: hpq best {sid} -n 2 --confirm 5"
        share = f"it would stay first in {100 * self.stays_first:.3g}% of repetitions"
        if self.stays_first >= SURE:
            return f"yes: {lead}; {share} with other seeds"
        return f"not certain: {lead}; {share} (yes: from {100 * SURE:.3g}%)"


def judge_winner(
    reader: StoreReader,
    sweep: SweepView,
    best: Sequence[TrialView] = (),
    trials: Iterable[TrialView] | None = None,
) -> Winner | None:
    """Judge a sweep's best trial from a bounded number of reads; None if there is none.

    No trial is the winner by several metrics.

    `best` are the best MOST_JUDGED, and `trials` all trials, if they were read already. All
    trials are read if the winner is at the edge of the file's range and some were added beyond it.
    """
    if sweep.objectives:
        return None
    best = best or reader.ranking.best(sweep, MOST_JUDGED)
    if not best or sweep.metric is None:
        return None
    curve = reader.trials.metric_history(best[0].trained, sweep.metric.name)
    found = judge(sweep, best, curve)
    if found.edges and (sweep.files or sweep.outside):
        tried = reader.trials.begun(sweep.id) if trials is None else trials
        found = replace(found, edges=dict(_edges(sweep, best[0], tried)))
    return replace(found, confirmed=_confirmed(reader, sweep, best))


def _confirmed(reader: StoreReader, sweep: SweepView, ranked: Sequence[TrialView]) -> str:
    """Return the verdict of the newest confirmation that repeated the leader; "" without one.

    It names the trials of this sweep, which those of the confirmation repeat.
    """
    leader = ranked[0]
    for one in confirmations(reader, sweep):
        if not one.state.is_over:
            ended = f"{progress(one.counts)} {plural(one.counts.progress[1], 'trial')} ended"
            return f"{one.id} measures the noise: {ended}; hpq watch {one.id}"
        best = reader.ranking.best(one, MOST_JUDGED)
        if _apart(leader) not in map(_apart, best):
            continue
        names = {
            trial.id.number: next(
                (f"#{old.id.number}" for old in ranked if _apart(old) == _apart(trial)),
                str(trial.id),
            )
            for trial in best
        }
        name, first = f"#{leader.id.number}", names[best[0].id.number]
        if first != name:
            return f"not certain: with other seeds, {first} leads {name}; hpq best {one.id}"
        judged = replace(judge(one, best, ()), names=names)
        (_, verdict), *_ = judged.lines(one.id)
        return f"{verdict} (means of {judged.replicates} other seeds, in {one.id})"
    return ""


def confirmations(reader: StoreReader, sweep: SweepView) -> Iterator[SweepView]:
    """Yield the sweeps that repeat trials of this one with other seeds, the newest first."""
    start = f"{slug(f'{sweep.name}-confirm')}-"
    ids = [sid for sid in reader.sweeps.ids() if sid.startswith(start)]
    for one in reader.sweeps.get_each(ids):
        if isinstance(one, SweepView) and CONFIRMS + sweep.id in one.tags:
            yield one


def _apart(trial: TrialView) -> dict[str, Json]:
    """Return the parameters without the seed, which repetitions change."""
    return {name: v for name, v in trial.params.items() if name != SEED}


def judge(sweep: SweepView, best: Sequence[TrialView], curve: Sequence[Point]) -> Winner:
    """Judge the first of the ranked trials; `curve` is its metric's history."""
    first = best[0]
    rivals = [trial for trial in best[1:] if _source(trial) != _source(first)]
    second = rivals[0] if rivals else None
    groups = [t.group for t in (first, *rivals) if t.group]
    ranked = sweep.counts.finished + sweep.counts.pruned
    of = first.standing.of if first.standing else max(len(best), ranked // sweep.replicates)
    noise = pooled_sd(groups)
    ignores_seed = noise == 0
    stays, holds = _repeated(sweep, groups[:_COMPARED], noise, _freedom(groups))
    rising, steps = _of_curve(sweep, first, curve)
    known = first.objective is not None and second is not None and second.objective is not None
    return Winner(
        trial=first.id.number,
        second=second.id.number if second else None,
        gap=abs(first.objective - second.objective) if known else None,  # type: ignore
        noise=noise or None,
        replicates=len(groups[0].objectives) if groups else 1,
        of=of,
        luck=expected_best(of),
        edges=dict(_edges(sweep, first)),
        is_rising=rising,
        has_start=_can_be_start(sweep, first),
        unrepeatable=next(filter(None, map(unrepeatable, best[:2])), ""),
        steps=steps,
        stays_first=stays,
        order_holds=holds,
        ignores_seed=ignores_seed,
    )


def unrepeatable(trial: TrialView) -> str:
    """Return why the parameters of a trial do not give its result again; "" if they do."""
    if trial.start is None:
        return ""
    begun = f"{trial.id} began at the checkpoint of #{trial.start.trial}"
    return f"{begun}: its parameters alone do not repeat it"


def _can_be_start(sweep: SweepView, trial: TrialView) -> bool:
    """Return whether `hpq add --from` accepts a trial, if its files are still in the store."""
    is_added_to = sweep.replicates == 1 and not _is_confirmation(sweep)
    return is_added_to and sweep.launch.trainer not in BUILT_IN and trial.checkpoint is not None


def _is_confirmation(sweep: SweepView) -> bool:
    return any(tag.startswith(CONFIRMS) for tag in sweep.tags)


def _source(trial: TrialView) -> str:
    """Return the trial that trained the result: copies of one result are no rivals."""
    return str(trial.trained)


def expected_best(count: int) -> float:
    """How far the best of N normal values lies above their mean, in standard deviations (Blom)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def pooled_sd(groups: Sequence[ReplicateGroup]) -> float | None:
    """The standard deviation within groups of two or more; None if there is none."""
    squares = math.fsum(g.spread**2 * _freedom([g]) for g in groups)
    freedom = _freedom(groups)
    return math.sqrt(squares / freedom) if freedom else None


def _freedom(groups: Sequence[ReplicateGroup]) -> int:
    """The degrees of freedom of their pooled variance."""
    return sum(max(0, len(g.objectives) - 1) for g in groups)


def _repeated(
    sweep: SweepView, groups: Sequence[ReplicateGroup], noise: float | None, freedom: int
) -> tuple[float | None, float | None]:
    """Return the shares of repetitions in which the first stays first, and the order holds.

    Each repetition also draws the noise: its variance follows a scaled inverse chi-square
    distribution with `freedom` degrees of freedom.
    """
    if len(groups) < 2 or not noise:
        return None, None
    rng, sign = random.Random(0), 1 if sweep.metric and sweep.metric.goal is Goal.MINIMIZE else -1
    known = [(sign * g.mean, noise / math.sqrt(len(g.objectives))) for g in groups]
    first = whole = 0
    for _ in range(_DRAWS):
        scale = math.sqrt(freedom / rng.gammavariate(freedom / 2, 2))
        means = [rng.gauss(mean, scale * sd) for mean, sd in known]
        first += means[0] < min(means[1:])
        whole += all(a < b for a, b in pairwise(means))
    return first / _DRAWS, whole / _DRAWS


def _of_curve(sweep: SweepView, trial: TrialView, curve: Sequence[Point]) -> tuple[bool, str]:
    """Return whether the curve still improves, and a sentence on the step of its best value."""
    metric, points = sweep.metric, [p for p in curve if math.isfinite(p.value)]
    if metric is None or len(points) < 4:
        return False, ""
    sign = 1 if metric.goal is Goal.MAXIMIZE else -1
    top = max(points, key=lambda p: sign * p.value)
    span = max(p.value for p in points) - min(p.value for p in points)
    late = points[int(_LATE * len(points)) :]
    before = max(sign * p.value for p in points[: -len(late)])
    is_rising = span > 0 and max(sign * p.value for p in late) - before > _STILL * span
    whose = " of one replicate" if trial.group else ""
    if metric.take is ObjectiveValue.BEST:
        last = measure(points[-1].value)
        top_of = "a maximum" if metric.goal is Goal.MAXIMIZE else "a minimum"
        return is_rising, (
            f"the best of {len(points):,} {plural(len(points), 'value')}{whose}, at step"
            f" {top.step}: {top_of} adds luck; the last is {last}"
        )
    if sign * (top.value - points[-1].value) > _STILL * span:
        return is_rising, (
            f"by the last value; the best{whose} was {measure(top.value)} at step {top.step}"
            " (`metric: {value: best}` ranks by it)"
        )
    return is_rising, ""


def _edges(
    sweep: SweepView, trial: TrialView, tried: Iterable[TrialView] = ()
) -> Iterator[tuple[str, str]]:
    """Yield `lr`, `lr=0.8 is the highest of 0.1 to 0.8` for numbers at an end of their range.

    The range is the file's and that of all tried values, which `hpq add` extends. A confirmation
    repeats chosen parameters and searches no range.
    """
    if _is_confirmation(sweep):
        return
    space, values = space_of(sweep), _values(tried)
    for name, v in flatten(trial.params).items():
        ends = _ends(space.get(name)) if name in sweep.varying else None
        if ends is None or not isinstance(v, int | float):
            continue
        low, high = min(ends[0], *values[name], v), max(ends[1], *values[name], v)
        log = v > 0 and is_log(space[name], (low, high))
        place = math.log(v / low) / math.log(high / low) if log else (v - low) / (high - low)
        if min(place, 1 - place) <= _EDGE and not _is_natural(space[name], low, high, place):
            end = "lowest" if place < 0.5 else "highest"
            text = f"{clean(name)}={value(v)} is the {end} of {value(low)} to {value(high)}"
            yield name, text


def _is_natural(leaf: Distribution, low: float, high: float, place: float) -> bool:
    """Return True if no value lies beyond the end at `place`.

    Shares, weights and counts end at 0, probabilities at 1, and numbers of layers begin at 1.
    """
    if place < 0.5:
        return low == 0 or (low == 1 and _are_whole(leaf))
    return high == 1 and low >= 0 and not _are_whole(leaf)


def _are_whole(leaf: Distribution) -> bool:
    if isinstance(leaf, Categorical | Weighted):
        return all(isinstance(v, int) for v in leaf.values)
    return isinstance(leaf, IntUniform)


def _values(tried: Iterable[TrialView]) -> Mapping[str, set[float]]:
    """Return the finite numbers that trials had, by parameter."""
    found: defaultdict[str, set[float]] = defaultdict(set)
    for trial in tried:
        for name, v in flatten(trial.params).items():
            if isinstance(v, int | float) and math.isfinite(v):
                found[name].add(v)
    return found


def _ends(leaf: Distribution | None) -> tuple[float, float] | None:
    """Return the lowest and the highest number that the file allows; None for a short list."""
    if isinstance(leaf, Uniform | LogUniform | IntUniform):
        return leaf.low, leaf.high
    found = leaf.values if isinstance(leaf, Categorical | Weighted) else ()
    numbers = [v for v in found if isinstance(v, int | float)]
    if len(numbers) < 3 or not are_numbers(found) or min(numbers) == max(numbers):
        return None
    return min(numbers), max(numbers)
