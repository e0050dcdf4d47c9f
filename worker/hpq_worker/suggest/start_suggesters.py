"""Starts the suggester processes beside this worker, for sweeps that have none."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpq.domain.sweep import RunnableSweep
from hpq.error_codes import ExitCode
from hpq.notice import Notice
from hpq.search.samplers import Sampler, is_installed, missing
from hpq.store.suggest_lease import SuggestLease
from hpq_worker.process import process_tree
from hpq_worker.process.config import SuggesterConfig, start

log = logging.getLogger("hpq.suggest")
_MOST = 4  # suggesters beside one worker; other workers start the rest
_AGAIN_S = 2.0  # between two starts for one sweep
_BEGIN_S = 30.0  # in which a process that starts has taken the lease
_END_S = 5.0  # after SIGTERM
_FAULTS = 3  # in a row, after which starts become rarer and the reason is shown
_FIRST_TRY_S, _LAST_TRY_S = 30.0, 600.0


@dataclass(slots=True)
class _Starts:
    """The suggesters of one sweep so far."""

    started_at: float
    error_fd: int = -1  # on which the running process reports its error
    faults: int = 0  # in a row
    reason: str = ""
    is_tpe_alone: bool = False
    kill_at: float = 0.0  # if it hangs; 0: it was not told to end

    @property
    def pause_s(self) -> float:
        if self.faults < _FAULTS:
            return _AGAIN_S
        return float(min(_LAST_TRY_S, _FIRST_TRY_S * 2 ** min(self.faults - _FAULTS, 9)))

    def process_ended(self, status: int, sampler: str) -> str | None:
        """Record the end of a process; return a line for the log if the sampler changes.

        A signal most likely comes from the kernel for torch's memory, which is no fault of the
        sweep: `auto` can do without torch.
        """
        lines = os.read(self.error_fd, 1_000).decode("utf-8", "replace").splitlines()
        os.close(self.error_fd)
        if status == ExitCode.OUT_OF_REACH:  # Redis was away: nothing is wrong with the sweep
            return None
        by = f"signal {-status}" if status < 0 else f"exit status {status}"
        if status < 0 and sampler == Sampler.AUTO and not self.is_tpe_alone:
            self.is_tpe_alone = True
            return f"its suggester was killed ({by}); this worker now suggests by tpe alone"
        self.faults = self.faults + 1 if status else 0
        self.reason = lines[0] if lines else by
        return None


class SuggesterProcesses:
    """The suggesters of one worker; `environ` is the worker's, with its secrets.

    `lease_of` creates the suggest lease of a sweep.
    """

    def __init__(
        self, environ: Mapping[str, str], worker: str, lease_of: Callable[[str], SuggestLease]
    ) -> None:
        self._lease_of = lease_of
        self._hidden = {k: v for k, v in environ.items() if os.environ.get(k) != v}
        self._worker = worker
        self._processes: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}  # with the sampler
        self._starts: dict[str, _Starts] = {}

    def ensure_running(self, sweep: RunnableSweep) -> Notice | None:
        """Start a suggester for a sweep if no worker has one; return why this one cannot.

        Raises:
            OSError: no process can be started.
            redis.RedisError: Redis is away.
        """
        if sweep.sampler not in set(Sampler):
            return Notice("value-unreadable", f"{sweep.sampler!r:.80} is no sampler of hpq")
        sampler = Sampler(sweep.sampler)
        lacking = missing(sampler, is_installed)
        if lacking is not None:
            return Notice("extra-missing", f"{lacking}, where this worker runs")
        self._end_hung(sweep.id)
        self._forget_ended()
        starts = self._starts.get(sweep.id)
        is_early = starts is not None and time.monotonic() - starts.started_at < starts.pause_s
        is_free = sweep.id not in self._processes and len(self._processes) < _MOST
        # Acquired here first, so that only one of many workers starts a process.
        if is_free and not is_early and self._lease_of(sweep.id).acquire().is_ok:
            self._start(sweep.id, sweep.sampler)
        elif starts and is_early and starts.faults >= _FAULTS and sweep.id not in self._processes:
            times = f"{starts.faults} times in a row"
            text = f"its suggester failed {times}: {starts.reason}; see this worker's log"
            return Notice("sampler-failed", text)
        return None

    def _start(self, sid: str, sampler: str) -> None:
        starts = self._starts.setdefault(sid, _Starts(started_at=0.0))
        starts.error_fd, end = os.pipe()
        config = SuggesterConfig(
            secrets=self._hidden,
            sweep=sid,
            worker=self._worker,
            parent=os.getpid(),
            error=end,
            may_gp=not starts.is_tpe_alone,
        )
        try:
            process = start("hpq_worker.suggest", os.environ, config, (end,))
        except OSError:
            os.close(starts.error_fd)
            raise
        finally:
            os.close(end)
        process_tree.SPARED.add(process.pid)
        self._processes[sid] = sampler, process
        starts.started_at, starts.kill_at = time.monotonic(), 0.0

    def _end_hung(self, sid: str) -> None:
        """End the process of a sweep that has no suggester: without the lease it must have ended.

        It is stopped or hangs, unless it starts.
        """
        starts, now = self._starts.get(sid), time.monotonic()
        if sid not in self._processes or starts is None or now - starts.started_at < _BEGIN_S:
            return
        process = self._processes[sid][1]
        starts.kill_at = starts.kill_at or now + _END_S
        process.kill() if now >= starts.kill_at else process.terminate()
        process.send_signal(signal.SIGCONT)  # a process that is stopped gets no SIGTERM

    def _forget_ended(self) -> None:
        for sid, (sampler, process) in list(self._processes.items()):
            status = process.poll()
            if status is not None:
                process_tree.SPARED.discard(process.pid)
                if line := self._starts[sid].process_ended(status, sampler):
                    log.warning("%s: %s", sid, line)
                del self._processes[sid]

    def close(self) -> None:
        """Terminate all suggesters of this worker."""
        processes = [process for _, process in self._processes.values()]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for starts in self._starts.values():
            starts.is_tpe_alone = True  # processes that are terminated here log nothing
        self._forget_ended()
