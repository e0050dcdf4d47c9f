"""Which files an ignore file leaves out: the lines of .gitignore that people write. Pure but for
the reading.

A line is a pattern of names (`*.npz`), of paths from the folder (`/data`, `runs/old`), or of
directories (`runs/`); `!` takes a file back; the last line that fits decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath


def rules_of(folder: Path, names: Iterable[str]) -> list[str]:
    """The lines of the ignore files in a folder, in order; a file that is not there has none."""
    found: list[str] = []
    for name in names:
        try:
            text = (folder / name).read_text("utf-8", "replace")
        except OSError:
            continue
        lines = (line.rstrip() for line in text.splitlines())
        found += [line for line in lines if line and not line.startswith("#")]
    return found


def is_ignored(path: PurePath, rules: Sequence[str]) -> bool:
    """True where the last rule that fits a relative path, or one above it, leaves it out."""
    verdict = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        if _fits(path, pattern):
            verdict = not rule.startswith("!")
    return verdict


def _fits(path: PurePath, pattern: str) -> bool:
    above = [p for p in path.parents if p.parts]
    candidates = above if pattern.endswith("/") else [path, *above]
    bare = pattern.strip("/").removeprefix("**/")
    if "/" in pattern.rstrip("/") and not pattern.startswith("**/"):
        return any(_like(p.parts, bare.split("/")) for p in candidates)
    return any(fnmatchcase(p.name, bare) for p in candidates)


def _like(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_like(parts[n:], patterns[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _like(parts[1:], patterns[1:])
