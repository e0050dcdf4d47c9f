"""The thread that removes unneeded files: what it does first, and what waits for a store."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from hpq.domain.trial import TrialId
from hpq.settings import Settings, read
from hpq_worker.files.garbage import GarbageCollector
from hpq_worker.files.workdir import DirectoryLock

PATIENCE_S = 30.0
FIRST, SECOND = TrialId(sweep="demo-00000", number=1), TrialId(sweep="demo-00000", number=2)


@pytest.fixture
def settings(tmp_path) -> Settings:
    store = str(tmp_path / "store")
    url = "unix:///x"
    return read({"HPQ_HOME": str(tmp_path), "HPQ_REDIS_URL": url, "HPQ_STORE": store, "USER": "me"})


class Store:
    """A worker's handle of its store, which may be away."""

    def __init__(self) -> None:
        self.is_away, self.asked = False, Event()

    def open(self) -> Store:
        self.asked.set()
        if self.is_away:
            raise OSError("the store is away")
        return self


class Garbage:
    """Records what is removed, in order; two sweeps are in the store, and one look is due."""

    def __init__(self) -> None:
        self.removed: list[object] = []
        self.is_done = Event()
        self.on_first: Callable[[], None] = lambda: None

    def is_due(self, _: Any) -> bool:
        return "a" not in self.removed

    def sweeps_in(self, _: Any) -> list[str]:
        return ["a", "b"]

    def remove_of_sweep(self, _: Any, sid: str) -> None:
        self.removed.append(sid)
        if sid == "a":
            self.on_first()
        else:
            self.is_done.set()

    def move(self, _: Any, go_on: Callable[[], bool]) -> None:
        pass

    def remove_of_trial(self, _: Any, trial: TrialId, *, has_keep: bool) -> None:
        self.removed.append((trial, has_keep))


def test_an_ended_trial_does_not_wait_for_the_rest_of_a_large_store(settings: Settings) -> None:
    garbage = Garbage()
    collector = GarbageCollector(settings, Store(), garbage, garbage)  # type: ignore[arg-type]
    garbage.on_first = lambda: collector.schedule(SECOND, has_keep=True)
    collector.schedule(FIRST, has_keep=False)
    collector.start()
    assert garbage.is_done.wait(PATIENCE_S)
    collector.close(lambda: False)
    assert garbage.removed == [(FIRST, False), "a", (SECOND, True), "b"]


def test_a_sweep_whose_files_cannot_be_removed_keeps_no_other_sweep_waiting(
    settings: Settings, monkeypatch, caplog
) -> None:
    """Files: a folder of another user in the store."""

    def fail() -> None:
        raise PermissionError("not your files")

    monkeypatch.setattr("hpq_worker.files.garbage.is_reachable", lambda files: True)
    garbage = Garbage()
    garbage.on_first = fail
    collector = GarbageCollector(settings, Store(), garbage, garbage)  # type: ignore[arg-type]
    collector.start()
    assert garbage.is_done.wait(PATIENCE_S)
    collector.close(lambda: False)
    assert garbage.removed == ["a", "b"]
    assert "not your files" in caplog.text


def test_what_an_ended_trial_left_waits_for_a_store_that_is_away(settings: Settings) -> None:
    garbage, store = Garbage(), Store()
    store.is_away = True
    collector = GarbageCollector(settings, store, garbage, garbage)  # type: ignore[arg-type]
    collector.schedule(FIRST, has_keep=False)
    collector.start()
    assert store.asked.wait(PATIENCE_S)
    store.is_away = False
    collector.schedule(SECOND, has_keep=False)
    assert garbage.is_done.wait(PATIENCE_S)
    collector.close(lambda: False)
    assert garbage.removed == [(FIRST, False), (SECOND, False), "a", "b"]


def test_the_attempts_of_dead_processes_are_known_and_no_others(settings: Settings) -> None:
    """F3: also where a process of another hpq, or a copy of code, has left a directory."""
    work = settings.home / "work"
    work.mkdir()
    names = ("demo-00000.1.3-0a1b2c", "demo-00000.2.1-0a1b2c", "code-0a1b.7.1")
    dead, living, code = (DirectoryLock(work / name) for name in names)
    for lock in (dead, code):
        lock._close()  # what the kernel does for a process that was killed
    garbage = Garbage()
    collector = GarbageCollector(settings, Store(), garbage, garbage)  # type: ignore[arg-type]
    collector.start()
    collector.close(lambda: False)
    assert list(collector.dead) == [(FIRST, "3-0a1b2c")]
    assert [path.name for path in work.iterdir()] == ["demo-00000.2.1-0a1b2c.lock"]
    living.release()
