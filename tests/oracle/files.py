"""Read and write the recorded results."""

from __future__ import annotations

import json
from typing import Any

from tests.support.constants import DATA, ROOT

FOLDER = DATA / "oracle"


def read(name: str) -> dict[str, Any]:
    """Read the results of that name."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def write(name: str, answers: dict[str, Any]) -> str:
    """Write results, one case per line for readable diffs; return a line with path and size."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = []
    for key, value in answers.items():
        if isinstance(value, list):
            items = ",\n".join(json.dumps(item, separators=(",", ":")) for item in value)
            lines.append(f"{json.dumps(key)}:[\n{items}\n]")
        else:
            lines.append(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}")
    path = FOLDER / f"{name}.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes"
