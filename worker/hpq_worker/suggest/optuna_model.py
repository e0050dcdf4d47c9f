"""Optuna's samplers over a sweep's space, by ask and tell. Optuna is imported here.

The study holds every set by its coordinates: queued and running trials as running, ended ones with
their value, uncounted ones as failed. Samplers share the study, so one can continue after another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from math import inf, isfinite
from random import Random
from statistics import fmean, pstdev

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    TPESampler,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hpq.domain.trial import Json, Params
from hpq.search.conditions import MISSING, find
from hpq.search.samplers import Sampler, Search
from hpq_worker.suggest.optuna_space import axis_of
from hpq_worker.suggest.sweep_storage import STUDY, SweepStorage
from hpq_worker.suggest.trial_results import Value

optuna.logging.set_verbosity(optuna.logging.ERROR)
_SOURCE = 10  # results from which CMA-ES can begin
_STATEFUL = (Sampler.CMAES, Sampler.QMC)
_WIDEST = 10_000  # values of a whole number, before it is searched as a float
_POPULATION = 20  # parents of NSGA-II
_HUGE = 1e150  # the square of a larger value is infinite


class OneSpace(BaseSampler):
    """A sampler of trials that all have the parameters of `space`.

    Optuna would look for them in every trial anew.
    """

    space: dict[str, BaseDistribution]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that are suggested together."""
        return self.space


class SweepGP(OneSpace, GPSampler):
    """Optuna's Gaussian process."""


class SweepTPE(OneSpace, TPESampler):
    """Optuna's TPE of all parameters together."""


class SteadyNSGAII(OneSpace, NSGAIISampler):
    """NSGA-II whose parents are the best of all results.

    Optuna's generations are attributes of the trials, which another suggester would lack.
    """

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        """Return 1: all results are its parents' generation."""
        return 1

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """Return the best results."""
        return self.select_parent(study, generation) if generation else []

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """Return all results."""
        return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


class OptunaModel:
    """Suggests parameter sets from results.

    A set depends only on the seed, its number and the results at that time (with CMA-ES also on
    when the model was created), so that another worker's suggester continues with the same sets.
    """

    def __init__(self, search: Search) -> None:
        self._space = search.space
        # The Gaussian process looks at every value of an integer.
        widest = _WIDEST if search.sampler in (Sampler.AUTO, Sampler.GP) else None
        axes = {".".join(path): (path, axis_of(leaf, widest)) for path, leaf in search.space.leaves}
        # A parameter with a single value has no axis.
        self._axes = {name: (path, axis) for name, (path, axis) in axes.items() if axis}
        self._distributions = {name: axis.distribution for name, (_, axis) in self._axes.items()}
        conditional = {condition.path for condition in search.space.when}
        self._conditional = {p: leaf for p, leaf in search.space.leaves if p in conditional}
        self._asked = -1  # the last suggestion's trial in the memory
        self._by = Sampler.TPE  # and its sampler
        self._rejected = 0  # sets at the end of the memory
        self._memory = SweepStorage(len(search.maximizes) or 1)
        self._at: dict[int, int] = {}  # the place of each trial in the memory
        self._constraints = search.constraints
        self._seed = search.seed
        self._studies: dict[Sampler, tuple[int, Study]] = {}  # and the number of a set made with it

    def add(self, number: int, params: Params) -> None:
        """Add a set that is queued or runs, unless it is outside the space."""
        if not self._space.contains(params):
            return
        try:
            place = {
                name: axis.find(self._value(number, params, path))
                for name, (path, axis) in self._axes.items()
            }
        except (KeyError, ValueError, TypeError):  # of another space: a file that was edited since
            return
        self._at[number] = self._memory.add(place, self._distributions)

    def has(self, number: int) -> bool:
        """Return whether the model learns from the trial of this number."""
        return number in self._at

    def _value(self, number: int, params: Params, path: tuple[str, ...]) -> Json:
        """Return a parameter's value; a drawn one, always the same, if the set lacks it."""
        found = find(params, path)
        if found is not MISSING:
            return found  # type: ignore[return-value]
        return self._conditional[path].draw(Random(f"{number}/{path}"))

    def trial_requeued(self, number: int) -> None:
        """Forget the value of a trial that was queued again."""
        if number in self._at:
            self._memory.put(self._at[number], TrialState.RUNNING)

    def trial_ended(
        self, number: int, value: Value | None, violations: Sequence[float] = ()
    ) -> None:
        """Add the value of a trial that the model has; less is better, None is not counted."""
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        self._memory.put(self._at[number], state, value, violations)

    def ask(
        self, by: Sampler, number: int, stand_ins: Mapping[int, float]
    ) -> dict[str, Json] | None:
        """Suggest a set for this trial number, None if the space rejects it; the caller calls
        `keep` or `drop` next.

        `stand_ins` are values of running trials that count as results.
        """
        study = self._study(by, number)
        count = self._memory.count
        try:
            with self._with_stand_ins(stand_ins), self._results_for(by):
                trial = study.ask(self._distributions)
        except Exception:
            if self._memory.count > count:
                self._memory.take_back()
            raise
        self._asked = trial.number
        self._by = by
        values: list[Json] = []
        for path, leaf in self._space.leaves:
            name = ".".join(path)
            if name in self._axes:
                values.append(self._axes[name][1].value(trial.params[name]))
            else:
                values.append(leaf.draw(Random(0)))
        return self._space.assemble(values)

    def warm_up(self) -> None:
        """Import the libraries of a Gaussian process; safe beside a thread that calls `ask`."""
        for name in ("scipy.optimize", "scipy.stats", "torch"):
            import_module(name)

    def _study(self, by: Sampler, number: int) -> Study:
        """Return the study with a fresh sampler for this number, so that it keeps no state that
        another suggester would lack; two samplers keep their state."""
        last, study = self._studies.get(by, (0, None))
        if study is None or (last != number and by not in _STATEFUL):
            if by is Sampler.GP:  # more threads need three times as long for so little work
                import_module("torch").set_num_threads(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                sampler = self._sampler(by, number)
            study = optuna.load_study(study_name=STUDY, storage=self._memory, sampler=sampler)
        self._studies[by] = number, study
        return study

    def _sampler(self, by: Sampler, number: int) -> BaseSampler:
        # Chooser has drawn the first sets, so no sampler draws them again.
        if by is Sampler.QMC:  # begins its one sequence anew: Chooser drops existing sets
            return QMCSampler(
                seed=_seed(self._seed, 0), scramble=True, warn_independent_sampling=False,
                warn_asynchronous_seeding=False,
            )  # fmt: skip
        seed = _seed(self._seed, number)
        if by is Sampler.CMAES:
            return CmaEsSampler(
                seed=seed, n_startup_trials=1, warn_independent_sampling=False,
                source_trials=self._source() or None,
            )  # fmt: skip
        sampler: SweepGP | SteadyNSGAII | SweepTPE
        if by is Sampler.GP:
            sampler = SweepGP(seed=seed, n_startup_trials=1)
        elif by is Sampler.NSGA2:
            sampler = SteadyNSGAII(seed=seed, population_size=_POPULATION)
        elif len(self._memory.directions) > 1:  # each parameter alone finds the wider fronts
            return TPESampler(seed=seed, n_startup_trials=1, constant_liar=True)
        else:
            sampler = SweepTPE(seed=seed, n_startup_trials=1, multivariate=True, constant_liar=True)
        names = sorted(n for n, d in self._distributions.items() if not d.single())
        sampler.space = {name: self._distributions[name] for name in names}
        return sampler

    def _source(self) -> list[FrozenTrial]:
        """Return older results for a new CMA-ES, which begins at their best tenth; [] if there are
        too few, or a parameter is no number."""
        kinds = self._distributions.values()
        if any(isinstance(one, CategoricalDistribution) for one in kinds):
            return []
        ended = self._memory.ended()
        return ended if len(ended) >= _SOURCE else []

    @contextmanager
    def _with_stand_ins(self, stand_ins: Mapping[int, float]) -> Iterator[None]:
        known = [number for number in stand_ins if number in self._at]
        for number in known:
            violations = (0.0,) * self._constraints  # none is known
            value = stand_ins[number]
            self._memory.put(self._at[number], TrialState.COMPLETE, value, violations)
        try:
            yield
        finally:
            for number in known:
                self._memory.put(self._at[number], TrialState.RUNNING)

    @contextmanager
    def _results_for(self, by: Sampler) -> Iterator[None]:
        """Replace infinite values while a sampler reads several; warp a Gaussian process's."""
        ended = self._memory.ended()
        if not ended or (by is not Sampler.GP and len(ended[0].values) == 1):
            yield
            return
        values = [trial.values for trial in ended]
        violations = [[*trial.constraints.values()] for trial in ended]
        warp, fill = (warped, _averaged) if by is Sampler.GP else (levelled, unmet)
        shown = zip(ended, _by_column(warp, values), _by_column(fill, violations), strict=True)
        for trial, value, violated in shown:
            if value != trial.values or violated != [*trial.constraints.values()]:
                self._memory.put(trial.number, TrialState.COMPLETE, tuple(value), violated)
        try:
            yield
        finally:
            self._memory.put_back(ended)

    def keep(self, number: int, params: Params) -> None:
        """Keep the suggested set as the trial of this number."""
        if self._by is Sampler.CMAES:  # its state belongs to the trial
            self._at[number] = self._asked
        else:  # by its rounded values, as the next suggester will read it
            self._memory.take_back()
            self.forget_rejected()
            self.add(number, params)

    def drop(self) -> None:
        """Drop the suggested set: it exists already."""
        self._memory.take_back()

    def reject(self) -> None:
        """Count the suggested set, which does not run, as the worst until another one is kept.

        A sampler would suggest its like again and again. The next suggester lacks it, so it counts
        for one set only.
        """
        if self._by in _STATEFUL:
            self.drop()
        else:
            worst = (inf,) * len(self._memory.directions)
            self._memory.put(self._asked, TrialState.COMPLETE, worst, (inf,) * self._constraints)
            self._rejected += 1

    def forget_rejected(self) -> None:
        """Drop the rejected sets."""
        for _ in range(self._rejected):
            self._memory.take_back()
        self._rejected = 0


def warped(values: Sequence[float]) -> list[float]:
    """Bring the bad values nearer to the good ones by Yeo and Johnson's transformation.

    A loss that is 5 near the bottom and 5,000 elsewhere hides the bottom from a Gaussian process.
    Less stays better and the order stays; an infinite value counts as the worst finite one. The
    values stay as they are if the transformation would flatten a valley instead of the walls.
    """
    level = levelled(values)
    if len({value for value in values if isfinite(value)}) < 3:
        return level
    stats = import_module("scipy.stats")  # imported late: it takes 0.5 s
    middle = fmean(level)
    spread = pstdev(level)
    try:
        even, exponent = stats.yeojohnson([(value - middle) / spread for value in level])
    except (ArithmeticError, ValueError, RuntimeError):  # no exponent fits
        return level
    ranks = [stats.rankdata(each, "dense").tolist() for each in (level, even)]
    keeps_order = ranks[0] == ranks[1] and all(map(isfinite, even))
    return even.tolist() if exponent < 1 and keeps_order else level


def levelled(values: Sequence[float]) -> list[float]:
    """Return values with the worst finite one in place of those that are infinite or huge."""
    worst = max((min(max(v, -_HUGE), _HUGE) for v in values if isfinite(v)), default=0.0)
    return [min(max(v, -_HUGE), worst) if isfinite(v) else worst for v in values]


def unmet(violations: Sequence[float]) -> list[float]:
    """Return violations with a positive one in place of those that are infinite: not met."""
    return levelled([*violations, 1.0])[:-1]


def _averaged(values: Sequence[float]) -> list[float]:
    """Return values with the mean of the finite ones in place of those that are infinite.

    A Gaussian process would learn a bound that is not there from the worst one.
    """
    finite = [min(max(value, -_HUGE), _HUGE) for value in values if isfinite(value)]
    mean = fmean(finite) if finite else 0.0
    return [min(max(value, -_HUGE), _HUGE) if isfinite(value) else mean for value in values]


def _by_column(
    change: Callable[[Sequence[float]], list[float]], rows: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Apply a function to each column of a table."""
    if not rows or not rows[0]:
        return [[] for _ in rows]
    columns = [change(column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _seed(seed: int, number: int) -> int:
    """Return the seed of one set."""
    return int.from_bytes(blake2b(f"{seed}/{number}".encode(), digest_size=4).digest(), "big")
