"""Files of a user, and git in a folder of theirs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_WHO = ("-c", "user.name=me", "-c", "user.email=me@x", "-c", "protocol.file.allow=always")


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files below a folder, with the directories that they need."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def put(folder: Path, *names: str) -> None:
    """Write files that have their names as their text."""
    write(folder, {name: name for name in names})


def git(folder: Path, *words: str) -> str:
    """Run git, which must succeed; return its output."""
    done = subprocess.run(
        ["git", *_WHO, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
