"""List the parameters of the shipped trainers: names, kinds, limits and defaults, without torch.

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

from hpq.domain.sweep import Goal, Metric
from hpq.domain.trial import Json, Params
from hpq.errors import BadParams

TOGETHER = ("batch_size", "train_images")  # parameters whose values must fit each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number with inclusive limits; `whole` if it must be an integer."""

    default: float
    low: float
    high: float
    whole: bool = False

    @property
    def allowed(self) -> str:
        """The limits in words."""
        if self.whole:
            return f"a whole number from {self.low:.0f} to {self.high:.0f}"
        return f"a number from {self.low:g} to {self.high:g}"

    def problem(self, value: Json) -> str | None:
        """Return what is wrong with a value and what is allowed; None if it is valid."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{value!r} is not {self.allowed}"
        if not math.isfinite(value) or not self.low <= value <= self.high:
            return f"{value!r} is not {self.allowed}"
        if self.whole and value != int(value):
            return f"{value!r} is not {self.allowed}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One of several words."""

    default: str
    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The choices in words."""
        return f"one of {', '.join(self.words)}"

    def problem(self, value: Json) -> str | None:
        """Return what is wrong with a value and what is allowed; None if it is valid."""
        if isinstance(value, bool) and {"on", "off"} <= set(self.words):
            word = "on" if value else "off"
            return f"an unquoted {word} is a YAML boolean; write '{word}' with quotes"
        if value in self.words:
            return None
        return f"{value!r} is not {self.allowed}"


def batch_problem(batch_size: float, images: float) -> str | None:
    """Return what is wrong with a batch size for N images; None if one batch fits."""
    if batch_size <= images:
        return None
    return f"{batch_size:.0f} is more than the {images:.0f} training images"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """A shipped trainer: its metric and its parameters."""

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

    def misfit(self, params: Params) -> tuple[str, str] | None:
        """Return a parameter that does not fit the others, and why; None if all fit.

        Each value is assumed to be valid by itself. Values that fit still fit with a smaller first
        and a larger second parameter of TOGETHER.
        """
        batch_size, images = (self._number(params, name) for name in TOGETHER)
        wrong = batch_problem(batch_size, images)
        return (TOGETHER[0], wrong) if wrong else None

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
        if misfit := self.misfit(params):
            raise BadParams(": ".join(misfit))
        for name, spec in self.params.items():
            value = params.get(name, spec.default)
            if isinstance(spec, Number):
                assert isinstance(value, int | float)
                out[name] = int(value) if spec.whole else float(value)
            else:
                out[name] = str(value)
        return out


_COMMON: Mapping[str, Number | Word] = {
    "seed": Number(default=0, low=0, high=2**31 - 1, whole=True),
    "epochs": Number(default=24, low=1, high=10_000, whole=True),
    "batch_size": Number(default=512, low=2, high=65_536, whole=True),
    "momentum": Number(default=0.9, low=0, high=0.9999),
    "max_learning_rate": Number(default=0.4, low=1e-9, high=100),
}

_CIFAR10 = TrainerSpec(
    name="cifar10",
    metric=Metric(name="test/acc", goal=Goal.MAXIMIZE),
    params=MappingProxyType(
        {
            **_COMMON,
            "data_aug_cutout_size": Number(default=5, low=0, high=32, whole=True),
            "batch_norm": Word(default="on", words=("on", "off")),
            "weight_decay": Number(default=5e-4, low=0, high=1),
            # Channels of the first layer; the article has 64, then 2, 4 and 8 times as many.
            "width": Number(default=64, low=4, high=512, whole=True),
            "train_images": Number(default=50_000, low=2, high=50_000, whole=True),
            "test_images": Number(default=10_000, low=1, high=10_000, whole=True),
        }
    ),
)

_MNIST = TrainerSpec(
    name="mnist",
    metric=Metric(name="test/acc", goal=Goal.MAXIMIZE),
    params=MappingProxyType(
        {
            **_COMMON,
            "epochs": Number(default=4, low=1, high=10_000, whole=True),
            "batch_size": Number(default=128, low=2, high=65_536, whole=True),
            "max_learning_rate": Number(default=0.1, low=1e-9, high=100),
            "weight_decay": Number(default=5e-4, low=0, high=1),
            "dropout": Number(default=0.0, low=0, high=0.95),
            "width": Number(default=16, low=2, high=512, whole=True),
            "train_images": Number(default=60_000, low=2, high=60_000, whole=True),
            "test_images": Number(default=10_000, low=1, high=10_000, whole=True),
        }
    ),
)

_DIGITS = TrainerSpec(
    name="digits",
    metric=Metric(name="test/acc", goal=Goal.MAXIMIZE),
    params=MappingProxyType(
        {
            **_COMMON,
            "epochs": Number(default=20, low=1, high=10_000, whole=True),
            "batch_size": Number(default=64, low=2, high=1_024, whole=True),
            "max_learning_rate": Number(default=0.2, low=1e-9, high=100),
            "weight_decay": Number(default=5e-4, low=0, high=1),
            "hidden": Number(default=64, low=1, high=4_096, whole=True),
        }
    ),
)

SHIPPED: Mapping[str, TrainerSpec] = MappingProxyType(
    {spec.name: spec for spec in (_CIFAR10, _MNIST, _DIGITS)}
)
