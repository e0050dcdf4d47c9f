"""A trial as a built-in trainer sees it, outside any worker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(kw_only=True)
class Desk:
    """A trial that keeps its reports, each with the time.monotonic() at which it came."""

    data: Path | None = None
    cache: Path = Path()
    seed: int = 0
    should_stop: bool = False
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0
    reports: list[dict[str, float]] = field(default_factory=list)

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep a report."""
        self.reports.append({**metrics, "at": time.monotonic()})

    def phase(self, text: str) -> None:
        """Ignore it."""
