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
from tests.desk import Desk

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(redis_url: str) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**keep, "HPQ_REDIS_URL": redis_url, "HPQ_USER": "me", "PYTHONUTF8": "1"}


@pytest.fixture
def hpq(environ: dict[str, str]) -> Hpq:
    """Runs hpq to its end."""

    def run(*args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "producer", *args],
            env={**environ, **extra},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    return run


@pytest.fixture
def desk(
    tmp_path: Path, redis: Redis, redis_url: str, view: View, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """A user's directory, on an empty server."""
    return Desk(tmp_path, redis_url, view, monkeypatch)
