"""The store of files: its id, names that stay inside, copies that are whole or not there."""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

from hpq.filestore.base import UnreadableFile, copy_in, copy_out, is_safe_name
from hpq.filestore.stores import open_files, regular

PLACES = ["{tmp}/store", "file://{tmp}/store", "memory://{random}/store"]


@pytest.fixture(params=PLACES)
def place(request, tmp_path) -> str:
    if "://" in request.param:
        pytest.importorskip("fsspec")
    return request.param.format(tmp=tmp_path, random=secrets.token_hex(4))


def local(tmp_path: Path) -> Path:
    folder = tmp_path / "local"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "b").write_bytes(os.urandom(3_000_000))
    (folder / "c").write_bytes(b"")
    return folder


def test_files_come_back_as_they_went_in_and_go_when_they_are_removed(place, tmp_path) -> None:
    files, folder = open_files(place), local(tmp_path)
    assert copy_in(folder, ["a/b", "c"], files, "p/s/1/1/checkpoint-1", lambda: True)
    assert files.names("p/s/1") == ["1/checkpoint-1/a/b", "1/checkpoint-1/c"]
    for name in ("a/b", "c"):
        copy_out(files, f"p/s/1/1/checkpoint-1/{name}", tmp_path / "back" / name)
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    files.remove("p/s/1")
    assert files.names("p/s") == []
    files.remove("p/s/1")  # once more does no harm
    with pytest.raises(FileNotFoundError):
        copy_out(files, "p/s/1/1/checkpoint-1/c", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_folders_are_listed_one_level_deep_and_no_empty_one_stays(place, tmp_path) -> None:
    files = open_files(place)
    for name in ("p/s/1/1-a/artifacts/f", "p/s/12/1-b/artifacts/f", "p/file"):
        with files.write(name) as file:
            file.write(b"x")
    assert files.folders("p") == ["s"] and files.folders("p/s") == ["1", "12"]
    assert files.folders("p/none") == []
    files.remove("p/s/1/1-a/artifacts")
    assert files.folders("p/s") == ["12"]
    files.remove("p/s/12/1-b/artifacts")
    assert files.folders("p") == [] and files.names("p") == ["file"]


def test_a_folder_with_files_stays_even_if_the_file_system_would_remove_it(monkeypatch) -> None:
    """Files: fsspec's `rmdir` of hdfs:// removes a folder with all that is in it."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    rmdir = memory.rmdir

    def remove_with_files(self, path: str) -> None:
        for name in self.find(path):
            self.rm_file(name)
        rmdir(self, path)

    monkeypatch.setattr(memory, "rmdir", remove_with_files)
    files = open_files(f"memory://{secrets.token_hex(4)}/store")
    for name in ("p/s/1/1-a/artifacts/f", "p/s/1/1-a/checkpoint-1/f", "p/other/1/1-a/artifacts/f"):
        with files.write(name) as file:
            file.write(b"x")
    files.remove("p/s/1/1-a/checkpoint-1")
    assert files.names("p") == ["other/1/1-a/artifacts/f", "s/1/1-a/artifacts/f"]
    files.remove("p/s/1/1-a/artifacts")
    assert files.folders("p") == ["other"] and files.names("p") == ["other/1/1-a/artifacts/f"]


def test_a_copy_succeeds_while_another_process_removes_empty_folders(tmp_path) -> None:
    """Files: one trial's files are removed at the moment another trial's are written."""
    files, folder = open_files(str(tmp_path / "store")), local(tmp_path)
    is_over = Event()

    def remove() -> None:
        while not is_over.is_set():
            files.remove("p/s/1/1-a/artifacts")
            files.remove("p/s/2/1-b/other")

    with ThreadPoolExecutor(1) as pool:
        removing = pool.submit(remove)
        try:
            for _ in range(300):
                assert copy_in(folder, ["c"], files, "p/s/2/1-b/artifacts", lambda: True)
                files.remove("p/s/2/1-b/artifacts")
        finally:
            is_over.set()
        removing.result()


def test_a_store_keeps_its_id_and_another_has_another(place, tmp_path) -> None:
    assert open_files(place).id == open_files(place).id
    assert open_files(place).id != open_files(str(tmp_path / "other")).id


def test_all_who_make_a_store_in_the_same_moment_take_the_same_id(tmp_path) -> None:
    start = Barrier(8)

    def make(round_: int) -> str:
        start.wait()
        return open_files(str(tmp_path / str(round_ // 8))).id

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(make, range(8 * 40)))
    assert [len(set(ids[i : i + 8])) for i in range(0, len(ids), 8)] == [1] * 40
    assert {p.name for p in tmp_path.glob("*/*")} == {".hpq-store"}


def test_a_store_whose_id_is_no_id_is_named(tmp_path) -> None:
    (tmp_path / ".hpq-store").write_text("<html>not found</html>")
    with pytest.raises(OSError, match=r"\.hpq-store"):
        open_files(str(tmp_path))


def test_a_copy_that_is_given_up_or_fails_leaves_nothing(place, tmp_path) -> None:
    files, folder = open_files(place), local(tmp_path)
    asked = iter([True, True, False])
    assert not copy_in(folder, ["c", "a/b"], files, "p/x", lambda: next(asked))
    assert files.names("p") == []
    with pytest.raises(FileNotFoundError):
        copy_in(folder, ["c", "no-such"], files, "p/y", lambda: True)
    assert files.names("p") == []


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="Linux")
def test_a_copy_that_the_kernel_gives_up_half_way_is_read_and_written(
    tmp_path, monkeypatch
) -> None:
    files, folder, copy = open_files(str(tmp_path / "store")), local(tmp_path), os.copy_file_range
    calls = iter([copy])

    def once(source: int, target: int, count: int) -> int:
        for call in calls:
            return call(source, target, count)
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("os.copy_file_range", once)
    assert copy_in(folder, ["a/b"], files, "p/x", lambda: True)
    assert (tmp_path / "store/p/x/a/b").read_bytes() == (folder / "a" / "b").read_bytes()


BAD = ["", ".", "..", "/", "/a", "a/", "a//b", "a/../b", "../a", "a\\b", "a\x1b[2J", "x" * 513]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_could_lead_elsewhere_touches_nothing(place, tmp_path, name) -> None:
    assert not is_safe_name(name)
    files = open_files(place)
    for act in (files.read, files.write, files.folders, files.names, files.remove):
        with pytest.raises(OSError, match="name"):
            act(name)


def test_links_are_not_followed(tmp_path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert [name for name, _ in regular(tmp_path)] == ["real"]


def test_what_was_copied_is_on_the_disk_before_anything_points_to_it(tmp_path, monkeypatch) -> None:
    files, folder, synced = open_files(str(tmp_path / "store")), local(tmp_path), []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    assert copy_in(folder, ["a/b", "c"], files, "p/x", lambda: True)
    assert synced == [3_000_000, 0]


def test_a_directory_gives_files_of_its_own_only(tmp_path) -> None:
    """Whoever can write a store must not read, by a link in it, what its readers can."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "f").write_text("private")
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")  # the store itself may be one
    files = open_files(str(tmp_path / "link"))
    with files.write("p/s/f") as file:
        file.write(b"own")
    (store := tmp_path / "store" / "p").joinpath("folder").symlink_to(tmp_path / "private")
    (store / "s" / "file").symlink_to(tmp_path / "private" / "f")
    os.mkfifo(store / "s" / "pipe")
    with files.read("p/s/f") as file:
        assert file.read() == b"own"
    for name in ("p/folder/f", "p/s/file", "p/s/pipe", "p/s"):
        with pytest.raises(UnreadableFile):
            copy_out(files, name, tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        files.read("p/none/f")


def test_a_file_is_copied_out_through_no_link_in_a_folder_of_others(tmp_path) -> None:
    files = open_files(str(tmp_path / "store"))
    with files.write("p/f") as file:
        file.write(b"theirs")
    (mine := tmp_path / "mine").write_text("mine")
    for name in (f".out.{os.getpid()}.tmp", "out"):
        (tmp_path / name).symlink_to(mine)
    assert copy_out(files, "p/f", tmp_path / "out")
    assert mine.read_text() == "mine" and (tmp_path / "out").read_text() == "theirs"


@pytest.fixture
def home(tmp_path) -> Path:
    """A directory of another user, beside the store."""
    folder = tmp_path / "home" / "ana" / "thesis"
    folder.mkdir(parents=True)
    (folder / "chapter").write_text("ours")
    return folder.parent


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_no_call_leaves_the_store_by_a_link_in_it(tmp_path, home, scheme) -> None:
    """A user of a store must not delete or write, by a link in it, what its other users can."""
    files = open_files(f"{scheme}{tmp_path}/store")
    with files.write("q/s/f") as file:
        file.write(b"own")
    (store := tmp_path / "store").joinpath("p").symlink_to(home.parent)  # a prefix
    (store / "q" / "ana").symlink_to(home)  # a sweep
    (store / "q" / "s" / "deep").symlink_to(home / "thesis")
    (store / "q" / "s" / "chapter").symlink_to(home / "thesis" / "chapter")
    (store / "q" / "s" / "new").symlink_to(home / "new")
    for folder in ("p/ana/thesis", "p/ana", "q/ana/thesis", "q/s/deep/none", "q/s/f/none"):
        for act in (files.remove, files.folders, files.names, files.read):
            with pytest.raises(OSError, match=r"link or a file"):
                act(folder)
        with pytest.raises(OSError, match=r"link or a file"):
            files.write(f"{folder}/new")
    assert files.folders("q") == ["s"] and files.names("q") == ["s/f"]
    for name in ("q/s/chapter", "q/s/new"):  # the link is replaced, not what it names
        with files.write(name) as file:
            file.write(b"theirs")
    for name in ("p", "q/ana", "q/s/deep", "q"):
        files.remove(name)
    assert [path.name for path in store.iterdir()] == [".hpq-store"]
    assert [path.relative_to(home).as_posix() for path in sorted(home.rglob("*"))] == [
        "thesis",
        "thesis/chapter",
    ]
    assert (home / "thesis" / "chapter").read_text() == "ours"


def test_a_folder_that_becomes_a_link_while_it_is_removed_keeps_what_the_link_names(
    tmp_path, home, monkeypatch
) -> None:
    files, real = open_files(str(tmp_path / "store")), os.rmdir
    with files.write("p/s/1/f") as file:
        file.write(b"own")

    def swap(path: str, *, dir_fd: int | None = None) -> None:
        """The writer of the store is quicker than the removal of the next folder."""
        (tmp_path / "store" / "p").rename(tmp_path / "was")
        (tmp_path / "store" / "p").symlink_to(home)
        monkeypatch.setattr("os.rmdir", real)
        real(path, dir_fd=dir_fd)

    (home / "s").mkdir()
    monkeypatch.setattr("os.rmdir", swap)
    files.remove("p/s/1")
    assert (home / "s").is_dir() and list(home.glob("*/*")) == [home / "thesis" / "chapter"]


def test_the_id_of_a_store_is_read_from_a_file_of_its_own(tmp_path, home) -> None:
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / ".hpq-store")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / ".hpq-store").symlink_to(home / "thesis" / "chapter")
    for name in ("pipe", "link"):
        for creates in (True, False):
            with pytest.raises(OSError):
                open_files(str(tmp_path / name), creates=creates)


def test_folders_in_each_other_without_end_are_an_error_and_stop_no_listing(tmp_path) -> None:
    files = open_files(str(tmp_path / "store"))
    with files.write("p/s/1/f") as file:
        file.write(b"own")
    here = os.open(tmp_path / "store" / "p" / "s", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    try:
        assert files.names("p/s") == ["1/f"]
        with pytest.raises(OSError):
            files.remove("p/s/d")
        files.remove("p/s/1")
    finally:  # pytest would recurse
        subprocess.run(["rm", "-r", str(tmp_path / "store")], check=True)
