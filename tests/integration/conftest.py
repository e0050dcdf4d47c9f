"""Run `hpq` as a user does, on the tests' server."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis, ResponseError

from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from tests.support.commands import run_hpq
from tests.support.constants import DEADLINE_S
from tests.support.desk import Desk, run_here
from tests.support.store_calls import Shelf

Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(redis_url: str, tmp_path: Path) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    hpq = {"HPQ_REDIS_URL": redis_url, "HPQ_USER": "me", "HPQ_HOME": str(tmp_path / "home")}
    return {**keep, **hpq, "PYTHONUTF8": "1"}


@pytest.fixture
def hpq(environ: dict[str, str], tmp_path: Path, redis: Redis) -> Hpq:
    """Return a function that runs hpq in the test's folder, in this process for speed."""
    return lambda *words, **extra: run_here(words, tmp_path, {**environ, **extra})


@pytest.fixture
def hpq_process(environ: dict[str, str], tmp_path: Path, redis: Redis) -> Hpq:
    """Return a function that runs hpq in a new process."""

    def run(*words: object, **extra: str) -> subprocess.CompletedProcess[str]:
        return run_hpq(words, tmp_path, {**environ, **extra}, DEADLINE_S)

    return run


@pytest.fixture
def desk(
    tmp_path: Path,
    redis: Redis,
    redis_url: str,
    reader: StoreReader,
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    """Return a user's directory, on an empty server."""
    return Desk(tmp_path, redis_url, reader, monkeypatch)


@pytest.fixture
def shelf(tmp_path: Path, redis: Redis, keys: Keys) -> Shelf:
    """Return a file store in the test's folder."""
    return Shelf(tmp_path / "store", redis, keys)


@pytest.fixture
def port(redis_url: str) -> Iterator[int]:
    """A port of the server, as the local end of a connection is one."""
    with Redis.from_url(redis_url) as admin:
        found = _listen(admin)
        yield found
        admin.config_set("port", 0)


def _listen(admin: Redis) -> int:
    """Let the server listen on a free port; again if another process binds that port first."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            found = int(free.getsockname()[1])
        with suppress(ResponseError):
            admin.config_set("port", found)
            return found
