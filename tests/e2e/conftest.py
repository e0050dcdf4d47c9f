"""Labs: a Redis server and real processes, for one test or for all tests of a file."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.lab import Lab, MakeLab
from tests.support.server import Server, find_server


@pytest.fixture(scope="session")
def server_program() -> str:
    """The server that tests run."""
    return find_server()


@contextmanager
def _opened(folder: Path, program: str, *options: str, url: str = "") -> Iterator[Lab]:
    """Open a lab in a folder, with options for its server; end its processes in the end."""
    short = Path(tempfile.mkdtemp(prefix="hpq-e-"))  # a socket's path has 108 bytes
    server = Server(short, program, *options)
    url = url.format(socket=server.socket)
    try:
        server.start(url)
        lab = Lab(folder, server, url)
        try:
            yield lab
        finally:
            lab.end()
    finally:
        server.kill()
        shutil.rmtree(short)


@pytest.fixture
def make_lab(tmp_path: Path, server_program: str) -> Iterator[MakeLab]:
    """Makes a lab with options for its server; `url` is how to come in."""
    with ExitStack() as stack:
        folders = (tmp_path / f"lab-{n}" for n in itertools.count())

        def make(*options: str, url: str = "") -> Lab:
            return stack.enter_context(_opened(next(folders), server_program, *options, url=url))

        yield make


@pytest.fixture(scope="module")
def file_lab(tmp_path_factory: pytest.TempPathFactory, server_program: str) -> Iterator[Lab]:
    """A lab for all tests of a file, which lends itself to each (`Lab.one_test`)."""
    with _opened(tmp_path_factory.mktemp("file") / "lab", server_program) as lab:
        yield lab


@pytest.fixture(scope="module")
def worker_env() -> dict[str, str]:
    """Variables of the worker of `served_lab`; a file may replace this fixture."""
    return {}


@pytest.fixture(scope="module")
def serving_lab(file_lab: Lab, worker_env: dict[str, str]) -> Lab:
    """The lab of a file, with a worker that serves all its tests."""
    file_lab.worker(**worker_env)
    return file_lab


@pytest.fixture
def served_lab(serving_lab: Lab) -> Iterator[Lab]:
    """The lab of a file, with a worker, for one test."""
    with serving_lab.one_test() as lab:
        yield lab


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    """A world with a server without password."""
    return make_lab()


@pytest.fixture
def short_lease(lab: Lab) -> float:
    """A lease that ends while a test waits, in seconds."""
    lab.env["HPQ_LEASE_S"] = "4"
    return 4.0


@pytest.fixture
def shelf(lab: Lab) -> Path:
    """A file store, and a code key, that all workers of the lab share."""
    folder = lab.folder / "store"
    lab.env |= {"HPQ_STORE": str(folder), "HPQ_CODE_KEY": "of all machines of this test"}
    return folder
