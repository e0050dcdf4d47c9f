"""A diff of two snapshots is one that git applies: it leads from the old files to the new ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpq.code import diff
from hpq.code.bundle import write
from hpq.code.diff import text_diff
from hpq.code.snapshot import Files

LONG = "".join(f"{number}\n" for number in range(60))
OLD: Files = {
    "same.py": (b"a\n", 0o644),
    "edited.py": (LONG.encode(), 0o644),
    "with a space.py": (b"a\n\nb", 0o755),
    'quo"ted.py': (b"a\n", 0o644),
    "emptied.py": (b"a", 0o644),
    "filled.py": (b"", 0o644),
    "mode.sh": (b"a\n", 0o644),
    "lines.py": (b"a\x0c\nb\r\nc\r\xe2\x80\xa8d\n", 0o644),
    "gone/gone.py": (b"a\n", 0o644),
}
NEW: Files = {
    "same.py": (b"a\n", 0o644),
    "edited.py": (LONG.replace("3\n", "three\n").encode() + b"\n", 0o644),
    "with a space.py": (b"a\n\nb\n", 0o755),
    'quo"ted.py': (b"b\n", 0o644),
    "emptied.py": (b"", 0o644),
    "filled.py": (b"a", 0o644),
    "mode.sh": (b"a\n", 0o755),
    "lines.py": (b"a\x0c\nb\r\nc\r\xe2\x80\xa8e\n", 0o644),
    "new/new.py": (b"a\nb", 0o755),
    "new/empty.py": (b"", 0o644),
}


@pytest.mark.parametrize("most_pairs", [10**9, 0])
@pytest.mark.parametrize(("old", "new"), [(OLD, NEW), (NEW, OLD)])
def test_git_applies_a_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Files, new: Files, most_pairs: int
) -> None:
    """Also one whose files were too long to be compared line by line."""
    monkeypatch.setattr(diff, "_MOST_PAIRS", most_pairs)
    text = text_diff(old, new)
    assert ("\n 20\n" in text) is bool(most_pairs), "equal lines are context"
    write(old, tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text.encode(), check=True)
    paths = [path for path in tmp_path.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert {
        str(path.relative_to(tmp_path)): (
            path.read_bytes(),
            0o755 if path.stat().st_mode & 0o100 else 0o644,
        )
        for path in paths
    } == new


def test_equal_files_have_no_diff_and_other_than_text_is_named() -> None:
    assert text_diff(OLD, dict(OLD)) == ""
    text = text_diff({"a.bin": (b"\0a", 0o644)}, {"a.bin": (b"\0b", 0o644)})
    assert text.endswith("Files a/a.bin and b/a.bin differ\n")
