"""The thread that removes unneeded files: what it does first, and what waits for a store."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from hpq.domain.trial import Claim, TrialId
from hpq.settings import Settings, read
from hpq_worker.files import artifacts, workdir
from hpq_worker.files.garbage import GarbageCollector
from hpq_worker.files.workdir import DirectoryLock, work_folder
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress
from tests.support.ids import ids

PATIENCE_S = 30.0
FIRST, SECOND = TrialId(sweep="demo-00000", number=1), TrialId(sweep="demo-00000", number=2)
SIGNALS = Signals()


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

    def remove_of_trial(self, _: Any, trial: TrialId, *, has_keep: bool) -> None:
        self.removed.append((trial, has_keep))

    def deliver(self, _: Any, go_on: Callable[[], bool]) -> None:
        pass


def collector_of(settings: Settings, garbage: Garbage, store: Store | None = None) -> Any:
    made: Any = GarbageCollector
    return made(settings, store or Store(), garbage, garbage)


def claimed(trial: TrialId) -> Claim:
    return Claim(trial=trial, attempt=1, nonce="a")


def test_an_ended_trial_does_not_wait_for_the_rest_of_a_large_store(settings: Settings) -> None:
    garbage = Garbage()
    collector = collector_of(settings, garbage)
    garbage.on_first = lambda: collector.schedule(claimed(SECOND), has_keep=True)
    collector.schedule(claimed(FIRST), has_keep=False)
    collector.start()
    assert garbage.is_done.wait(PATIENCE_S)
    collector.close(SIGNALS, Progress())
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
    collector = collector_of(settings, garbage)
    collector.start()
    assert garbage.is_done.wait(PATIENCE_S)
    collector.close(SIGNALS, Progress())
    assert garbage.removed == ["a", "b"]
    assert "not your files" in caplog.text


def test_what_an_ended_trial_left_waits_for_a_store_that_is_away(settings: Settings) -> None:
    garbage, store = Garbage(), Store()
    store.is_away = True
    collector = collector_of(settings, garbage, store)
    collector.schedule(claimed(FIRST), has_keep=False)
    collector.start()
    assert store.asked.wait(PATIENCE_S)
    store.is_away = False
    collector.schedule(claimed(SECOND), has_keep=False)
    assert garbage.is_done.wait(PATIENCE_S)
    collector.close(SIGNALS, Progress())
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
    collector = collector_of(settings, garbage)
    collector.start()
    collector.close(SIGNALS, Progress())
    assert list(collector.dead) == [(FIRST, "3-0a1b2c")]
    assert [path.name for path in work.iterdir()] == ["demo-00000.2.1-0a1b2c.lock"]
    living.release()


def test_a_dead_process_whose_directory_stays_is_named_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with files of another user in it: each look logged it, and had its lease ended again."""
    work = settings.home / "work"
    (work / "demo-00000.1.3-0a1b2c").mkdir(parents=True)
    DirectoryLock(work / "demo-00000.1.3-0a1b2c")._close()
    monkeypatch.setattr(workdir, "_remove_folder", lambda folder: None)
    collector = collector_of(settings, Garbage())
    collector.start()
    collector.close(SIGNALS, Progress())
    assert list(collector.dead) == [(FIRST, "3-0a1b2c")]


class Waiting(Garbage):
    """A store that takes what waits at a later try, or never."""

    def __init__(self, work: Path, tries: float) -> None:
        super().__init__()
        self.work, self.tries = work, tries

    def deliver(self, _: Any, go_on: Callable[[], bool]) -> None:
        self.tries -= 1
        if self.tries <= 0:
            (self.work / "unstored").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("in_pod", "is_stopped", "tries", "is_left"),
    [
        (False, False, 3, False),  # ends by itself, and waits
        (False, True, math.inf, True),  # the files stay on this machine: it leaves at once
        (True, True, 3, False),  # the files go with the pod: it tries on
        (True, True, math.inf, True),  # up to the end of its grace
    ],
)
def test_a_worker_that_ends_waits_for_the_store_or_says_what_it_leaves(
    settings: Settings, monkeypatch, caplog, in_pod, is_stopped, tries, is_left
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1" if in_pod else "")
    monkeypatch.setattr("hpq_worker.files.garbage._RETRY_S", 0.01)
    claim, signals = claimed(FIRST), Signals(grace_s=2.0)
    work = work_folder(settings.work_root, claim)
    work.mkdir(parents=True)
    artifacts.keep_unstored(work, "hpq", "abcd", claim)
    collector = collector_of(settings, Waiting(work, tries))
    collector.start()
    collector.schedule(claim, has_keep=False)
    if is_stopped:
        signals.request_shutdown()
    collector.close(signals, Progress())
    assert artifacts.is_unstored(work) is is_left
    said = [
        one.getMessage() for one in caplog.records if "files-not-stored" in ids(one.getMessage())
    ]
    assert len(said) == is_left and all(str(work / "out") in text for text in said)
    assert all(("pod" in text) is in_pod for text in said)
