"""Templates of pages are compiled once for all processes of an installation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed")

from jinja2 import Environment

from hpq_views.page import render


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of the templates that were compiled, of processes that may keep them."""
    names: list[str] = []
    compile_one = Environment.compile

    def noted(self: Environment, source: str, name: str, *args: object) -> object:
        names.append(name)
        return compile_one(self, source, name, *args)

    monkeypatch.setattr(Environment, "compile", noted)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield names
    render._environment.cache_clear()


def new_process() -> None:
    render._environment.cache_clear()
    assert render.part("listing", ["a"], [], "no row", False, "")


def test_the_second_process_compiles_no_template(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: list[str]
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    new_process()
    assert compiled == ["parts.html"]
    new_process()
    assert compiled == ["parts.html"]
    (kept,) = tmp_path.rglob("*.jinja.*")
    kept.write_bytes(b"")  # of a process that died, or of another version
    new_process()
    assert compiled == ["parts.html"] * 2


def test_a_page_needs_no_place_for_compiled_templates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    new_process()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    new_process()
    assert compiled == ["parts.html"] * 2
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]
