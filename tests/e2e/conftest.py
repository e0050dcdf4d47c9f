"""Labs: each test has a Redis server and real processes of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import Lab, MakeLab
from tests.support.server import Server, find_server


@pytest.fixture(scope="session")
def server_program() -> str:
    """The server that tests run."""
    return find_server()


@pytest.fixture
def make_lab(tmp_path: Path, server_program: str) -> Iterator[MakeLab]:
    """Makes a lab with options for its server; `url` is how to come in."""
    made: list[tuple[Lab, Path]] = []

    def make(*options: str, url: str = "") -> Lab:
        short = Path(tempfile.mkdtemp(prefix="hpq-e-"))  # a socket's path has 108 bytes
        server = Server(short, server_program, *options)
        url = url.format(socket=server.socket)
        server.start(url)
        lab = Lab(tmp_path / f"lab-{len(made)}", server, url)
        made.append((lab, short))
        return lab

    yield make
    for lab, short in made:
        try:
            lab.end()
        finally:
            lab.server.kill()
            shutil.rmtree(short)


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
