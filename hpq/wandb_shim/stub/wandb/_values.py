"""What a script logs, told apart: numbers are metrics, the rest is not."""

from __future__ import annotations

import math
import random
import re
import string
from collections.abc import Mapping
from typing import Any

from ._say import say

# All but those of hpq.report.METRIC_NAME, which a Python without hpq cannot import.
_OTHER = re.compile(r"[^A-Za-z0-9_./ @()%:+-]")
_LONGEST = 64


def number_of(value: Any) -> float | None:
    """A number out of whatever holds a single one (numpy, torch, …); None for anything else."""
    if value is None or isinstance(value, (str, bytes, Mapping, list, tuple)):
        return None
    item = getattr(value, "item", None)
    try:
        return float(item() if callable(item) else value)
    except Exception:  # of more than one element, on a meta device, complex, …
        return None


def metric_name(name: str) -> str:
    """A name as hpq can keep it: other characters become '_'."""
    clean = _OTHER.sub("_", name)[:_LONGEST] or "_"
    if clean != name:
        say(f"the metric {name!r} is kept as {clean!r}")
    return clean


def split(data: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, float], dict[str, Any]]:
    """Numbers and the rest, from nested mappings, whose names are joined with '.'."""
    numbers: dict[str, float] = {}
    rest: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            inner, other = split(value, f"{name}.")
            numbers.update(inner)
            rest.update(other)
        elif (found := number_of(value)) is not None:
            numbers[metric_name(name)] = found
        elif value is not None:
            rest[name] = value
    return numbers, rest


def generate_id(length: int = 8) -> str:
    """A random name."""
    return "".join(random.choice(string.ascii_lowercase + string.digits) for _ in range(length))


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers out of their boxes, text of what is neither."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return item()
        except Exception:
            pass
    return str(value)


def same(a: float, b: float) -> bool:
    """True for equal numbers, and for two NaNs."""
    return a == b or (math.isnan(a) and math.isnan(b))
