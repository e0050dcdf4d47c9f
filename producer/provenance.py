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
from producer.place import Place, place_of, remote_name

MOST_DIFF_BYTES = 1024 * 1024  # of changes that are not committed; the rest is cut, and told


def collect(file: Path, launch: Launch, code: Path | None = None) -> tuple[dict[str, Json], str]:
    """What `hpq show` tells of a sweep's origin, and the diff of its code; never fails for git.

    `code` is the directory of the code, where it is the user's.
    """
    data = file.read_bytes()
    folder = code or (Path(launch.code_dir) if launch.code_dir else file.resolve().parent)
    diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD") or b""
    told: dict[str, Json] = {
        "file": str(file.resolve()),
        "text": data.decode("utf-8", "replace"),
        "sha256": hashlib.sha256(data).hexdigest(),
        "argv": list(sys.argv[1:]),
        "host": platform.node(),
        "python": platform.python_version(),
        "hpq": __version__,
        "git": _git_state(folder, diff),
    }
    if launch.bundled:
        told["folder"] = str(folder)
    return told, diff[:MOST_DIFF_BYTES].decode("utf-8", "replace")


def _git_state(folder: Path, diff: bytes) -> Json:
    commit = _text(_git(folder, "rev-parse", "HEAD"))
    if commit is None:
        return None
    return {
        "commit": commit,
        "branch": _text(_git(folder, "rev-parse", "--abbrev-ref", "HEAD")),
        "dirty": bool(diff),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else "",
        "diff_bytes": len(diff),
        **_repository(folder),
    }


def where(launch: Launch, owner: str, folder: Path) -> Place:
    """Where the code of a launch lies on this machine."""
    facts: dict[str, Json] = {"host": platform.node()}
    if launch.code_dir or launch.bundled:
        facts |= {"git": _repository(folder), "folder": str(folder)}
    return place_of(launch, facts, owner)


def _repository(folder: Path) -> dict[str, Json]:
    """Which repository, as its remote names it, and the directory as its root has it."""
    remote = remote_name(_text(_git(folder, "config", "--get", "remote.origin.url")) or "")
    below = _git(folder, "rev-parse", "--show-prefix") if remote else None
    return {"remote": remote, "below": _text(below) or ""}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace").strip()


def _git(folder: Path, *args: str) -> bytes | None:
    command = ["git", "-C", str(folder), *args]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
