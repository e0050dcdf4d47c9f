"""Work directories: what belongs to a living worker stays, what its dead owner left goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.ownership import Owned, clear_abandoned


@pytest.fixture
def work(tmp_path) -> Path:
    """The work directory of an attempt, with something in it."""
    folder = tmp_path / "work" / "s-00000.7.1"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "large").write_text("x")
    return folder


def die(owned: Owned) -> None:
    """What the kernel does for a process that was killed."""
    owned._close()


def test_what_has_a_living_owner_stays_and_goes_when_that_is_dead(work, tmp_path) -> None:
    short = tmp_path / "hpq-abc"
    short.mkdir()
    (short / "report").touch()
    owned = Owned(work)
    owned.note(str(short))
    assert clear_abandoned(tmp_path) == [] and (work / "checkpoint" / "large").exists()
    die(owned)
    assert clear_abandoned(tmp_path) == [work.name]
    assert not list((tmp_path / "work").iterdir()) and not short.exists()
    assert clear_abandoned(tmp_path) == []


def test_what_was_given_up_with_something_in_it_stays(work, tmp_path) -> None:
    Owned(work).release()
    assert clear_abandoned(tmp_path) == [] and work.exists()


@pytest.mark.parametrize("name", ["hpq-full", "mine", "hpq-file"])
def test_a_note_removes_nothing_that_is_not_the_directory_of_a_socket(work, tmp_path, name) -> None:
    target = tmp_path / name
    if name == "hpq-file":
        target.write_text("x")
    else:
        target.mkdir()
        (target / "mine").touch()
    owned = Owned(work)
    owned.note(str(target))
    die(owned)
    clear_abandoned(tmp_path)
    assert not work.exists()
    assert target.is_file() or [p.name for p in target.iterdir()] == ["mine"]


def test_a_lock_that_is_a_link_or_has_another_name_leads_nowhere(work, tmp_path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "work" / "s-00000.7.1.lock").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "notes.lock").touch()
    (tmp_path / "work" / "notes").mkdir()
    assert clear_abandoned(tmp_path) == []
    assert work.exists() and (tmp_path / "work" / "notes").exists()
