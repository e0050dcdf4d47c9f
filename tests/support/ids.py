"""Assert ids of refused commands, of errors, and of printed notices."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpq.errors import HpqError

_ID = re.compile(r"\[([a-z][a-z0-9]*(?:-[a-z0-9]+)*)\]$", re.MULTILINE)


def ids(text: str) -> list[str]:
    """Return the ids at the ends of the lines, in order."""
    return _ID.findall(text)


def refused(done: subprocess.CompletedProcess[str], code: str, *words: str, exit: int = 2) -> None:
    """Assert a command's exit code, its last id, and words of its last line."""
    assert (done.returncode, ids(done.stderr)[-1:]) == (exit, [code]), done.stderr
    line = done.stderr.rstrip().splitlines()[-1]
    assert all(word in line for word in words), (words, line)


@contextmanager
def raises(code: str, *words: str) -> Iterator[pytest.ExceptionInfo[HpqError]]:
    """Assert that an error with this id is raised, and that its text contains these words."""
    with pytest.raises(HpqError) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert all(word in str(caught.value) for word in words), (words, caught.value)
