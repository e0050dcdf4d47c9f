"""What the checkup of a cluster says most often."""

from __future__ import annotations

from hpq.errors import HpqError
from producer.checkup import Finding


def good(what: str) -> Finding:
    """All is well."""
    return Finding(level="good", what=what)


def wrong(error: HpqError) -> Finding:
    """What could not be looked at, or is not there."""
    return Finding(level="wrong", what=str(error), exit_code=int(error.exit_code))
