"""The limits, the tags and the note of a sweep that `hpq set` changes, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hpq.domain.budget import Budget, clock
from hpq.errors import UserError
from hpq_producer import durations

TAG = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
FIELDS: Mapping[str, str] = {  # the key of a sweep file → the field of a stored sweep
    **{key: key for key in ("run_cap", "max_parallel", "priority", "retries")},
    "budget.gpu_hours": "budget_ms",
    "budget.until": "until_ms",
    "timeout": "timeout_s",
    "stall": "stall_s",
    "tags": "tags",
    "note": "note",
}


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without repetitions.

    Raises:
        UserError: a tag is malformed.
    """
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise UserError(f"--tag {tag}: use 1 to 40 characters of A-Z a-z 0-9 _ . : -")
    return tuple(dict.fromkeys(tags))


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
        return (clock(int(text)) if text else "none") if field == "until_ms" else text
    except ValueError:  # another client wrote it
        return text
