"""Workers of `hpq run`: a fleet on this machine, for the length of one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hpq.files import location
from hpq.settings import Settings

_MOST_ON_CPU = 4


class LocalWorkers:
    """A fleet that ends with the `with` block; what it logs is in a file.

    `url` is the server, `worker_class` the class to serve; without a count, one worker a GPU, or on
    a machine without, one a core up to four.
    """

    def __init__(
        self, settings: Settings, url: str, worker_class: str, count: int | None, log: Path
    ) -> None:
        self._grace_s, self.log = settings.grace_s, log
        self._env = {
            **os.environ,
            "HPQ_REDIS_URL": url,
            "HPQ_QUEUE": worker_class,
            "HPQ_STORE": location(settings),  # they are on this machine, so one under HPQ_HOME does
        }
        self._words = [sys.executable, "-P", "-m", "worker"]
        if count is not None:
            self._words += ["--workers", str(count)]
        else:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            self._words += ["--workers-on-cpu", str(min(_MOST_ON_CPU, cores))]
        self._fleet: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalWorkers:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C is ours to answer, by an orderly stop.
            self._fleet = subprocess.Popen(
                self._words, env=self._env, stdout=out, stderr=out, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._fleet is not None
        self._fleet.terminate()
        try:
            self._fleet.wait(self._grace_s + 5.0)
        except subprocess.TimeoutExpired:
            self._fleet.send_signal(signal.SIGTERM)  # the second: at once
            self._fleet.wait()

    def wait_for_one(self, is_there: Callable[[], bool], patience_s: float = 20.0) -> None:
        """Return once a worker is there, the fleet has ended, or the patience has."""
        until = time.monotonic() + patience_s
        while not is_there() and self.ended() is None and time.monotonic() < until:
            time.sleep(0.05)

    def ended(self) -> str | None:
        """Why there are no workers any more; None while there are."""
        assert self._fleet is not None
        if self._fleet.poll() is None:
            return None
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return f"the workers ended: {lines[-1] if lines else f'see {self.log}'}"
