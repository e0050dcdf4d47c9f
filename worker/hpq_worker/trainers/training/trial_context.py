"""What a shipped trainer and the process that runs it know of each other; no torch here.

A trainer is a function of its parameters and a `TrialContext`. It keeps nothing between trials but
the data set, so the same parameters give the same numbers in a fresh process and in a warm one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Params
from hpq.errors import HpqError, UserError


class TrialContext(Protocol):
    """The trial as its trainer sees it."""

    @property
    def data(self) -> Path | None:
        """Where data sets lie (HPQ_DATA); None where it is not set."""

    @property
    def cache(self) -> Path:
        """A directory for decoded data, shared by the workers of a machine; made when needed."""

    @property
    def checkpoint_dir(self) -> Path | None:
        """Where checkpoints of this trial lie, if it may keep any."""

    @property
    def checkpoint_s(self) -> float:
        """How many seconds to let pass between two checkpoints."""

    @property
    def should_stop(self) -> bool:
        """True once the trial is to end at the next step."""

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Send the values of one step."""

    def phase(self, text: str) -> None:
        """Say in a few words that something slow begins."""


Trainer = Callable[[Params, TrialContext], Mapping[str, float] | None]


class Diverged(HpqError):
    """Raised at the end of an epoch whose loss is not finite."""


class DeviceUnusable(HpqError):
    """Raised where a trainer was given a GPU that torch cannot use: the worker's fault."""


class BadParams(UserError, ValueError):
    """Raised where a trainer cannot take its parameters; the text names the parameter."""


def filled(trainer: str, params: Params) -> dict[str, float | int | str]:
    """The parameters of a shipped trainer, checked, with defaults for what is left out.

    Raises:
        BadParams: a parameter is unknown, out of its limits or does not fit the others.
    """
    try:
        return SHIPPED[trainer].fill(params)
    except ValueError as error:
        raise BadParams(str(error)) from None
