"""Where a sweep came from: the file as given, the git state of its code, who enqueued it where."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from pathlib import Path

from hpq import __version__
from hpq.sweep import Launch
from hpq.trial import Json


def collect(file: Path, launch: Launch) -> dict[str, Json]:
    """What `hpq show` tells of a sweep's origin; never fails for want of git."""
    data = file.read_bytes()
    return {
        "file": str(file.resolve()),
        "text": data.decode("utf-8", "replace"),
        "sha256": hashlib.sha256(data).hexdigest(),
        "argv": list(sys.argv[1:]),
        "host": platform.node(),
        "python": platform.python_version(),
        "hpq": __version__,
        "git": _git_state(Path(launch.code_dir) if launch.code_dir else file.resolve().parent),
    }


def _git_state(folder: Path) -> Json:
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _git(folder, "diff", "HEAD") or ""
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": bool(diff),
        "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else "",
    }


def _git(folder: Path, *args: str) -> str | None:
    command = ["git", "-C", str(folder), *args]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
