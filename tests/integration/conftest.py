"""`hpq` as a user runs it: a subprocess against the tests' server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from hpq.view import View
from tests.constants import DEADLINE_S
from tests.desk import Desk

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(redis_url: str, tmp_path: Path) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    hpq = {"HPQ_REDIS_URL": redis_url, "HPQ_USER": "me", "HPQ_HOME": str(tmp_path / "home")}
    return {**keep, **hpq, "PYTHONUTF8": "1"}


@pytest.fixture
def hpq(environ: dict[str, str], tmp_path: Path) -> Hpq:
    """Runs hpq to its end, in the test's folder."""

    def run(*words: object, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "producer", *map(str, words)],
            env={**environ, **extra},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    return run


@pytest.fixture
def desk(
    tmp_path: Path, redis: Redis, redis_url: str, view: View, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """A user's directory, on an empty server."""
    return Desk(tmp_path, redis_url, view, monkeypatch)
