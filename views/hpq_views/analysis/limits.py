"""The fields of a sweep that `hpq set` changes, in words."""

from __future__ import annotations

from collections.abc import Mapping

from hpq.domain import durations
from hpq.domain.budget import Budget

FIELDS: Mapping[str, str] = {  # the key of a sweep file → the field of a stored sweep
    **{key: key for key in ("run_cap", "max_parallel", "priority", "retries")},
    "budget.gpu_hours": "budget_ms",
    "budget.until": "until_ms",
    "timeout": "timeout_s",
    "stall": "stall_s",
    "tags": "tags",
    "note": "note",
}


def in_words(fields: Mapping[str, str]) -> str:
    """Return fields of a sweep as KEY=VALUE words: `stall=2h retries=1`."""
    keys = {field: key for key, field in FIELDS.items()}
    return " ".join(f"{keys.get(name, name)}={_word(name, text)}" for name, text in fields.items())


def _word(field: str, text: str) -> str:
    try:
        if field in ("timeout_s", "stall_s"):
            return durations.text(float(text))
        if field == "budget_ms":
            return f"{Budget(budget_ms=int(text)).gpu_hours:.6g}"
        return (durations.clock(int(text)) if text else "none") if field == "until_ms" else text
    except ValueError:  # another client wrote it
        return text
