"""Write measured tables into a page, each between two marks, with what they were measured on."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

from benchmarks.processes import ROOT

PAGE = ROOT / "docs" / "results" / "benchmarks.md"


def write(page: Path, name: str, table: str, about: Mapping[str, object]) -> None:
    """Replace a block of the page.

    Raises:
        SystemExit: the page has no such block.
    """
    text = page.read_text("utf-8")
    if not _block(name).search(text):
        raise SystemExit(f"benchmarks: {page} has no block {name}")
    measured = ", ".join(f"{key} {value}" for key, value in about.items())
    lines = textwrap.fill(f"Measured on: {measured}.", 100, break_on_hyphens=False)
    new = f"<!-- {name} -->\n{table.strip()}\n\n{lines}\n<!-- end of {name} -->"
    page.write_text(_block(name).sub(lambda _: new, text), "utf-8")


def read(page: Path, name: str) -> str:
    """Return a block of the page."""
    found = _block(name).search(page.read_text("utf-8"))
    assert found, name
    return found.group()


def commit() -> str:
    """Return the commit of this checkout, marked if files differ from it."""
    words = ("git", "describe", "--always", "--dirty=, changed")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _block(name: str) -> re.Pattern[str]:
    mark = re.escape(name)
    return re.compile(rf"<!-- {mark} -->\n.*?<!-- end of {mark} -->", re.DOTALL)
