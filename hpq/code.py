"""The digest of a user's code: which files count, and whether they are still the same.

The producer takes it at enqueue; a worker that runs code from its directory compares before each
attempt, so that an edited file never trains under the sweep of the old one. Files that appear later
(outputs of a program) do not count.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from hpq.errors import UserError

TRACKED = frozenset({".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh"})
MOST_BYTES = 10 * 1024 * 1024
SKIPPED = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", "site-packages"})


def files_of(folder: Path, program: str) -> list[Path]:
    """The files under a folder that count as its code, relative and sorted.

    In a git checkout: tracked files of a code-like ending, as they are now, and untracked *.py that
    git does not ignore; elsewhere *.py. The program always counts.
    """
    tracked = _git(folder, "ls-files", "-z", "--cached")
    if tracked is None:
        found = [p.relative_to(folder) for p in _python_files(folder)]
    else:
        found = [p for p in tracked if p.suffix in TRACKED and (folder / p).is_file()]
        others = _git(folder, "ls-files", "-z", "--others", "--exclude-standard") or []
        found += [p for p in others if p.suffix == ".py"]
    if program and (folder / program).is_file():
        found.append(Path(program))
    return sorted(set(found))


def _python_files(folder: Path) -> Iterable[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in SKIPPED and not entry.name.startswith("."):
                yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry


def _git(folder: Path, *args: str) -> list[Path] | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return [Path(name) for name in done.stdout.decode("utf-8", "replace").split("\0") if name]


def manifest(folder: Path, program: str, without: Path | None = None) -> dict[str, str]:
    """{path: sha256} of the code under a folder, without the sweep file itself.

    Raises:
        UserError: the files are more than 10 MiB (names the largest), or one cannot be read.
    """
    sizes: dict[str, int] = {}
    digests: dict[str, str] = {}
    for path in files_of(folder, program):
        whole = folder / path
        if without is not None and whole.resolve() == without.resolve():
            continue
        try:
            data = whole.read_bytes()
        except OSError as error:
            raise UserError(f"{whole}: {error.strerror}") from None
        sizes[str(path)] = len(data)
        digests[str(path)] = hashlib.sha256(data).hexdigest()
    if sum(sizes.values()) > MOST_BYTES:
        largest = sorted(sizes, key=lambda p: -sizes[p])[:3]
        named = ", ".join(f"{p} ({sizes[p] // 1024} KiB)" for p in largest)
        raise UserError(f"{folder}: the code is over 10 MiB; the largest files are {named}")
    return digests


def digest_of(files: dict[str, str]) -> str:
    """The digest of a manifest, as hex."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def changed(folder: Path, files: dict[str, str]) -> str | None:
    """The first file that is not as the manifest says, or None where all are."""
    for path, digest in sorted(files.items()):
        try:
            now = hashlib.sha256((folder / path).read_bytes()).hexdigest()
        except OSError:
            return path
        if now != digest:
            return path
    return None
