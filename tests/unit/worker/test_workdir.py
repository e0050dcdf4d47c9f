"""Work directories: what belongs to a living worker stays, what its dead owner left goes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hpq.domain.trial import Claim, TrialId
from hpq_worker.files import workdir
from hpq_worker.files.workdir import AttemptPaths, DirectoryLock, remove_abandoned

CLAIM = Claim(trial=TrialId(sweep="s-00000", number=7), attempt=1, nonce="0a1b2c")


@pytest.fixture
def work(tmp_path) -> Path:
    """The work directory of an attempt, with something in it."""
    folder = tmp_path / "work" / "s-00000.7.1-0a1b2c"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "large").write_text("x")
    return folder


def die(lock: DirectoryLock) -> None:
    """What the kernel does for a process that was killed."""
    lock._close()


def test_what_has_a_living_owner_stays_and_goes_when_that_is_dead(work, tmp_path) -> None:
    short = tmp_path / "hpq-abc"
    short.mkdir()
    (short / "report").touch()
    lock = DirectoryLock(work)
    lock.record_socket_dir(str(short))
    assert remove_abandoned(tmp_path) == [] and (work / "checkpoint" / "large").exists()
    die(lock)
    assert remove_abandoned(tmp_path) == [work.name]
    assert not list((tmp_path / "work").iterdir()) and not short.exists()
    assert remove_abandoned(tmp_path) == []


def test_a_dead_owner_is_named_though_its_runner_still_writes(work, tmp_path, monkeypatch) -> None:
    """Else its trial would wait for the end of its lease."""
    die(DirectoryLock(work))
    with monkeypatch.context() as patch:
        patch.setattr(workdir, "_remove_folder", lambda folder: None)
        assert remove_abandoned(tmp_path) == [work.name]
    assert work.exists()
    assert remove_abandoned(tmp_path) == [work.name] and not work.exists()


def test_what_was_given_up_with_something_in_it_stays(work, tmp_path) -> None:
    DirectoryLock(work).release()
    assert remove_abandoned(tmp_path) == [] and work.exists()


@pytest.mark.parametrize("name", ["hpq-full", "mine", "hpq-file"])
def test_a_note_removes_nothing_that_is_not_the_directory_of_a_socket(work, tmp_path, name) -> None:
    target = tmp_path / name
    if name == "hpq-file":
        target.write_text("x")
    else:
        target.mkdir()
        (target / "mine").touch()
    lock = DirectoryLock(work)
    lock.record_socket_dir(str(target))
    die(lock)
    remove_abandoned(tmp_path)
    assert not work.exists()
    assert target.is_file() or [p.name for p in target.iterdir()] == ["mine"]


def test_a_lock_that_is_a_link_or_has_another_name_leads_nowhere(work, tmp_path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "work" / "s-00000.7.1-0a1b2c.lock").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "notes.lock").touch()
    (tmp_path / "work" / "notes").mkdir()
    assert remove_abandoned(tmp_path) == []
    assert work.exists() and (tmp_path / "work" / "notes").exists()


def test_who_meets_a_living_owner_gives_up_after_a_while(work, monkeypatch) -> None:
    monkeypatch.setattr(workdir, "_PATIENCE_S", 0.1)
    owner = DirectoryLock(work)
    with pytest.raises(OSError, match=re.escape(str(work))):
        DirectoryLock(work)
    owner.release()
    DirectoryLock(work).release()


@pytest.mark.parametrize(("note", "goes"), [
    ("", False),  # just made, by whom nobody can tell
    ("/tmp/hpq-gone\n{host}\nanother boot", True),  # of this machine before it was started again
    ("/tmp/hpq-gone\nanother-pod\n{boot}", True),  # of another container on this kernel
    ("/tmp/hpq-gone\nanother\nmachine", False),
])  # fmt: skip
def test_what_another_machine_has_locked_stays_where_its_locks_do_not_show(
    work, tmp_path, note, goes
) -> None:
    """Files: HPQ_HOME on a shared file system whose locks are each machine's own."""
    host, boot = workdir.machine()
    lock = tmp_path / "work" / f"{work.name}.lock"
    lock.write_text(note.format(host=host, boot=boot))
    assert remove_abandoned(tmp_path) == ([work.name] if goes else [])
    assert work.exists() is not goes


def test_a_lock_says_whose_it_is_from_the_beginning(work, tmp_path) -> None:
    lock = DirectoryLock(work)
    file = tmp_path / "work" / f"{work.name}.lock"
    assert file.read_text().split("\n") == ["", *workdir.machine()]
    lock.record_socket_dir("/tmp/hpq-x")
    assert file.read_text().split("\n") == ["/tmp/hpq-x", *workdir.machine()]


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_trainer_made_at_its_first_use_is_removed_with_its_attempt(tmp_path, dies) -> None:
    paths = AttemptPaths.create(tmp_path, CLAIM, make=False)
    assert [path.suffix for path in (tmp_path / "work").iterdir()] == [".lock"]
    paths.checkpoint.mkdir(parents=True)
    assert not paths.removed()
    if dies:
        die(paths.lock)
        remove_abandoned(tmp_path)
    else:
        paths.remove(keep_out=True)
    assert not list((tmp_path / "work").iterdir())
    assert paths.removed(), "by another process, if the attempt still ran"


def test_a_volume_is_overfilled_by_any_files_on_it_beyond_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "hpq"
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda self: self == tmp_path)
    (tmp_path / "elsewhere" / "deep" / "temporary").write_bytes(bytes(1 << 20))
    (tmp_path / "a link").symlink_to("/")
    work = workdir.work_folder(home, CLAIM)
    assert workdir.overfilled(home, work, 8 << 20) == ""
    assert str(tmp_path) in workdir.overfilled(home, work, 1 << 20)
    assert workdir.overfilled(home, work, 0) == ""
    monkeypatch.setattr(workdir, "_COUNT_S", 0.0)
    assert workdir.overfilled(home, work, 1 << 20) == ""


def test_of_two_attempts_in_a_pod_only_the_one_with_more_files_overfills_its_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda self: self == tmp_path)
    small, large = (
        AttemptPaths.create(tmp_path, replace(CLAIM, nonce=nonce)) for nonce in ("aaaaaa", "bbbbbb")
    )
    (small.out / "model").write_bytes(bytes(1 << 10))
    (large.out / "model").write_bytes(bytes(2 << 20))
    assert workdir.overfilled(tmp_path, small.work, 1 << 20) == ""
    assert workdir.overfilled(tmp_path, large.work, 1 << 20) != ""
    large.remove(keep_out=False)
    small.remove(keep_out=False)
