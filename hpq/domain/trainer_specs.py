"""List the parameters of the built-in trainers: names, kinds, limits and defaults, without torch.

The producer checks a sweep file against this table before it writes anything; the trainer checks
its parameters against the same table and reads its defaults from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from hpq import __version__
from hpq.domain.sweep import Goal, Launch, Metric
from hpq.domain.trial import Json, Params
from hpq.errors import BadParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number with inclusive limits; `whole` if it must be an integer."""

    default: float
    low: float
    high: float
    whole: bool = False

    @property
    def allowed(self) -> str:
        """Describe the limits."""
        if self.whole:
            return f"a whole number from {self.low:.0f} to {self.high:.0f}"
        return f"a number from {self.low:g} to {self.high:g}"

    def problem(self, value: Json) -> str | None:
        """Return what is wrong with a value and what is allowed; None if it is valid."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and self.low <= value <= self.high and (not self.whole or value == int(value)):  # type: ignore[operator, arg-type]
            return None
        return f"{value!r} is not {self.allowed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One of several words."""

    default: str
    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """Describe the choices."""
        return f"one of {', '.join(self.words)}"

    def problem(self, value: Json) -> str | None:
        """Return what is wrong with a value and what is allowed; None if it is valid."""
        if isinstance(value, bool) and {"on", "off"} <= set(self.words):
            word = "on" if value else "off"
            return f"an unquoted {word} is a YAML boolean; write '{word}' with quotes"
        if value in self.words:
            return None
        return f"{value!r} is not {self.allowed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """A built-in trainer: its metric and its parameters."""

    name: str
    metric: Metric
    params: Mapping[str, Number | Word]

    @property
    def module(self) -> str:
        """The module of its function `train`."""
        return f"hpq_worker.trainers.{self.name}"

    def problem(self, name: str, value: Json) -> str | None:
        """Return what is wrong with one parameter; None if it is valid."""
        spec = self.params.get(name)
        if spec is not None:
            return spec.problem(value)
        close = get_close_matches(name, self.params, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = ", ".join(self.params)
        return f"trainer {self.name} has no such parameter; {hint}it has {known}"

    def _number(self, params: Params, name: str) -> float:
        """Return a parameter or its default; infinity if the trainer has no such number."""
        spec = self.params.get(name)
        value = params.get(name, spec.default if spec else None)
        return value if isinstance(value, int | float) else math.inf

    def fill(self, params: Params) -> dict[str, Any]:
        """Return the parameters with defaults for those left out; whole numbers as int.

        Raises:
            BadParams: a parameter is unknown, outside its limits or does not fit the others.
        """
        out: dict[str, Any] = {}
        for name, value in params.items():
            wrong = self.problem(name, value)
            if wrong:
                raise BadParams(f"{name}: {wrong}")
        batch_size, images = (self._number(params, name) for name in ("batch_size", "train_images"))
        if batch_size > images:
            what = f"{batch_size:.0f} is more than the {images:.0f} training images"
            raise BadParams(f"batch_size: {what}")
        for name, spec in self.params.items():
            value = params.get(name, spec.default)
            if isinstance(spec, Number):
                assert isinstance(value, int | float)
                out[name] = int(value) if spec.whole else float(value)
            else:
                out[name] = str(value)
        return out


def _whole(default: int, low: int, high: int) -> Number:
    return Number(default=default, low=low, high=high, whole=True)


def _real(default: float, low: float, high: float) -> Number:
    return Number(default=default, low=low, high=high)


def _images(train: int) -> dict[str, Number]:
    """Return the parameters for the number of images; all by default."""
    return {"train_images": _whole(train, 2, train), "test_images": _whole(10_000, 1, 10_000)}


def _trainer(name: str, params: Mapping[str, Number | Word]) -> TrainerSpec:
    metric = Metric(name="test/acc", goal=Goal.MAXIMIZE)
    return TrainerSpec(name=name, metric=metric, params=MappingProxyType({**_COMMON, **params}))


_ON = Word(default="on", words=("on", "off"))
_COMMON: Mapping[str, Number | Word] = {
    "seed": _whole(0, 0, 2**31 - 1),
    "epochs": _whole(24, 1, 10_000),
    "batch_size": _whole(512, 2, 65_536),
    "momentum": _real(0.9, 0, 0.9999),
    "max_learning_rate": _real(0.4, 1e-9, 100),
}

_CIFAR10: Mapping[str, Number | Word] = {
    "data_aug_cutout_size": _whole(5, 0, 32),
    "batch_norm": _ON,
    "weight_decay": _real(5e-4, 0, 1),
    # Channels of the first layer; the article has 64, then 2, 4 and 8 times as many.
    "width": _whole(64, 4, 512),
    **_images(50_000),
}

_MNIST: Mapping[str, Number | Word] = {
    "epochs": _whole(4, 1, 10_000),
    "batch_size": _whole(128, 2, 65_536),
    "max_learning_rate": _real(0.1, 1e-9, 100),
    "weight_decay": _real(5e-4, 0, 1),
    "dropout": _real(0.0, 0, 0.95),
    "width": _whole(16, 2, 512),
    **_images(60_000),
}

_DIGITS: Mapping[str, Number | Word] = {
    "epochs": _whole(20, 1, 10_000),
    "batch_size": _whole(64, 2, 1_024),
    "max_learning_rate": _real(0.2, 1e-9, 100),
    "weight_decay": _real(5e-4, 0, 1),
    "hidden": _whole(64, 1, 4_096),
}

BUILT_IN: Mapping[str, TrainerSpec] = MappingProxyType(
    {
        "cifar10": _trainer("cifar10", _CIFAR10),
        "mnist": _trainer("mnist", _MNIST),
        "digits": _trainer("digits", _DIGITS),
    }
)

_SHIPPED = "hpq=="


def built_in_launch(trainer: str) -> Launch:
    """Return the launch record of a built-in trainer."""
    return Launch(trainer=trainer, code=f"{_SHIPPED}{__version__}")


def is_built_in(launch: Launch) -> bool:
    """True if hpq ships all that a launch starts, so that the launch needs no signature.

    Any other field may name code: then the launch is not a built-in trainer's.
    """
    is_shipped = not launch.code or launch.code.startswith(_SHIPPED)
    is_alone = launch == Launch(trainer=launch.trainer, code=launch.code)
    return launch.trainer in BUILT_IN and is_shipped and is_alone
