"""What a suggester needs to know: the space, the sampler, the metric and the limits of a sweep.

The producer writes it with the sweep; the worker that holds the suggest lease reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec

from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.search.space import Space

OPTUNA = "pip install 'hpq[bayes]'"


class Sampler(StrEnum):
    """Who chooses the sets: a draw, one of Optuna's samplers, or GP and then TPE (auto)."""

    RANDOM = "random"
    AUTO = "auto"
    TPE = "tpe"
    GP = "gp"
    CMAES = "cmaes"
    QMC = "qmc"

    @property
    def startup(self) -> int:
        """How many results it wants before it learns from them; until then sets are drawn."""
        return 10 if self in (Sampler.AUTO, Sampler.TPE, Sampler.GP) else 1

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules that it is made of, beside hpq's own."""
        return _NEEDS[self]

    @property
    def wants(self) -> tuple[str, ...]:
        """The modules without which it does not do as well as it can."""
        return Sampler.GP.needs if self is Sampler.AUTO else self.needs


BY_DEFAULT = Sampler.AUTO
_NEEDS: dict[Sampler, tuple[str, ...]] = {
    Sampler.RANDOM: (),
    Sampler.AUTO: ("optuna",),
    Sampler.TPE: ("optuna",),
    Sampler.GP: ("optuna", "scipy", "torch"),
    Sampler.CMAES: ("optuna", "cmaes"),
    Sampler.QMC: ("optuna", "scipy"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The space and how it is searched.

    `take` is which of a trial's values counts: as W&B has it the best, unless the file says
    otherwise. Without `impute_while_running` a running trial counts as one without a result yet.
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


def is_installed(name: str) -> bool:
    """True where a module can be imported here; it is not."""
    return find_spec(name) is not None


def missing(sampler: Sampler, is_there: Callable[[str], bool]) -> str | None:
    """What to install where a sampler cannot run, in a line; None where it can."""
    gone = [name for name in sampler.needs if not is_there(name)]
    return f"sampler {sampler} needs {_install(gone)}" if gone else None


def unaided(sampler: Sampler, is_there: Callable[[str], bool]) -> str | None:
    """What to install for better sets where a sampler can run without, in a line; None where it
    has all that it wants, or cannot run at all."""
    gone = [name for name in sampler.wants if not is_there(name)]
    if not gone or missing(sampler, is_there):
        return None
    return f"sampler {sampler} is {Sampler.TPE} alone without {_install(gone)}"


def _install(gone: Sequence[str]) -> str:
    torch = " torch" if "torch" in gone else ""
    return f"{', '.join(gone)}: {OPTUNA}{torch}"
