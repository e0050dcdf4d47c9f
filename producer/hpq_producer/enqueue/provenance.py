"""Record a sweep's origin: its file, the git state of its code, the directory and host.

`CodeLocation` distinguishes programs of the same name. The changes that git has not committed are
those of the snapshot's own files against the commit: no other file is in the diff, such as one that
looks like a secret, and git applies no filter to one.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

from hpq import __version__
from hpq.code.diff import UNREAD, text_diff
from hpq.code.git import checkout, git, holds_objects
from hpq.code.snapshot import MOST_BYTES, MOST_FILE_BYTES, Files, holds_secret
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Json
from hpq_producer.enqueue.prepare import PreparedSweep

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCP = re.compile(r"(?:[^@/]+@)?([^/:]+):(?!/?/)(.+)")  # git@host:path


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLocation:
    """The directory of a sweep's code; `remote` and `below` are set if git has a remote."""

    folder: str
    host: str
    owner: str
    remote: str = ""
    below: str = ""  # the directory relative to the repository's root

    def is_same_as(self, other: CodeLocation) -> bool:
        """Return True for the same directory, or the same one in two checkouts of a repository.

        /app in the containers of two users is not the same directory.
        """
        if self.remote and other.remote:
            return (self.remote, self.below) == (other.remote, other.below)
        if self.folder != other.folder:
            return False
        return not self.folder or self.host == other.host or self.owner == other.owner


def code_location(sweep: SweepView) -> CodeLocation:
    """Return the location of a sweep's code from the recorded origin."""
    origin = sweep.provenance
    git, host = origin.get("git"), origin.get("host")
    folder = sweep.launch.code_dir or str(origin.get("folder") or "")  # for code that was sent
    facts = git if isinstance(git, dict) and folder else {}
    return CodeLocation(
        folder=folder,
        host=str(host or ""),
        owner=sweep.owner,
        remote=str(facts.get("remote") or ""),
        below=str(facts.get("below") or ""),
    )


def normalize_remote(url: str) -> str:
    """Return a git remote as host/path, without protocol, user and password."""
    url = url.strip()
    if scheme := _SCHEME.match(url):
        host, slash, path = url[scheme.end() :].partition("/")
        url = re.sub(r":\d+\Z", "", host.rpartition("@")[2]).lower() + slash + path
        url = re.split(r"[?#]", url)[0]
    elif found := _SCP.fullmatch(url):
        url = f"{found[1].lower()}/{found[2]}"
    elif not url.startswith("/"):
        return ""  # a relative path identifies no repository
    return url.rstrip("/").removesuffix(".git")


MAX_DIFF_BYTES = 1024 * 1024  # of uncommitted changes; a longer diff is cut, with a warning


def collect_provenance(prepared: PreparedSweep) -> tuple[dict[str, Json], str]:
    """Collect a sweep's origin for `hpq show`, and the diff of its code; git errors are ignored."""
    file = prepared.file
    spec = prepared.spec
    code = prepared.code
    data = spec.text.encode() or file.read_bytes()
    folder = file.resolve().parent if code.files is None else code.folder
    commit = _text(git(folder, "rev-parse", "HEAD"))
    diff = uncommitted(code.root, code.files or {}).encode() if commit else b""
    record: dict[str, Json] = {
        "file": "" if spec.text else str(file.resolve()),
        "text": data.decode("utf-8", "replace"),
        "sha256": hashlib.sha256(data).hexdigest(),
        "argv": list(sys.argv[1:]),
        "host": platform.node(),
        "python": platform.python_version(),
        "hpq": __version__,
        "git": _git_state(folder, commit, diff) if commit else None,
    }
    if code.launch.bundled:
        record["folder"] = str(folder)
    return record, diff[:MAX_DIFF_BYTES].decode("utf-8", "replace")


def _git_state(folder: Path, commit: str, diff: bytes) -> Json:
    return {
        "commit": commit,
        "branch": _text(git(folder, "rev-parse", "--abbrev-ref", "HEAD")),
        "dirty": bool(diff),
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else "",
        "diff_bytes": len(diff),
        **_repository(folder),
    }


def _repository(folder: Path) -> dict[str, Json]:
    """Return the repository's remote, and the directory relative to its root."""
    # Without includes: a prepared directory could include the configuration of another repository.
    url = git(folder, "config", "--no-includes", "--get", "remote.origin.url")
    remote = normalize_remote(_text(url) or "")
    below = git(folder, "rev-parse", "--show-prefix") if remote else None
    return {"remote": remote, "below": _text(below) or ""}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace").strip()


_OF_LFS = b"version https://git-lfs.github.com/spec/"  # a commit has this instead of the content


def uncommitted(folder: Path, files: Files) -> str:
    """Return how a folder's files differ from their commits, also in submodules; "" if nowhere.

    Deleted files and links are left out, and files whose committed content looks like a secret.
    """
    root_of = cache(checkout)
    real = cache(Path.resolve)
    paths: dict[Path, dict[str, str]] = {}  # {checkout: {path in it: name}}
    for name in files:
        whole = folder / name
        root = root_of(whole.parent)
        if root is not None and not whole.is_symlink():
            path = real(whole.parent).relative_to(root) / whole.name
            paths.setdefault(root, {})[str(path)] = name
    old: Files = {}
    new: Files = {}
    for root, names in paths.items():
        objects = _objects(root, names)
        ids = {one for path, one in objects.items() if one != _id(one, files[names[path]][0])}
        contents = _contents(root, ids)
        for path, name in names.items():
            if path not in objects:
                new[name] = files[name]
            elif objects[path] in ids:
                content = contents.get(objects[path], UNREAD)
                if not content.startswith(_OF_LFS) and not holds_secret(name, content):
                    old[name] = content, files[name][1]
                    new[name] = files[name]
    return text_diff(old, new)


def _id(like: str, content: bytes) -> str:
    """Return the id of a content in git, by the hash that another id is made with."""
    kind = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return kind(b"blob %d\0" % len(content) + content).hexdigest()


def _objects(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the ids of files in a checkout's commit, by path."""
    wanted = list(paths)
    asked = "".join(f"HEAD:{path}\n" for path in wanted).encode()
    printed = git(root, "cat-file", "--batch-check=%(objectname) %(objecttype)", data=asked) or b""
    found = {}
    for path, line in zip(wanted, printed.decode("utf-8", "replace").split("\n"), strict=False):
        name, _, kind = line.partition(" ")
        if kind == "blob":  # of another path, it says that the path is missing
            found[path] = name
    return found


def _contents(root: Path, ids: Collection[str]) -> dict[str, bytes]:
    """Return contents by id: at most 1 MiB of one, and 10 MiB of all.

    None of another repository, by which a prepared directory would have its files sent.
    """
    if not (ids and holds_objects(root)):
        return {}
    asked = "".join(f"{one}\n" for one in sorted(ids)).encode()
    sizes = git(root, "cat-file", "--batch-check=%(objectname) %(objectsize)", data=asked) or b""
    wanted: list[str] = []
    left = MOST_BYTES
    for line in sizes.decode().splitlines():
        name, _, size = line.partition(" ")
        if size.isdecimal() and int(size) <= min(MOST_FILE_BYTES, left):
            wanted.append(name)
            left -= int(size)
    data = BytesIO(git(root, "cat-file", "--batch", data="\n".join(wanted).encode()) or b"")
    found: dict[str, bytes] = {}
    while head := data.readline().split():  # id, type and size
        found[head[0].decode()] = data.read(int(head[2]))
        data.readline()
    return found
