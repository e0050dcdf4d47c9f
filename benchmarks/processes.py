"""Measure wall time, memory and CPU time of processes. Linux only."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HPQ = (sys.executable, "-P", "-m", "hpq_producer")
RQ = (sys.executable, "-m", "rq.cli")
WORKER = (sys.executable, "-P", "-m", "hpq_worker.consumer")
DEFAULTS = b"{}\n"  # a worker's configuration, on its standard input
_PATIENCE_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without HPQ_* variables, with other variables added.

    Python keeps the bytecode that it compiles, as it does on a user's machine.
    """
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HPQ_")}
    mine.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**mine, "PYTHONPATH": str(ROOT), **(more or {})}


def wall_s(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Return the wall time of a process in seconds. Raises as `wall_and_cpu_s`."""
    return wall_and_cpu_s(command, env)[0]


def wall_and_cpu_s(
    command: Sequence[str], env: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Return the wall time and the CPU time of a process and its children, in seconds.

    Raises:
        CalledProcessError: the process failed.
    """
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment(env), check=True, capture_output=True)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def running(
    command: Sequence[str], env: Mapping[str, str] | None = None, *, is_quiet: bool = False
) -> Iterator[int]:
    """Run a process during the block and yield its pid; end it and its children afterwards."""
    process = subprocess.Popen(
        command,
        env=environment(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if is_quiet else None,
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin as config:
        config.write(DEFAULTS)
    try:
        yield process.pid
    finally:
        left = descendants(process.pid)
        process.terminate()
        # RQ: after a signal just before its BLPOP it waits for minutes.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S if not is_quiet else _PATIENCE_S / 10)
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()


def memory_mib(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process in MiB: RSS and PSS."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        words = line.split()
        if words[0] in ("Rss:", "Pss:"):
            found[words[0]] = int(words[1]) / 1024
    return found["Rss:"], found["Pss:"]


def cpu_s(pid: int) -> float:
    """Return the CPU time in seconds of a process, its descendants and their ended children."""
    ticks = sum(int(one) for each in descendants(pid) for one in _stat(each)[11:15])
    return ticks / _TICKS


class CpuWatch(threading.Thread):
    """The CPU time of a process and its descendants, those whose end is ignored among them.

    Ray's raylet ignores the end of its children, whose time the kernel then drops.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._ticks, self._ended = pid, dict[int, int](), threading.Event()

    def run(self) -> None:
        """Look twenty times a second until `stop`."""
        while not self._ended.wait(0.05):
            self._look()

    def used_s(self) -> float:
        """Return the CPU seconds until now."""
        self._look()
        return sum(tuple(self._ticks.values())) / _TICKS

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()

    def _look(self) -> None:
        for each in descendants(self._pid):
            if own := _stat(each)[11:13]:
                self._ticks[each] = sum(map(int, own))


def descendants(pid: int) -> list[int]:
    """Return a process and all that it or its descendants started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process and its descendants during the block."""
    pids = descendants(pid)
    for each in pids:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in pids:
            os.kill(each, signal.SIGCONT)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:  # it has ended
        return []
