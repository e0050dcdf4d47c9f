"""Turn Python data into what YAML can hold."""

from __future__ import annotations

import json
import os
from typing import Any

from hpq.errors import UserError


def plain_data(data: Any, what: str) -> Any:
    """Return data with lists in place of tuples, and Python's numbers in place of numpy's.

    Raises:
        UserError: a value is not data; the text names `what` holds it.
    """
    try:
        return json.loads(json.dumps(data, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the {what} holds a value that YAML cannot hold: {error}; use numbers, text, lists"
        raise UserError(text, code="sweep-file-invalid") from None


def _plain(value: Any) -> Any:
    for method in ("tolist", "item"):  # of numpy and torch
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, set | frozenset | range):
        return sorted(value)
    raise TypeError(f"{value!r} of type {type(value).__name__}")
