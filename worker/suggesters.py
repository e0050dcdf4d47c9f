"""The processes beside this worker that make sets for late-bound sweeps, when nobody does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from hpq.lead import Lead
from hpq.search.record import Sampler, missing
from hpq.sweep import Sweep
from worker import processes, secrets

_MOST = 4  # sweeps that one worker makes sets for; others of the class do the rest
_AGAIN_S = 2.0  # between two starts for one sweep


class Suggesters:
    """Starts them and ends them; `environ` is this worker's, what is hidden included.

    `lead_of` makes the lease for a sweep.
    """

    def __init__(
        self, environ: Mapping[str, str], who: str, lead_of: Callable[[str], Lead]
    ) -> None:
        self._lead_of = lead_of
        self._hidden = {k: v for k, v in environ.items() if os.environ.get(k) != v}
        self._who = who
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started_at: dict[str, float] = {}

    def feed(self, sweep: Sweep) -> str | None:
        """See to it that somebody makes sets for a sweep; answers why that cannot be done here.

        Raises:
            OSError: no process can be started.
            redis.RedisError: Redis is away.
        """
        if sweep.sampler not in set(Sampler):
            return f"sampler {sweep.sampler!r} is not one of this hpq's; upgrade this worker"
        sampler = Sampler(sweep.sampler)
        lacks = missing(sampler, lambda name: importlib.util.find_spec(name) is not None)
        if lacks is not None:
            return f"{lacks}, where this worker runs"
        self._forget_ended()
        is_early = time.monotonic() - self._started_at.get(sweep.id, -_AGAIN_S) < _AGAIN_S
        is_free = sweep.id not in self._children and len(self._children) < _MOST
        # Taken here first, so that of many workers one alone starts a process; that takes it anew.
        if is_free and not is_early and self._lead_of(sweep.id).take().is_ok:
            self._start(sweep.id)
        return None

    def _start(self, sid: str) -> None:
        words = [sys.executable, "-P", "-m", "worker.suggest", sid, self._who, str(os.getpid())]
        child = secrets.start(words, os.environ, self._hidden)
        processes.SPARED.add(child.pid)
        self._children[sid], self._started_at[sid] = child, time.monotonic()

    def _forget_ended(self) -> None:
        for sid, child in list(self._children.items()):
            if child.poll() is not None:
                processes.SPARED.discard(child.pid)
                del self._children[sid]

    def close(self) -> None:
        """End them all."""
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(2.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._forget_ended()
