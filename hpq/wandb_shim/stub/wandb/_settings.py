"""`wandb.Settings`, `wandb.AlertLevel`: taken, and without effect."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Settings:
    """Takes every keyword; what was not given is None."""

    def __init__(self, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def update(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class AlertLevel(Enum):
    """How loud an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
