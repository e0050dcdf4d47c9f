"""`hpq worker`: one worker process a slot, each with its GPUs; owns the signals, holds no state.

A worker that dies is started again, ever more slowly; one that says that no waiting mends it ends
the fleet with its exit code and that one line, so that the reason is seen.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from hpq.errors import ExitCode
from hpq_worker.consumer.run_limit import UNTIL_OVER, RunBudget
from hpq_worker.health import telemetry
from hpq_worker.health.monitor import Monitor
from hpq_worker.process import exit_report, secrets
from hpq_worker.process.process_tree import adopt_orphans, kill_orphans
from hpq_worker.process.signals import Stopping

log = logging.getLogger("hpq.fleet")
_SLOWEST_S = 30.0
_HEALTHY_S = 20.0  # a worker that lived so long was no false start


class Supervisor:
    """The worker processes of one machine or pod; `/proc` must not show the `hidden` variables."""

    def __init__(
        self,
        slots: Sequence[str],
        environ: Mapping[str, str],
        hidden: Mapping[str, str],
        monitor: Monitor,
        threads: str,
        *,
        is_once: bool = False,
        is_until_over: bool = False,
        runs: RunBudget | None = None,
        parent: int | None = None,
    ) -> None:
        self._slots, self._environ, self._hidden = slots, environ, hidden
        self._monitor, self._threads = monitor, threads
        self._parent = parent  # the process to end with
        self._is_once = is_once  # ends as its worker does
        self._errand = [UNTIL_OVER] * is_until_over + ([runs.word] if runs else [])
        self._shared = runs.fds if runs else ()  # with all workers
        self._stopping = Stopping()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._code = int(ExitCode.DONE)
        self._pipes: dict[int, int] = {}  # where their last words arrive
        self._started_at: dict[int, float] = {}
        self._start_at = dict.fromkeys(range(len(slots)), 0.0)
        self._waits_s = dict.fromkeys(range(len(slots)), 1.0)

    def run(self) -> int:
        """Keep every slot served until told to stop; answers the exit code."""
        self._stopping.install()
        adopt_orphans()  # of a worker that was killed together with its runner
        passed_on = 0
        while True:
            if self._parent not in (None, os.getppid()) and self._stopping.level == 0:
                self._stopping.tell()
            while passed_on < self._stopping.level:
                passed_on += 1
                self._signal()
            self._monitor.turn()
            code = self._look()
            if code is not None:
                self._monitor.close()
                return code
            self._stopping.pause(0.2) if self._stopping.level == 0 else time.sleep(0.05)

    def _look(self) -> int | None:
        for slot in list(self._workers):
            status = self._workers[slot].poll()
            if status is None:
                continue
            self._ended(slot, status)
        if self._stopping.level:
            return None if self._workers else self._code
        if not self._start_at:
            return self._code
        for slot, at in self._start_at.items():
            if slot not in self._workers and time.monotonic() >= at:
                self._start(slot)
        return None

    def _ended(self, slot: int, status: int) -> None:
        del self._workers[slot]
        self._monitor.died(slot)
        self._clear()
        words = exit_report.hear(self._pipes.pop(slot))
        if words is not None and self._code == ExitCode.DONE:  # the first that says it
            print(f"hpq worker: {words.line}", file=sys.stderr, flush=True)
            if words.is_final and self._stopping.level == 0:
                self._code = status
                self._stopping.tell()  # the others end as ever
        if self._is_once and status != ExitCode.OUT_OF_REACH:  # a server comes back
            self._code = status if status >= 0 else 128 - status
            if self._stopping.level == 0:
                self._stopping.tell()
        if self._errand and status == ExitCode.DONE and self._stopping.level == 0:
            del self._start_at[slot]  # what it came for is done
        else:
            self._again_later(slot, status)

    def _clear(self) -> None:
        kill_orphans({worker.pid for worker in self._workers.values()})

    def _start(self, slot: int) -> None:
        self._clear()  # once more: a runner may have died after its worker
        env = {
            **self._environ,
            "CUDA_VISIBLE_DEVICES": self._slots[slot],
            "OMP_NUM_THREADS": self._threads,
        }
        if not self._slots[slot] and "CUDA_VISIBLE_DEVICES" not in self._environ:
            del env["CUDA_VISIBLE_DEVICES"]
        # A session of its own: Ctrl-C in the terminal reaches the fleet alone, which passes it on.
        told = self._monitor.pipe(slot)
        self._pipes[slot], left = os.pipe()
        words = [
            sys.executable,
            "-P",
            "-m",
            "hpq_worker.consumer",
            *(f"{telemetry.OPTION}{fd}" for fd in told),
        ]
        words.append(f"{exit_report.OPTION}{left}")
        words += self._errand
        self._workers[slot] = secrets.start(words, env, self._hidden, (*told, left, *self._shared))
        for fd in (*told, left):
            os.close(fd)
        self._started_at[slot] = time.monotonic()

    def _again_later(self, slot: int, status: int) -> None:
        now = time.monotonic()
        if now - self._started_at[slot] > _HEALTHY_S:
            self._waits_s[slot] = 1.0
        if self._stopping.level == 0:
            wait_s = self._waits_s[slot]
            log.error("worker %d ended with %d; starting another in %.0f s", slot, status, wait_s)
            self._start_at[slot] = now + wait_s
            self._waits_s[slot] = min(_SLOWEST_S, 2 * wait_s)

    def _signal(self) -> None:
        for worker in self._workers.values():
            worker.send_signal(signal.SIGTERM)
