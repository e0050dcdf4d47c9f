"""Ask git about a checkout that another person may have made: none of its code runs.

A checkout's configuration names programs: monitors, hooks, filters, and transports that fetch
missing objects. Filters cannot be switched off, so no command that applies them is used: no diff,
no status. A checkout may also name another repository or work tree as its own, and hpq would store
what it reads there.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_SAFE = (
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.bareRepository=explicit"),
)
_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",  # git before 2.45 does not know it, and then
    "GIT_ALLOW_PROTOCOL": "",  # has no protocol to fetch by
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
# The user's own. Others name another repository, its index, or a program (a hook of git sets some).
_KEPT = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
)
_TIMEOUT_S = 30.0
_IN_IT = ("HEAD", "config", "objects", "packed-refs", "refs")  # of a git directory
_ALTERNATES = "info/alternates"  # among the objects: names directories with others
_MOST_BYTES = 4096  # of a file that names a directory


def checkout(folder: Path) -> Path | None:
    """Return the root of the git checkout that a folder is in.

    None if its git directory belongs to another one: it must be in the root, or be that of this
    worktree or submodule.
    """
    folder = folder.resolve()
    for root in (folder, *folder.parents):
        if os.path.lexists(root / ".git"):
            with suppress(OSError, RuntimeError):  # a path that is too long, or a loop of links
                return root if _git_directory(root) else None
            return None
    return None


def holds_objects(root: Path) -> bool:
    """True if the objects that git reads of a checkout are in its own git directory.

    Alternates and links lead to those of other repositories, which the checkout's owner may not be
    able to read.
    """
    common = _git_directory(root)
    printed = git(root, "rev-parse", "--git-path", "objects")
    if common is None or printed is None:
        return False
    objects = common / "objects"
    named = (root / _path(printed)).resolve()
    if named != objects or (objects / _ALTERNATES).exists():
        return False
    return not _has_link(objects)


def _has_link(folder: Path | str) -> bool:
    """True if a folder has a symbolic link at any depth, or cannot be read."""
    try:
        with os.scandir(folder) as entries:  # names the links without a call for each file
            for entry in entries:
                if entry.is_symlink():
                    return True
                if entry.is_dir(follow_symlinks=False) and _has_link(entry.path):
                    return True
    except OSError:
        return True
    return False


def git(folder: Path, *args: str, data: bytes = b"") -> bytes | None:
    """Return what git prints of a folder's checkout; `data` is its standard input.

    None if it fails, or if the folder is in no checkout.
    """
    root = checkout(folder)
    if root is None:
        return None
    own = {"GIT_WORK_TREE": str(root), "GIT_CEILING_DIRECTORIES": str(root.parent)}
    return _printed(folder, args, own, data)


def _printed(
    folder: Path, args: tuple[str, ...], environ: dict[str, str], data: bytes = b""
) -> bytes | None:
    kept = {n: v for n, v in os.environ.items() if n in _KEPT or not n.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *args],
            env={**kept, **_ENVIRONMENT, **environ},
            input=data,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _git_directory(root: Path) -> Path | None:
    """Return the directory that holds the objects of a checkout; None if it is another one's."""
    entry = root / ".git"
    word, _, name = _line(entry).partition(": ")
    if word != "gitdir" and not entry.is_dir():
        return None
    folder = (root / name if word == "gitdir" else entry).resolve()
    if (folder / "commondir").exists():  # a worktree's, in the git directory of its repository
        common = (folder / _line(folder / "commondir")).resolve()
        named = (folder / _line(folder / "gitdir")).resolve()
        is_own = folder.parent == common / "worktrees" and named == entry.resolve()
    elif folder.is_relative_to(root):
        common = folder
        is_own = True
    else:
        tree = _printed(root, ("config", "--file", str(folder / "config"), "core.worktree"), {})
        common = folder
        is_own = tree is not None and (folder / _path(tree)).resolve() == root
    is_own = is_own and all((common / name).resolve().is_relative_to(common) for name in _IN_IT)
    return common if is_own else None


def _line(path: Path) -> str:
    """Return the path in a small file, as git reads it; "" if there is none."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return _path(file.read(_MOST_BYTES))
    return ""


def _path(data: bytes) -> str:
    """Return a path without the ends of its line; blanks belong to it, and no path has a NUL."""
    return "" if b"\0" in data else os.fsdecode(data).rstrip("\r\n")
