"""What the supervisor imports, and what it reports of a worker that it cannot start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hpq.settings import Settings
from hpq_worker import supervisor
from hpq_worker.health.health import Health
from hpq_worker.supervisor import Supervisor
from tests.support.ids import ids


class _Over(Exception):
    """The first turn of the loop is over."""


class _Signals:
    """No signal comes, and the loop makes one turn."""

    requests, is_stopping = 0, False

    def install(self) -> None:
        pass

    def pause(self, _seconds: float) -> None:
        raise _Over


def test_a_slot_whose_worker_cannot_start_has_none_and_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*_: Any) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(supervisor, "start", start)
    monkeypatch.setattr(supervisor, "Signals", _Signals)
    for name in ("adopt_orphans", "kill_orphans"):  # they are of this process
        monkeypatch.setattr(supervisor, name, lambda *_: None)
    monkeypatch.setattr(supervisor.signal, "signal", lambda *_: None)
    now = 0.0
    health = Health(1, 0.0, lambda: now)
    with pytest.raises(_Over):
        Supervisor([""], {}, {}, health, "1", Settings()).run()
    assert ids(health.not_ready()) == ["worker-down"]
    now = 10**6
    health.loop()
    assert health.not_alive() == ""


def test_the_supervisor_does_without_the_client_of_redis() -> None:
    """Half of its time to start, and a quarter of its memory as long as it runs."""
    code = "import sys, hpq_worker.__main__; print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
