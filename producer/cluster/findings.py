"""What the checkup of a cluster says most often."""

from __future__ import annotations

from hpq.codes import Code
from producer.checkup import Finding


def good(code: Code, what: str) -> Finding:
    """All is well."""
    return Finding(level="good", code=code, what=what)
