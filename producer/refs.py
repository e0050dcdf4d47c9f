"""How people name trials on the command line: SWEEP/7, #7 or 7 of my last sweep."""

from __future__ import annotations

import re

from hpq.errors import UserError

_TRIAL = re.compile(r"(?:(?P<sweep>[a-z0-9-]+)/|#)?(?P<number>[1-9][0-9]*)\Z")


def parse(targets: list[str] | None) -> tuple[str | None, list[int]]:
    """The sweep that is meant (None: my last one) and the trials of it (none: the sweep itself).

    Raises:
        UserError: the targets are of several sweeps.
    """
    sweeps: list[str] = []
    numbers: list[int] = []
    for text in targets or []:
        found = _TRIAL.match(text)
        if found is None:
            sweeps.append(text)
            continue
        numbers.append(int(found["number"]))
        if found["sweep"]:
            sweeps.append(found["sweep"])
    distinct = list(dict.fromkeys(sweeps))
    if len(distinct) > 1:
        raise UserError(f"{', '.join(distinct)}: one sweep at a time", code="one-sweep-only")
    return (distinct[0] if distinct else None), numbers
