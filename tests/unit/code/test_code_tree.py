"""The copy in which an attempt runs: the code, and links to the user's other files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hpq.code.bundle import pack
from hpq.code.signing import home_id
from hpq.code.snapshot import digest_of, manifest, take_snapshot
from hpq.domain.sweep import Launch
from hpq_worker.attempt.code import CodeBundles, Place
from hpq_worker.files.workdir import remove_abandoned
from tests.support.folders import put


class Desk:
    """A user's directory whose sweep was enqueued below its root, and a worker."""

    def __init__(self, folder: Path, below: str = "scripts") -> None:
        self.home, self.user, self.out = folder / "home", folder / "user", folder / "out"
        put(self.user, "lib/net.py", "scripts/train.py", "scripts/conf.yaml", "scripts/data/x.csv")
        put(self.user, "scripts/data/labels.json", "scripts/runs/old.txt", "images/1.png")
        self.out.mkdir()
        self.files = take_snapshot(self.user, ["scripts/conf.yaml", "scripts/data/labels.json"])
        self.launch = Launch(
            program="train.py",
            code=digest_of(manifest(self.files)),
            code_dir=os.path.normpath(self.user / below),
            root=str(self.user),
            home=home_id(self.home, make=True),
            bundled=True,
        )
        self.bundles = CodeBundles(self.home, lambda _: pack(self.files))
        self.begin()

    def begin(self) -> None:
        """Begin an attempt."""
        self.tree = self.bundles.tree(self.launch)
        self.top = Path(self.tree.top)
        self.here = self.top / "scripts"  # of the program's file

    def again(self) -> None:
        """End an attempt and begin the next."""
        self.tree.collect(self.out)
        self.begin()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def text_of(folder: Path) -> dict[str, str]:
    """Return the text of each file below a folder, through no link to a directory."""
    return {
        os.path.relpath(f"{place}/{name}", folder): Path(place, name).read_text()
        for place, _, names in os.walk(folder)
        for name in names
    }


def test_words_and_pythonpath_lead_into_the_copy(desk: Desk) -> None:
    user = desk.user
    words = ("train.py", "conf.yaml", f"{user}/lib/net.py", "data/x", "--flag", "/etc/hosts")
    mapped = [desk.tree.word(word) for word in words]
    assert mapped[:3] == [
        f"{desk.top}/scripts/train.py",
        f"{desk.top}/scripts/conf.yaml",
        f"{desk.top}/lib/net.py",
    ]
    assert mapped[3:] == ["data/x", "--flag", "/etc/hosts"]
    assert desk.tree.python_path(f".:{user}:/opt/x") == [
        f"{desk.top}/scripts",
        str(desk.top),
        "/opt/x",
    ]


def test_data_is_found_beside_the_program_and_at_the_top_and_new_code_of_the_user(
    desk: Desk,
) -> None:
    put(desk.user, "lib/later.py", "images/2.png")
    desk.again()
    assert (desk.here / "data" / "x.csv").read_text() == "scripts/data/x.csv"
    assert (desk.here / "../images/2.png").read_text() == "images/2.png"
    assert (desk.top / "lib" / "later.py").read_text() == "lib/later.py"
    links = {p.relative_to(desk.top) for p in desk.top.rglob("*") if p.is_symlink()}
    assert links == {*map(Path, ("images", "lib/later.py", "scripts/data/x.csv", "scripts/runs"))}


def test_a_package_made_of_a_module_since_the_snapshot_does_not_hide_the_module(
    desk: Desk,
) -> None:
    put(desk.user, "lib/net/__init__.py", "scripts/train/x.csv")
    desk.again()
    assert not (desk.top / "lib" / "net").exists()
    assert (desk.here / "train" / "x.csv").exists(), "a directory of data beside train.py"


def test_the_next_attempt_finds_nothing_of_what_the_one_before_did_to_its_copy(desk: Desk) -> None:
    before, user = text_of(desk.tree.path), text_of(desk.user)
    files = {name: os.stat(desk.top / name).st_mtime for name in desk.files}
    net = desk.top / "lib" / "net.py"
    net.write_text("lib/NET.py")
    os.utime(net, (files["lib/net.py"],) * 2)  # as if it had not been touched
    put(desk.top, "lib/__pycache__/net.cpython-311.pyc", "lib/new.py", "scripts/.hidden/x")
    (desk.here / "train.py").unlink()
    (desk.here / "runs").rename(desk.here / "elsewhere")
    shutil.rmtree(desk.here / "data")
    put(desk.home.parent / "apart", "file")
    (desk.here / "data").symlink_to(desk.home.parent / "apart")
    desk.again()
    assert text_of(desk.tree.path) == before and text_of(desk.user) == user
    assert {name: os.stat(desk.top / name).st_mtime for name in desk.files} == files
    assert text_of(desk.out) == {
        "lib/new.py": "lib/new.py",
        "scripts/.hidden/x": "scripts/.hidden/x",
    }
    assert text_of(desk.home.parent / "apart") == {"file": "file"}


def test_a_directory_above_the_code_in_other_words_stays_in_the_copy(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    launch = replace(desk.launch, code_dir=f"{desk.user}/scripts/../..")
    tree = desk.bundles.tree(launch)
    assert Path(tree.code_dir).is_relative_to(tree.path)
    assert Path(tree.top).is_relative_to(tree.path)
    assert (Path(tree.top) / "scripts" / "train.py").is_file()


@pytest.mark.parametrize("what", ["link", "nothing", "file"])
def test_the_copy_itself_may_be_replaced_or_removed(desk: Desk, what: str) -> None:
    shutil.rmtree(desk.tree.path)
    if what == "link":
        desk.tree.path.symlink_to(desk.user)
    elif what == "file":
        desk.tree.path.write_text("mine")
    user = text_of(desk.user)
    desk.again()
    assert (desk.here / "train.py").read_text() == "scripts/train.py"
    assert not desk.tree.path.is_symlink() and text_of(desk.user) == user
    desk.bundles.close()
    assert [*(desk.home / "work").iterdir()] == []


READ_ONLY = """
import os, sys
from pathlib import Path
from hpq_worker.files.workdir import DirectoryLock, machine
machine()  # imports a codec, which the other user may not be able to read
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
work = Path(sys.argv[1])
lock = DirectoryLock(work)
(work / "a" / "b").mkdir(parents=True)
(work / "a" / "b" / "x").touch()
for folder in (work / "a" / "b", work / "a", work):
    folder.chmod(0o500)
lock.remove()
"""


def test_read_only_directories_are_removed_for_a_user_who_is_not_root(tmp_path: Path) -> None:
    shared = Path("/tmp", f"hpq-t-{os.getpid()}")  # nobody may not enter pytest's directory
    shared.mkdir()
    shared.chmod(0o777)
    try:
        path = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", READ_ONLY, str(shared / "s-00000.7.1-0a1b2c")]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        assert [*shared.iterdir()] == []
    finally:
        shutil.rmtree(shared)


def test_new_and_edited_files_go_to_the_output_and_those_behind_a_link_to_the_user(
    desk: Desk,
) -> None:
    put(desk.here, "runs/new.txt", "made/model", "beside.txt", "__pycache__/x.pyc")
    put(desk.out, "scripts/beside.txt")  # by the program itself
    (desk.here / "conf.yaml").write_text("its own settings")
    desk.tree.collect(desk.out)
    assert text_of(desk.user / "scripts" / "runs").keys() == {"old.txt", "new.txt"}
    assert text_of(desk.out) == {
        "scripts/conf.yaml": "its own settings",
        "scripts/made/model": "made/model",
        "scripts/beside.txt": "scripts/beside.txt",
        "code/scripts/beside.txt": "beside.txt",
    }
    assert (desk.user / "scripts" / "conf.yaml").read_text() == "scripts/conf.yaml"


def test_a_file_of_the_copy_is_no_hard_link_and_two_copies_share_none(desk: Desk) -> None:
    other = CodeBundles(desk.home, lambda _: pack(desk.files))
    tree = other.tree(desk.launch)
    for name in desk.files:
        found = [os.stat(f"{top}/{name}") for top in (desk.top, tree.top, desk.user)]
        assert {one.st_nlink for one in found} == {1} and len({one.st_ino for one in found}) == 3
    other.close()


@pytest.mark.parametrize(("below", "code_dir"), [
    ("scripts", "scripts"),
    ("", ""),
    ("exp/deep", "exp/deep"),  # which holds no code
    ("..", ""),  # above the root: of a repository that is too large, the program's directory
    ("../other", "other"),
])  # fmt: skip
def test_the_working_directory_may_lie_below_above_or_beside_the_code(
    tmp_path: Path, below: str, code_dir: str
) -> None:
    put(tmp_path, "user/exp/x.csv", "user/exp/deep/x.csv", "other/x.csv", "x.csv")
    desk = Desk(tmp_path, below)
    tree = desk.tree
    assert os.path.relpath(tree.code_dir, tree.path) == (code_dir or ".")
    assert (desk.here / "train.py").exists() and (desk.top / "exp" / "x.csv").exists()
    assert below == "" or Path(tree.code_dir, "x.csv").exists() or below == "scripts"
    assert Place.in_tree(desk.launch, tree).cwd == desk.launch.code_dir
    (Path(tree.code_dir) / "new").write_text("")
    desk.again()
    assert len(text_of(desk.out)) == 1


def test_elsewhere_and_in_a_pod_a_copy_holds_the_code_alone(desk: Desk) -> None:
    pod = CodeBundles(desk.home, lambda _: pack(desk.files), in_pod=True)
    tree = pod.tree(desk.launch)
    assert not tree.is_linked and text_of(tree.path).keys() == desk.files.keys()
    assert Place.in_tree(desk.launch, tree).cwd == f"{tree.path}/scripts"
    (tree.path / "scripts" / "made.txt").write_text("new")
    tree.collect(desk.out)
    assert text_of(desk.out) == {"scripts/made.txt": "new"}
    pod.close()
    assert not tree.path.exists() and desk.top.exists()


def test_a_copy_that_cannot_be_written_leaves_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.bundles.close()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hpq.code.bundle.write_file", full)
    with pytest.raises(OSError, match="No space"):
        desk.begin()
    assert [*(desk.home / "work").iterdir()] == []


def test_a_copy_whose_worker_was_killed_is_removed_and_that_of_a_living_one_stays(
    desk: Desk,
) -> None:
    assert remove_abandoned(desk.home) == [] and desk.top.exists()
    desk.tree._lock._close()  # what the kernel does for a process that was killed
    assert remove_abandoned(desk.home) == [desk.tree.path.name]
    assert [*(desk.home / "work").iterdir()] == []


def test_settings_that_were_edited_since_the_snapshot_are_named(desk: Desk) -> None:
    assert not desk.tree.edited_settings()
    put(desk.user, "scripts/train.py")
    (desk.user / "scripts" / "conf.yaml").write_text("edited")
    assert desk.tree.edited_settings() == ["scripts/conf.yaml"]
