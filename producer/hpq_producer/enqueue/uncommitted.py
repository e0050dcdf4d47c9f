"""The changes of a snapshot that git has not committed.

The snapshot's own files are compared with those of the commit: no other file is in the diff, such
as one that looks like a secret, and git applies no filter to one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from functools import cache
from io import BytesIO
from pathlib import Path

from hpq.code.diff import UNREAD, text_diff
from hpq.code.git import checkout, git, holds_objects
from hpq.code.manifest import MOST_BYTES, MOST_FILE_BYTES, Files, holds_secret

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
