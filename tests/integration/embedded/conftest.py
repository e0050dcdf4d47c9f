"""A home of its own for each test of the private server."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.private_server import Home


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home that is not there yet, whose path has a space in it; nothing of it may outlive us."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    folder = Path(tempfile.mkdtemp(prefix="hpq home-"))
    made = Home(folder / ".hpq")
    try:
        yield made
        made.close()
    finally:
        shutil.rmtree(folder)
        with contextlib.suppress(FileNotFoundError):
            made.place.socket().parent.rmdir()  # left where the home was removed under the server
