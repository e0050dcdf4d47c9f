"""What is there before `wandb.init`, and modules that are imported when somebody asks for them."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from ._say import missing
from .errors import Error

_INTEGRATIONS = frozenset("keras lightgbm sb3 sklearn tensorboard torch xgboost".split())


class PreInit:
    """A name that means something once there is a run."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _fail(self, more: str = "") -> NoReturn:
        raise Error(f"You must call wandb.init() before wandb.{self._name}{more}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._fail("()")

    def __getattr__(self, key: str) -> NoReturn:
        if key.startswith("__"):
            raise AttributeError(key)
        self._fail(f".{key}")

    def __getitem__(self, key: str) -> NoReturn:
        self._fail(f"[{key!r}]")

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        self._fail(f"[{key!r}]")

    def __setattr__(self, key: str, value: Any) -> NoReturn:
        self._fail(f".{key}")


def integration(name: str) -> Any:
    """`wandb.keras` and its like."""
    if name in _INTEGRATIONS:
        return importlib.import_module(f"wandb.integration.{name}")
    raise AttributeError(missing(f"wandb.{name}"))
