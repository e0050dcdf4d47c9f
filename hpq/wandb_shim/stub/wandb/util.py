"""Helpers of `wandb.util` that scripts call."""

from __future__ import annotations

from typing import Any

from ._config import to_dict
from ._say import missing
from ._values import generate_id, plain


def json_friendly(value: Any) -> tuple[Any, bool]:
    """A value as JSON has it, and whether it was changed for that."""
    found = plain(value)
    return found, found is not value


def json_friendly_val(value: Any) -> Any:
    return plain(value)


def parse_config(params: Any, exclude: Any = None, include: Any = None) -> dict[str, Any]:
    """A dict out of a config, without or with only some names."""
    found = to_dict(params)
    return {
        k: v for k, v in found.items() if k not in (exclude or ()) and (not include or k in include)
    }


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.util.{name}"))


__all__ = ["generate_id", "json_friendly", "json_friendly_val", "parse_config"]
