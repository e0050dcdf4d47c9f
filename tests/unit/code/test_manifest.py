"""Which files are a program's code, and what may lie beside it without doing harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpq.code import snapshot
from hpq.yamlfile.document import read
from tests.support.folders import git
from tests.support.ids import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    return tmp_path


def make_git(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", ".")


def make_nothing(folder: Path) -> None:
    pass


PLACES = pytest.mark.parametrize("prepare", [make_nothing, make_git])


@PLACES
def test_what_is_no_regular_file_is_no_code(folder: Path, prepare: Callable[[Path], None]) -> None:
    prepare(folder)
    (folder / ".#train.py").symlink_to("me@host.1234:99")  # an editor's lock
    (folder / "gone.py").symlink_to("nowhere.py")
    os.mkfifo(folder / "pipe.py")
    assert list(snapshot.take_snapshot(folder, ["train.py"])) == ["train.py"]


def test_code_that_is_too_large_is_told_before_it_is_read(folder: Path) -> None:
    with (folder / "table.py").open("wb") as file:
        file.truncate(2**40)  # a TiB of nothing: nobody reads that to its end
    with raises("code-too-large", "table.py"):
        snapshot.take_snapshot(folder, ["train.py"], is_sent=True)
    assert list(snapshot.take_snapshot(folder)) == ["train.py"]  # data, where nobody sent it


def test_a_file_that_became_a_pipe_has_changed(folder: Path) -> None:
    files = snapshot.manifest(snapshot.take_snapshot(folder, ["train.py"]))
    (folder / "train.py").unlink()
    os.mkfifo(folder / "train.py")
    assert snapshot.changed(folder, files) == ["train.py"]


def test_a_pipe_is_no_sweep_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sweep.yaml")
    with raises("file-not-found", "sweep.yaml"):
        read(tmp_path / "sweep.yaml")
