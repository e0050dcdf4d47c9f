"""Compare printed texts with tests/golden/NAME.txt, the one place to review changed words.

A file has sections, `=== name` and the text below. `pytest --update-golden` writes the current
output; read the diff before you commit it.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"
_HEAD = re.compile(r"^=== (.+)\n", re.MULTILINE)


class Golden:
    """Compares texts with the sections of the golden files, or writes them."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, command: str, section: str, text: str) -> None:
        """Assert that a section has this text; with --update-golden, write it."""
        path = FOLDER / f"{command}.txt"
        sections = _read(path)
        if self._update:
            sections[section] = text.strip("\n")
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                "".join(f"=== {n}\n{sections[n]}\n\n" for n in sorted(sections)), "utf-8"
            )
        assert sections.get(section) == text.strip("\n"), "pytest --update-golden rewrites it"


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    parts = _HEAD.split(path.read_text("utf-8"))[1:]
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}
