"""The differences of two snapshots as text, in git's format.

Made here and not by `git diff`, which runs the filters that a checkout's configuration names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from hpq.code.snapshot import Files

UNREAD = b"\0"  # for content that is too large to be read: the diff says that the file differs
File = tuple[bytes, int]  # content and mode
_MOST_PAIRS = 400_000_000  # of lines, in all files: difflib may compare each pair; then no more
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def text_diff(old: Files, new: Files) -> str:
    """Return the differences of two snapshots, by file; "" if there are none.

    Source of the format: git-diff(1), without the line `index`.
    """
    found: list[str] = []
    left = _MOST_PAIRS
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        a, b = _quoted(f"a/{name}"), _quoted(f"b/{name}")
        found += [f"diff --git {a} {b}\n", _modes(before, after)]
        content = before[0] if before else b""
        changed = after[0] if after else b""
        if b"\0" in content or b"\0" in changed:
            found.append(f"Files {a} and {b} differ\n")
        elif content != changed:
            lines, others = _lines(content), _lines(changed)
            left -= len(lines) * len(others)
            head = (a if before else "/dev/null", b if after else "/dev/null")
            made = unified_diff(lines, others, *head) if left >= 0 else _whole(lines, others, *head)
            found += (line if line.endswith("\n") else line + _NO_NEWLINE for line in made)
    return "".join(found)


def _modes(old: File | None, new: File | None) -> str:
    """Return the lines of a file's mode; "" if the mode did not change."""
    if old and new:
        return "" if old[1] == new[1] else f"old mode 100{old[1]:o}\nnew mode 100{new[1]:o}\n"
    if old:
        return f"deleted file mode 100{old[1]:o}\n"
    return f"new file mode 100{new[1]:o}\n" if new else ""


def _quoted(path: str) -> str:
    """Return a path as git writes it; the names of a snapshot have no control characters."""
    return '"{}"'.format(path.replace('"', '\\"')) if '"' in path else path


def _lines(content: bytes) -> list[str]:
    """Return the lines of a text with their ends; only the last one may have none."""
    *lines, last = content.decode("utf-8", "replace").split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _whole(old: Sequence[str], new: Sequence[str], before: str, after: str) -> Iterator[str]:
    """Yield the diff that removes all lines and adds all others."""
    counts = [f"{min(1, len(lines))},{len(lines)}" for lines in (old, new)]
    yield f"--- {before}\n"
    yield f"+++ {after}\n"
    yield f"@@ -{counts[0]} +{counts[1]} @@\n"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)
