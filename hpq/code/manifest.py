"""The digest of a user's code: which files count, and whether they are still the same.

The producer takes it at enqueue; a worker that runs code from its directory compares before each
attempt, so that an edited file never trains under the sweep of the old one. Files that appear later
(outputs of a program) do not count, nor does what is no regular file: an editor's dangling lock, a
pipe that nobody writes to.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from hpq.errors import UserError

TRACKED = frozenset({".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh"})
UNTRACKED = frozenset({".py", ".yaml", ".yml", ".json"})
MOST_BYTES = 10 * 1024 * 1024
SKIPPED = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", "site-packages"})


def files_of(folder: Path, program: str, *, is_sent: bool = False) -> list[Path]:
    """The files under a folder that count as its code, relative and sorted.

    In a git checkout: tracked files of a code-like ending, as they are now (of any ending where the
    code `is_sent`: its data goes along), and untracked *.py that git does not ignore; elsewhere
    *.py, and *.yaml and *.json where it is sent. Files named .… count where git tracks them. What
    is sent leaves out what .hpqignore names, and without git .gitignore. The program always counts.
    """
    tracked = _git(folder, "ls-files", "-z", "--cached")
    if tracked is None:
        endings = UNTRACKED if is_sent else frozenset({".py"})
        found = [p.relative_to(folder) for p in _files(folder, endings)]
    else:
        found = [p for p in tracked if is_sent or p.suffix in TRACKED]
        others = _git(folder, "ls-files", "-z", "--others", "--exclude-standard") or []
        found += [p for p in others if _is_code(p, frozenset({".py"}))]
    if is_sent:
        names = (".hpqignore",) if tracked is not None else (".gitignore", ".hpqignore")
        is_ignored = _ignored(folder, names)
        found = [p for p in found if not is_ignored(p)]
    if program:
        found.append(Path(program))
    return sorted({p for p in found if (folder / p).is_file()})  # links are followed


def _ignored(folder: Path, names: Collection[str]) -> Callable[[Path], bool]:
    """Return the test of the ignore files at the top of a folder, which answers as git does.

    Raises:
        UserError: a line of the files is not a pattern.
    """
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  # a tenth of a second, where code is sent

    lines: list[str] = []
    for name in names:
        with suppress(OSError):
            lines += (folder / name).read_text("utf-8", "replace").splitlines()
    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error) as error:
        text = f"{folder}: {' or '.join(names)}: {error}; correct this line"
        raise UserError(text, code="ignore-file-invalid") from None
    return lambda path: (  # no pattern takes back a file of an ignored directory
        spec.match_file(path) or any(spec.match_file(f"{p}/") for p in path.parents if p.parts)
    )


def _files(folder: Path, endings: Collection[str]) -> Iterable[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in SKIPPED and not entry.name.startswith("."):
                yield from _files(entry, endings)
        elif _is_code(entry, endings):
            yield entry


def _is_code(path: Path, endings: Collection[str]) -> bool:
    return path.suffix in endings and not path.name.startswith(".")


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


def manifest(
    folder: Path,
    program: str,
    without: Callable[[Path], bool] | None = None,
    *,
    is_sent: bool = False,
) -> dict[str, str]:
    """{path: sha256} of the code under a folder, without the files of which `without` says so.

    Raises:
        UserError: the files are more than 10 MiB (names the largest), or one cannot be read.
    """
    sizes: dict[Path, int] = {}
    for path in files_of(folder, program, is_sent=is_sent):
        whole = folder / path
        if without is None or not without(whole):
            sizes[path] = _size(whole)
    if sum(sizes.values()) > MOST_BYTES:  # before a byte of them is read
        largest = sorted(sizes, key=lambda p: -sizes[p])[:3]
        named = ", ".join(f"{p} ({sizes[p] // 1024:,} KiB)" for p in largest)
        remedy = "; leave out what is not code: a line each in .hpqignore" if is_sent else ""
        text = f"{folder}: the code is over 10 MiB; the largest files are {named}{remedy}"
        raise UserError(text, code="code-too-large")
    try:
        return {str(path): _digest(folder / path) for path in sizes}
    except OSError as error:
        text = f"{error.filename or folder}: {error.strerror}"
        raise UserError(text, code="file-unreadable") from None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", code="file-unreadable") from None


def _digest(path: Path) -> str:
    """The SHA-256 of a regular file, read piece by piece; OSError for anything else."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else a pipe would wait for its writer
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file", str(path))
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(files: dict[str, str]) -> str:
    """The digest of a manifest, as hex."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def changed(folder: Path, files: dict[str, str]) -> str | None:
    """The first file that is not as the manifest says, or None where all are."""
    for path, digest in sorted(files.items()):
        try:
            now = _digest(folder / path)
        except OSError:
            return path
        if now != digest:
            return path
    return None
