"""The limits and tags of a sweep that `hpq set` changes, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hpq.errors import UserError
from hpq_producer import durations

TAG = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
FIELDS: Mapping[str, str] = {  # the key of a sweep file → the field of a stored sweep
    **{key: key for key in ("run_cap", "max_parallel", "priority", "retries")},
    "timeout": "timeout_s",
    "stall": "stall_s",
    "tags": "tags",
}
_DURATIONS = frozenset({"timeout_s", "stall_s"})


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
    return " ".join(
        f"{keys.get(name, name)}={_duration(text) if name in _DURATIONS else text}"
        for name, text in fields.items()
    )


def _duration(text: str) -> str:
    try:
        return durations.text(float(text))
    except ValueError:  # written by a newer hpq
        return text
