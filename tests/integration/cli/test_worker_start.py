"""What `hpq worker` prints at its start, and the idle sweeps that it skips."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from redis import Redis

from hpq.store.keys import Keys
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
DAY_MS = 86_400_000
Terminal = Callable[..., "Typed"]


class Typed:
    """A worker that was started at a terminal, and what it prints there."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.text, (self._reader, terminal) = "", pty.openpty()
        self.process = subprocess.Popen(
            [HPQ, "worker", *words], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError):  # the terminal's last process has ended
            while data := os.read(self._reader, 65_536):
                self.text += data.decode("utf-8", "replace")

    def wait_for(self, is_so: Callable[[], object]) -> None:
        until = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < until and self.process.poll() is None, self.text
            time.sleep(0.02)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._thread.join(DEADLINE_S)  # else it may read a file that is opened with this number
        os.close(self._reader)


@pytest.fixture
def at_a_terminal(desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Starts `hpq worker` at a terminal, where a person reads what it prints."""
    monkeypatch.setenv("HPQ_REAP_S", "0.3")
    started: list[Typed] = []

    def start(*words: str) -> Typed:
        started.append(Typed(words))
        return started[-1]

    yield start
    for one in started:
        one.end()


def make_idle(redis: Redis, sid: str, days: int = 9) -> None:
    """Move all events of a sweep into the past."""
    key = Keys("hpq").sweep(sid, "events")
    entries = redis.xrange(key)
    redis.delete(key)
    for eid, fields in entries:
        ms, number = eid.decode().split("-")
        redis.xadd(key, fields, id=f"{int(ms) - days * DAY_MS}-{number}")


def is_over(desk, sid: str) -> bool:
    return bool(desk.reader.sweeps.get(sid).state.is_over)


def test_a_sweep_that_was_idle_for_a_day_waits_until_its_user_resumes_it(
    desk, redis, at_a_terminal
) -> None:
    """A new sweep runs at once beside it; `hpq watch` names the reason and the command."""
    old = desk.sweep(SWEEP)
    make_idle(redis, old)
    (desk.folder / "home/acknowledged.json").unlink()  # else the server is said to have lost events
    last = desk.reader.events.last_id(old)
    new = desk.sweep(SWEEP.replace("2", "3"))
    worker = at_a_terminal()
    worker.wait_for(lambda: is_over(desk, new))
    (line,) = (one for one in worker.text.splitlines() if one.startswith(f"  {old}: 2 trials"))
    assert "9d00h" in line and f"hpq resume {old}" in line
    assert f"  {new}: 2 trials" in worker.text and "2 sweeps wait" in worker.text
    worker.wait_for(lambda: any(old in w.refuses for w in desk.reader.workers.live()))
    assert desk.reader.events.last_id(old) == last  # it is as idle for the next worker
    why = desk.hpq("watch", "--once", old).stdout
    assert "no activity for a day" in why and f"hpq resume {old}" in why
    assert desk.hpq("resume", old).returncode == 0
    worker.wait_for(lambda: is_over(desk, old))


@pytest.mark.parametrize("words", [["--all"], ["--sweep"]])
def test_an_idle_sweep_runs_if_it_is_asked_for(desk, redis, at_a_terminal, words) -> None:
    old = desk.sweep(SWEEP)
    make_idle(redis, old)
    worker = at_a_terminal(*words, *([old] if words == ["--sweep"] else []))
    worker.wait_for(lambda: is_over(desk, old))
    assert "skipped" not in worker.text


def test_a_worker_without_a_terminal_skips_no_sweep(desk, redis, environ) -> None:
    """As a service, in a script or in a pod: no person reads that a sweep waits for them."""
    old = desk.sweep(SWEEP)
    make_idle(redis, old)
    done = subprocess.run(
        [HPQ, "worker", "--count", "2"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False, env={**os.environ, "HPQ_LEES_S": "3"},
    )  # fmt: skip
    assert done.returncode == 0 and is_over(desk, old), done
    assert ids(done.stderr).count("setting-unknown") == 1
    assert "queue default: 1 sweep waits" in done.stderr and "sweep-idle" not in ids(done.stderr)


def test_sweeps_that_a_worker_cannot_claim_are_not_listed(desk, redis, redis_url) -> None:
    paused = desk.sweep(SWEEP)
    desk.hpq("pause", paused)
    other = desk.sweep(SWEEP + "queue: a100\n")
    redis.config_set("requirepass", "s3cr3t-Passw0rd")
    try:
        url = redis_url.replace("unix://", "unix://:s3cr3t-Passw0rd@")
        done = subprocess.run(
            [HPQ, "worker", "--count", "0"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=DEADLINE_S, check=False,
            env={**os.environ, "HPQ_REDIS_URL": url},
        )  # fmt: skip
        assert done.returncode == 2
        worker = subprocess.Popen(
            [HPQ, "worker"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "HPQ_REDIS_URL": url},
        )  # fmt: skip
        assert worker.stderr is not None
        line = worker.stderr.readline()
        worker.terminate()
        rest = worker.communicate()[1]
    finally:
        redis.config_set("requirepass", "")
    assert "0 sweeps wait" in line and "unix://:***@" in line
    assert not [word for word in (paused, other, "s3cr3t") if word in line + rest]
