"""The tree in which trials run: it looks like the user's directory, and each trial finds it new."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path

import pytest

from hpq.code.bundle import pack
from hpq.code.manifest import Files, digest_of, manifest, take_snapshot
from hpq.code.signing import home_id
from hpq.domain.sweep import Launch
from hpq_worker.attempt import code_tree
from hpq_worker.attempt.code import CodeBundles, Place
from hpq_worker.attempt.code_tree import CodeTree

IMAGES = [f"images/{kind}/{n}.png" for kind in ("cat", "dog") for n in range(3)]


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


class Desk:
    """A user's directory whose sweep was enqueued below its root, and a worker."""

    def __init__(self, folder: Path) -> None:
        self.home, self.user, self.out = folder / "home", folder / "user", folder / "out"
        put(self.user, "lib/net.py", "scripts/train.py", "scripts/conf.yaml", "scripts/data/x.csv")
        put(self.user, "scripts/data/labels.json", *(f"scripts/data/{name}" for name in IMAGES))
        put(self.user, "scripts/runs/old.txt", "../data/beside.csv")
        self.out.mkdir()
        self.files: Files = {
            **take_snapshot(self.user, ["scripts/conf.yaml", "scripts/data/labels.json"])
        }
        self.launch = Launch(
            program="train.py",
            code=digest_of(manifest(self.files)),
            code_dir=str(self.user / "scripts"),
            root=str(self.user),
            home=home_id(self.home, make=True),
            bundled=True,
        )
        self.bundles = CodeBundles(self.home, lambda _: pack(self.files))
        self.tree = self.bundles.tree(self.launch)
        self.top = Path(self.tree.top)
        self.here = self.top / "scripts"  # of the program's file

    def again(self) -> None:
        """End an attempt and begin the next."""
        self.tree.collect(self.out)
        assert self.bundles.tree(self.launch) is self.tree


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def text_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_words_and_pythonpath_lead_into_the_tree(desk: Desk) -> None:
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


def test_every_way_to_scan_finds_data_beside_the_program_and_above_it(desk: Desk) -> None:
    for start in (desk.here, desk.here / "data", desk.top):
        assert len([*start.rglob("*.png")]) == 6, start
        assert len(glob.glob(f"{start}/**/*.png", recursive=True)) == 6, start
        walked = [name for _, _, names in os.walk(start) for name in names]
        assert sum(name.endswith(".png") for name in walked) == 6, start
    assert (desk.here / "../../data/beside.csv").read_text() == "../data/beside.csv"


def test_a_program_may_remove_and_rename_directories_and_the_users_stay_as_they_are(
    desk: Desk,
) -> None:
    before = text_of(desk.user)
    shutil.rmtree(desk.here / "runs")
    (desk.here / "runs").mkdir()
    (desk.here / "data" / "images").rename(desk.here / "pictures")
    shutil.rmtree(desk.top / "lib")
    (desk.here / "train.py").unlink()
    desk.again()
    assert text_of(desk.user) == before
    assert len([*desk.top.rglob("*.png")]) == 6 and not (desk.here / "pictures").exists()
    assert (desk.here / "runs" / "old.txt").exists() and (desk.top / "lib" / "net.py").exists()
    assert (desk.here / "train.py").read_text() == "scripts/train.py"


def test_new_files_go_to_the_users_directory_of_that_name_and_others_to_the_output(
    desk: Desk,
) -> None:
    put(desk.here, "runs/new.txt", "runs/1/events", "made/model", "beside.txt", "data/images/z.png")
    put(desk.top.parent, "above.txt")
    (desk.here / "data" / "x.csv").write_text("edited through the link")
    desk.again()
    user, made = text_of(desk.user / "scripts"), text_of(desk.out)
    assert {"runs/new.txt", "runs/1/events", "data/images/z.png"} <= user.keys()
    assert user["data/x.csv"] == "edited through the link"
    assert (desk.user.parent / "above.txt").exists()
    assert made == {"scripts/made/model": "made/model", "scripts/beside.txt": "beside.txt"}
    assert not (desk.here / "beside.txt").exists() and (desk.here / "runs" / "new.txt").is_symlink()


def test_no_file_of_the_user_is_replaced(desk: Desk) -> None:
    shutil.rmtree(desk.here / "runs")
    put(desk.here, "runs/new.txt")
    (desk.here / "runs" / "old.txt").write_text("another")
    put(desk.user, "scripts/runs/new.txt")  # by another trial, meanwhile
    desk.again()
    assert (desk.user / "scripts" / "runs" / "old.txt").read_text() == "scripts/runs/old.txt"
    assert text_of(desk.out) == {
        "scripts/runs/old.txt": "another",
        "scripts/runs/new.txt": "runs/new.txt",
    }


def test_what_a_program_does_to_its_code_is_undone_before_the_next_trial(desk: Desk) -> None:
    path, before = desk.top / "lib" / "net.py", os.stat(desk.top / "lib" / "net.py")
    path.write_text("lib/NET.py")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if it had not been touched
    (desk.here / "conf.yaml").write_text("its own settings")
    desk.again()
    assert path.read_text() == "lib/net.py" and os.stat(path).st_mtime == before.st_mtime
    assert (desk.here / "conf.yaml").read_text() == "scripts/conf.yaml"
    assert text_of(desk.out) == {"scripts/conf.yaml": "its own settings"}


def test_a_tree_that_cannot_be_restored_is_made_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may make directories read-only; a root user's tests cannot show that."""
    old = desk.tree.path
    (desk.here / "train.py").unlink()

    def refuse(self: CodeTree, folder: str, users: object) -> None:
        raise PermissionError(folder)

    with monkeypatch.context() as patched:
        patched.setattr(CodeTree, "_sync", refuse)
        with pytest.raises(PermissionError):
            desk.bundles.tree(desk.launch)
    tree = desk.bundles.tree(desk.launch)
    assert tree.path != old and not old.exists()
    assert Path(tree.top, "scripts", "train.py").exists()


def test_files_that_the_user_adds_or_removes_show_in_the_next_trial(desk: Desk) -> None:
    put(desk.user, "scripts/data/images/cow/1.png", "scripts/new.csv")
    shutil.rmtree(desk.user / "scripts" / "data" / "images" / "cat")
    put(desk.user, "lib/later.py")
    desk.again()
    assert len([*desk.here.rglob("*.png")]) == 4 and (desk.here / "new.csv").exists()


def test_a_trial_that_changes_nothing_costs_the_next_one_no_copy(desk: Desk) -> None:
    def stamps() -> dict[str, tuple[int, int]]:
        found = [Path(top, n) for top, _, names in os.walk(desk.tree.path) for n in names]
        return {str(path): (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in found}

    before = stamps()
    desk.again()
    assert stamps() == before


def test_a_directory_beyond_the_bound_is_one_link_that_can_be_scanned_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_tree, "_MOST_LINKS", 4)
    desk = Desk(tmp_path)
    images = desk.here / "data" / "images"
    assert images.is_symlink() and not (desk.here / "runs").is_symlink()
    assert len([*images.rglob("*.png")]) == 6
    desk.again()
    assert images.is_symlink()


def test_elsewhere_a_tree_holds_the_code_alone(desk: Desk) -> None:
    pod = CodeBundles(desk.home, lambda _: pack(desk.files), in_pod=True)
    tree = pod.tree(desk.launch)
    assert not tree.is_linked and text_of(tree.path).keys() == desk.files.keys()
    assert Place.in_tree(desk.launch, tree).cwd == f"{tree.path}/scripts"
    (tree.path / "scripts" / "made.txt").write_text("new")
    tree.collect(desk.out)
    assert text_of(desk.out) == {"scripts/made.txt": "new"}
    pod.close()
    assert not tree.path.exists() and desk.top.exists()


def test_settings_that_were_edited_since_the_snapshot_are_named(desk: Desk) -> None:
    assert not desk.tree.edited_settings()
    put(desk.user, "scripts/train.py")
    (desk.user / "scripts" / "conf.yaml").write_text("edited")
    assert desk.tree.edited_settings() == ["scripts/conf.yaml"]
