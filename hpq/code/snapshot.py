"""The snapshot of a user's code: its files and their common digest.

The producer takes the snapshot at enqueue, and every attempt runs a copy of it. It leaves out files
that appear later (outputs of a program), files that are not regular (an editor's dangling lock, a
pipe without a writer), and files that look like secrets.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from hpq.code.git import git
from hpq.errors import UserError
from hpq.filestore.base import is_safe_name
from hpq.notice import plural

Files = dict[str, tuple[bytes, int]]  # {path: (content, mode)}
TRACKED = frozenset({".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh"})
UNTRACKED = frozenset({".py", ".yaml", ".yml", ".json"})
MOST_BYTES = 10 * 1024 * 1024
_IGNORE_FILE = ".hpqignore"
_HEAD_BYTES = 1024  # of a file in a bundle: its head, and the padding of its end
MOST_FILE_BYTES = 1024 * 1024  # of a file of local code: larger ones are data
SKIPPED = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", "site-packages"})
_SECRET = (
    *(".env*", "*.env", "*.pem", "*.key", ".netrc", ".pypirc", "kubeconfig*"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
)
_TOKEN = re.compile(rb"hpq-invite-\d+-\s*[A-Za-z0-9_-]{20}")


class CodeTooLarge(UserError):
    """The files of a snapshot exceed the limit."""


def git_root(folder: Path) -> Path | None:
    """Return the root of a folder's git checkout, unless it is a home directory."""
    found = _git_paths(folder, "rev-parse", "--show-toplevel")
    root = Path(str(found[0]).rstrip("\n")) if found else None
    return None if root in (None, Path.home(), Path("/")) else root


def files_of(folder: Path, named: Collection[str], *, is_sent: bool = False) -> list[Path]:
    """Return the files of the code in a folder, relative and sorted.

    In a git checkout: tracked files with an ending of code, as they are now, also of submodules,
    and untracked *.py that git does not ignore. If the code `is_sent`, files of any ending, since
    its data is sent with it. Elsewhere: *.py, and *.yaml and *.json if the code is sent.
    Hidden files count if git tracks them. .hpqignore excludes files of code that is sent, as does
    .gitignore outside git. The `named` files (the program, code-like words of the command) always
    count. Secrets, links out of the folder and names that no bundle can hold never count; of local
    code, nor files over 1 MiB.
    """
    tracked = _git_paths(folder, "ls-files", "-z", "--cached", "--recurse-submodules")
    if tracked is None:  # perhaps a submodule is broken
        tracked = _git_paths(folder, "ls-files", "-z", "--cached")
    if tracked is None:
        endings = UNTRACKED if is_sent else frozenset({".py"})
        found = [p.relative_to(folder) for p in _files(folder, endings)]
    else:
        found = [p for p in tracked if is_sent or p.suffix in TRACKED]
        others = _git_paths(folder, "ls-files", "-z", "--others", "--exclude-standard") or []
        found += [p for p in others if _is_code(p, frozenset({".py"}))]
    if is_sent:
        names = (_IGNORE_FILE,) if tracked is not None else (".gitignore", _IGNORE_FILE)
        is_ignored = _ignored(folder, names)
        found = [p for p in found if not is_ignored(p)]
    else:
        found = [p for p in found if _is_small(folder / p)]
    found += [Path(name) for name in named]
    named_well = {p for p in found if not _is_secret(p) and is_safe_name(str(p))}
    is_inside = _inside(folder)
    return sorted(p for p in named_well if (folder / p).is_file() and is_inside(p))


def left_out(
    folder: Path, files: Collection[str], is_no_code: Callable[[Path], bool], *, is_sent: bool
) -> list[str]:
    """Return the modules that a snapshot of a folder does not hold, and linked packages; sorted.

    Of local code also those that git ignores: trials import them from the folder as they are; and
    outside git small files that may be its settings. If the code `is_sent`, only files with names
    that no bundle can hold.
    """
    endings = frozenset({".py"})
    found = _git_paths(folder, "ls-files", "-z", "--cached", "--recurse-submodules")
    if found is None:
        found = [path.relative_to(folder) for path in _entries(folder)]
        found = [path for path in found if path.suffix == ".py" or _is_small(folder / path)]
        endings = TRACKED
    else:
        others = ("ls-files", "-z", "--others", "--exclude-standard")
        found += _git_paths(folder, *others) or []
        if not is_sent:
            found += _git_paths(folder, *others, "--ignored", "--directory") or []
    names = set[str]()
    for path in found:
        whole, name = folder / path, str(path)
        if not is_safe_name(name) and whole.is_file():
            names.add(os.fsencode(name).decode("utf-8", "backslashreplace"))
        elif is_sent or any(p in SKIPPED or p.startswith(".") for p in path.parts):
            continue
        elif path.suffix in endings and name not in files and whole.is_file():
            names |= set() if is_no_code(whole) else {name}
        elif whole.is_dir() and next(whole.glob("*.py"), None):
            names.add(f"{name}/")
    return sorted(names)


def _is_secret(path: Path) -> bool:
    """True for the name of a secret; modules may be called credentials.py or id_map.py."""
    name = path.name.lower()
    if ".git" in path.parts:  # its configuration may hold the password of a remote
        return True
    if any(fnmatch(name, pattern) for pattern in _SECRET):
        return True
    return ("credential" in name and path.suffix != ".py") or (
        name.startswith("id_") and path.suffix not in TRACKED
    )


def _is_small(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size <= MOST_FILE_BYTES
    return False


def _inside(folder: Path) -> Callable[[Path], bool]:
    """Return a test for files that no link leads out of the folder, nor to a secret in it."""
    root = folder.resolve()

    @cache
    def is_inside(parent: Path) -> bool:
        return (folder / parent).resolve().is_relative_to(root)

    def test(path: Path) -> bool:
        whole = folder / path
        with suppress(OSError, RuntimeError):  # a loop of links
            if not whole.is_symlink():
                return is_inside(path.parent)
            target = whole.resolve()
            return target.is_relative_to(root) and not _is_secret(target.relative_to(root))
        return False

    return test


def _ignored(folder: Path, names: Collection[str]) -> Callable[[Path], bool]:
    """Return a test for paths that the ignore files at the top of a folder exclude, as in git.

    Raises:
        UserError: a line of the files is not a pattern.
    """
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  # takes 0.1 s, needed only to send code

    lines: list[str] = []
    for name in names:
        found: list[str] = []
        with suppress(OSError):
            found = (folder / name).read_text("utf-8", "replace").splitlines()
        for number, line in enumerate(found, 1):
            try:
                GitIgnoreSpec.from_lines([line])
            except (ValueError, re.error):  # whose text quotes the line
                text = f"{folder / name}:{number}: not a pattern of .gitignore; correct this line"
                raise UserError(text, code="ignore-file-invalid") from None
        lines += found
    spec = GitIgnoreSpec.from_lines(lines)
    return lambda path: (  # no pattern re-includes a file of an ignored directory
        spec.match_file(path) or any(spec.match_file(f"{p}/") for p in path.parents if p.parts)
    )


def without_ignored(folder: Path, names: Collection[str]) -> list[str]:
    """Return the names, below a folder, that its .hpqignore does not exclude.

    Raises:
        UserError: a line of the file is not a pattern.
    """
    if not (folder / _IGNORE_FILE).is_file():
        return [*names]
    is_ignored = _ignored(folder, (_IGNORE_FILE,))
    return [name for name in names if not is_ignored(Path(name))]


def _files(folder: Path, endings: Collection[str]) -> Iterable[Path]:
    return (path for path in _entries(folder) if _is_code(path, endings) and not path.is_dir())


def _entries(folder: Path) -> Iterable[Path]:
    """Yield the files and linked directories of a folder."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            is_home = (entry / "code.key").exists()  # an HPQ_HOME, with copies of this code
            if not is_home and entry.name not in SKIPPED and not entry.name.startswith("."):
                yield from _entries(entry)
        else:
            yield entry


def links(folder: Path) -> Iterable[Path]:
    """Yield the links in a folder and below it, outside directories that hold no code."""
    return (path for path in _entries(folder) if path.is_symlink())


def _is_code(path: Path, endings: Collection[str]) -> bool:
    return path.suffix in endings and not path.name.startswith(".")


def _git_paths(folder: Path, *args: str) -> list[Path] | None:
    printed = git(folder, *args)
    if printed is None:
        return None
    return [Path(name) for name in os.fsdecode(printed).split("\0") if name]


def take_snapshot(
    folder: Path,
    named: Collection[str] = (),
    without: Callable[[Path], bool] | None = None,
    *,
    is_sent: bool = False,
    most: float = MOST_BYTES,
) -> Files:
    """Read the code of a folder, except the files for which `without` returns True.

    Raises:
        CodeTooLarge: the files have more than `most` bytes (names the largest).
        UserError: a file cannot be read.
    """
    sizes: dict[Path, int] = {}
    for path in files_of(folder, named, is_sent=is_sent):
        whole = folder / path
        if without is None or not without(whole):
            sizes[path] = _size(whole)
    if sum(sizes.values()) + _HEAD_BYTES * len(sizes) > most:  # before any file is read
        largest = sorted(sizes, key=lambda p: -sizes[p])[:3]
        shown = ", ".join(f"{p} ({sizes[p] // 1024:,} KiB)" for p in largest)
        files = plural(len(sizes), "file")
        raise CodeTooLarge(
            f"{folder}: the code is larger than 10 MiB: {len(sizes):,} {files}, and 1 KiB"
            f" for each file's name; the largest files are {shown}; list files that are not code in"
            " .hpqignore, one a line",
            code="code-too-large",
        )
    try:
        read = {str(path): _read(folder / path) for path in sizes}
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror}", code="file-unreadable"
        ) from None
    return {name: file for name, file in read.items() if not holds_secret(name, file[0])}


def holds_secret(name: str, content: bytes) -> bool:
    """True for a private key, or a token of `hpq invite`."""
    if _TOKEN.search(content):
        return True
    if name.endswith(".py"):
        return False  # a module that parses keys may name them
    return b"PRIVATE KEY-----" in content or (
        name.endswith(".json") and b'"private_key"' in content
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", code="file-unreadable") from None


def _read(path: Path) -> tuple[bytes, int]:
    """Return the content and the mode of a regular file; OSError for anything else."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else opening a pipe waits for a writer
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(0, "not a regular file", str(path))
        return file.read(), 0o755 if mode & 0o100 else 0o644


def manifest(files: Files) -> dict[str, str]:
    """Return {path: sha256} of a snapshot."""
    return {name: hashlib.sha256(data).hexdigest() for name, (data, _) in files.items()}


def digest_of(files: Mapping[str, str]) -> str:
    """Return the digest of a manifest, as hex."""
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()


def changed(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Return the files that differ from the manifest, sorted."""
    found = []
    for path, digest in sorted(files.items()):
        try:
            is_same = hashlib.sha256(_read(folder / path)[0]).hexdigest() == digest
        except OSError:
            is_same = False
        found += [] if is_same else [path]
    return found
