"""The search of a sweep, for its suggester: the space, the sampler, the metric and the seed.

The producer writes it with the sweep; the worker that holds the suggest lease reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import Final

from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.search.space import Space


class Sampler(StrEnum):
    """What suggests parameters: draws, one of Optuna's samplers, or GP and then TPE (auto)."""

    RANDOM = "random"
    AUTO = "auto"
    TPE = "tpe"
    GP = "gp"
    CMAES = "cmaes"
    QMC = "qmc"
    NSGA2 = "nsga2"

    @property
    def startup(self) -> int:
        """Number of results from which it learns; until then parameters are drawn at random."""
        return 1 if self in (Sampler.CMAES, Sampler.QMC) else 10

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules that it requires, besides hpq's own."""
        return _NEEDS[self]

    @property
    def wants(self) -> tuple[str, ...]:
        """The modules that it uses if they are installed."""
        return Sampler.GP.needs if self is Sampler.AUTO else self.needs


BY_DEFAULT: Final = Sampler.AUTO
_NEEDS: dict[Sampler, tuple[str, ...]] = {
    Sampler.RANDOM: (),
    Sampler.AUTO: ("optuna",),
    Sampler.TPE: ("optuna",),
    Sampler.GP: ("optuna", "scipy", "torch"),
    Sampler.CMAES: ("optuna", "cmaes"),
    Sampler.QMC: ("optuna", "scipy"),
    Sampler.NSGA2: ("optuna",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The space and how it is searched.

    `take` selects the value of a trial that counts: the best, as with W&B, unless the file sets
    another. Without `impute_while_running` a running trial has no result yet.
    """

    space: Space
    sampler: Sampler = Sampler.TPE
    seed: int = 0
    replicates: int = 1  # trials of each set
    maximize: bool = False
    metric: str = ""
    take: ObjectiveValue = ObjectiveValue.BEST
    impute: Impute = Impute.WORST
    impute_while_running: Impute | None = None
    maximizes: tuple[bool, ...] = ()  # for each of several metrics; () for one
    constraints: int = 0  # how many


def is_installed(name: str) -> bool:
    """True if a module can be imported here; does not import it."""
    return find_spec(name) is not None


def missing(sampler: Sampler, has_module: Callable[[str], bool]) -> str | None:
    """Return a line that names what to install if a sampler cannot run; None if it can."""
    absent = [name for name in sampler.needs if not has_module(name)]
    return f"sampler {sampler} needs {_install(absent)}" if absent else None


def unaided(sampler: Sampler, has_module: Callable[[str], bool]) -> str | None:
    """Return a line that names what to install for better suggestions; None if the sampler has
    all that it wants, or cannot run at all."""
    absent = [name for name in sampler.wants if not has_module(name)]
    if not absent or missing(sampler, has_module):
        return None
    return f"sampler {sampler} is {Sampler.TPE} alone without {_install(absent)}"


def _install(absent: Sequence[str]) -> str:
    return f"{', '.join(absent)}: pip install {' '.join(absent)}"
