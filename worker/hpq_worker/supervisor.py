"""`hpq worker`: one worker process per slot, each with its GPUs; forwards signals, holds no state.

The supervisor restarts a worker that dies, ever more slowly. If a worker reports an error that a
restart cannot fix, the supervisor ends all workers and exits with that error and exit code.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType

from hpq.error_codes import ExitCode
from hpq.notice import tagged
from hpq.settings import LAST_WORDS_S, Settings
from hpq_worker.consumer.run_budget import RunBudget
from hpq_worker.health.health import Health
from hpq_worker.process import exit_reason
from hpq_worker.process.config import WorkerConfig, start
from hpq_worker.process.logs import tell
from hpq_worker.process.process_tree import adopt_orphans, is_stopped, kill_orphans
from hpq_worker.process.signals import FORWARDED, Signals

log = logging.getLogger("hpq.supervisor")
_SLOWEST_S = 30.0
_HEALTHY_S = 20.0  # a worker that lives so long resets the wait


class Supervisor:
    """The worker processes of one machine or pod.

    `hidden` variables must not show in `/proc`; `health` is None if no probe asks.
    """

    def __init__(
        self,
        slots: Sequence[str],
        environ: Mapping[str, str],
        hidden: Mapping[str, str],
        health: Health | None,
        threads: str,
        settings: Settings,
        *,
        is_until_over: bool = False,
        until_idle_s: float = 0.0,
        budget: RunBudget | None = None,
        parent: int | None = None,
    ) -> None:
        self._slots, self._environ = slots, environ
        self._health, self._threads = health, threads
        self._parent = parent  # the process to end with
        self._settings = settings
        self._kill_at = math.inf
        self._stopped_at: dict[int, float] = {}  # by pid
        self._config = WorkerConfig(
            secrets=hidden,
            parent=os.getpid(),
            run_budget=budget.fds if budget else (),
            is_until_over=is_until_over,
            until_idle_s=until_idle_s,
        )
        self._signals = Signals()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._healthy_at = time.monotonic()  # when a worker last was
        self._exit_code = int(ExitCode.DONE)
        self._reason_fds: dict[int, int] = {}  # pipes with exit reasons, by slot
        self._started_at: dict[int, float] = {}
        self._start_at = dict.fromkeys(range(len(slots)), 0.0)
        self._backoff_s = dict.fromkeys(range(len(slots)), 1.0)

    def run(self) -> int:
        """Keep a worker in every slot until a signal comes; return the exit code."""
        self._signals.install()
        signal.signal(signal.SIGUSR1, self._outlive_parent)
        adopt_orphans()  # of a worker that was killed with its runner
        forwarded = 0
        while True:
            parent = os.getppid()  # before the look at _parent, which a signal may have reset
            if self._parent not in (None, parent) and not self._signals.is_stopping:
                self._signals.request_shutdown()
            while forwarded < self._signals.requests:
                forwarded += 1
                self._forward_signal()
            if self._health is not None:
                self._health.loop()
            code = self._poll()
            if code is not None:
                return code
            self._signals.pause(0.2) if not self._signals.is_stopping else time.sleep(0.05)

    def _outlive_parent(self, _number: int, _frame: FrameType | None) -> None:
        self._parent = None

    def _poll(self) -> int | None:
        for slot in list(self._workers):
            status = self._workers[slot].poll()
            if status is not None:
                self._worker_ended(slot, status)
            elif time.monotonic() >= min(self._kill_at, self._hung_at(self._workers[slot].pid)):
                self._workers[slot].kill()  # `_worker_ended` kills its runner
        if self._signals.is_stopping:
            return None if self._workers else self._exit_code
        if not self._start_at:
            return self._exit_code
        for slot, at in self._start_at.items():
            if slot not in self._workers and time.monotonic() >= at:
                self._try_to_start(slot)
        return None

    def _hung_at(self, pid: int) -> float:
        """Return when a process that was stopped (SIGSTOP) has lost its trial for sure."""
        if not is_stopped(pid):
            self._stopped_at.pop(pid, None)
            return math.inf
        now = time.monotonic()
        return self._stopped_at.setdefault(pid, now) + 2 * self._settings.lease_s

    def _worker_ended(self, slot: int, status: int) -> None:
        self._stopped_at.pop(self._workers.pop(slot).pid, None)
        if self._health is not None:
            self._health.worker_ended(slot)
        with suppress(OSError, MemoryError):  # `_start` kills them, or starts no worker
            self._kill_orphans()
        reason = exit_reason.read(self._reason_fds.pop(slot))
        if reason is not None and self._exit_code == ExitCode.DONE:  # only the first is printed
            tell("hpq worker", reason.line)
            if reason.is_final and not self._signals.is_stopping:
                self._exit_code = status
                self._signals.request_shutdown()  # the other workers end as on SIGTERM
        if self._has_left(slot, status) and not self._signals.is_stopping:
            del self._start_at[slot]
        else:
            self._schedule_restart(slot, status)

    def _has_left(self, slot: int, status: int) -> bool:
        """Return True if a worker has reached its run limit, or may not be replaced any more."""
        config, now = self._config, time.monotonic()
        if status == ExitCode.DONE:
            is_limited = config.is_until_over or config.run_budget or config.until_idle_s
            return bool(is_limited or self._settings.end)
        if now - self._started_at[slot] > _HEALTHY_S:
            self._healthy_at = now
        is_idle = 0 < config.until_idle_s < now - self._healthy_at  # none of its workers can start
        if is_idle or status == ExitCode.TIME_UP:
            self._exit_code = self._exit_code or max(1, status)
            return True
        return False

    def _kill_orphans(self) -> None:
        kill_orphans({worker.pid for worker in self._workers.values()})

    def _try_to_start(self, slot: int) -> None:
        try:
            self._start(slot)
        except (OSError, MemoryError) as error:  # short of memory, or of files
            if slot in self._reason_fds:
                os.close(self._reason_fds.pop(slot))
            if self._health is not None:
                self._health.worker_ended(slot)
            line = tagged("cannot start worker %d: %r; trying again in %.0f s", "worker-fault")
            log.error(line, slot, error, self._put_off(slot))

    def _start(self, slot: int) -> None:
        self._kill_orphans()  # once more: a runner may have died after its worker
        env = {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi numbers them; CUDA: fastest first
            **self._environ,
            "CUDA_VISIBLE_DEVICES": self._slots[slot],
            "OMP_NUM_THREADS": self._threads,
        }
        if not self._slots[slot] and "CUDA_VISIBLE_DEVICES" not in self._environ:
            del env["CUDA_VISIBLE_DEVICES"]
        # A session of its own: Ctrl-C in the terminal reaches the supervisor, which forwards it.
        state = None if self._health is None else self._health.worker_started(slot)
        self._reason_fds[slot], write_fd = os.pipe()
        try:
            config = replace(self._config, state=state, exit_reason=write_fd)
            inherited = (write_fd, *config.run_budget)
            if state is not None:
                inherited = (state, *inherited)
            self._workers[slot] = start("hpq_worker.consumer", env, config, inherited)
        finally:
            os.close(write_fd)
        self._started_at[slot] = time.monotonic()

    def _schedule_restart(self, slot: int, status: int) -> None:
        now = time.monotonic()
        if now - self._started_at[slot] > _HEALTHY_S:
            self._backoff_s[slot] = 1.0
        if not self._signals.is_stopping:
            line = tagged("worker %d ended with %d; starting another in %.0f s", "worker-ended")
            log.error(line, slot, status, self._put_off(slot))

    def _put_off(self, slot: int) -> float:
        """Return the seconds until the next start, which double each time."""
        wait_s = self._backoff_s[slot]
        self._start_at[slot] = time.monotonic() + wait_s
        self._backoff_s[slot] = min(_SLOWEST_S, 2 * wait_s)
        return wait_s

    def _forward_signal(self) -> None:
        """Pass a signal on; kill the workers that have not ended by the end of the grace."""
        is_first = self._kill_at == math.inf
        wait_s = self._settings.grace_s + LAST_WORDS_S if is_first else 2 * LAST_WORDS_S
        self._kill_at = min(self._kill_at, time.monotonic() + wait_s)
        for worker in self._workers.values():
            worker.send_signal(FORWARDED)
