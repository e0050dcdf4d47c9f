"""What a running trial uses of its machine: its processes by psutil, its GPUs by NVML.

A thread of its own reads, and a read that fails counts for nothing: a driver that hangs or breaks
must stop neither the trial nor its heartbeats.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any

import psutil

from hpq.domain.usage import READINGS, USAGE, UsageCurves

_TICK_S = 1.0
_PAUSE_S = 5.0  # between two reads; the first follow each other faster
_MOST_CPU = 0.002  # of a core: reads that cost more come less often
_GB = 1 << 30  # as nvidia-smi and torch count
_OWN = "own"
_POINTS = 100  # at most, of usage over time
_LEAST_NEWS = 2  # readings, after which usage is sent again; later, when this part is new:
_NEWS_SHARE = 0.05
_Row = tuple[float, Mapping[str, float]]  # when, in seconds of the attempt, and what was read


class TrialUsage:
    """The readings of one attempt: the thread adds them, the worker's main thread asks."""

    def __init__(self, pid: int = 0, idle_below: float = 0.0) -> None:
        """`pid` is the root of the trial's process tree, `idle_below` percent of GPU use."""
        self.pid, self._idle_below = pid, idle_below
        self.due_at = self._busy_at = time.monotonic()
        self.pause_s = _TICK_S
        self.latest: Mapping[str, float] = {}  # of the last read
        self.idle_s = 0.0  # how long the GPUs have been used less than that, by the last read
        self._found: dict[str, tuple[float, float, int]] = {}  # maximum, sum, number of reads
        self._cpu: tuple[float, float] | None = None  # seconds of CPU so far, and when
        self._began = self.due_at
        self._rows: list[_Row] = []  # of `_width` readings each
        self._newest: list[_Row] = []  # fewer readings
        self._width = 1
        self._count = self._sent = 0  # readings
        self._kills = memory_kills()

    def is_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process at the container's limit since then."""
        return memory_kills() > self._kills

    def add(self, readings: Mapping[str, float], cpu_s: float | None = None) -> None:
        """Add what one read found; `cpu_s` is the CPU time of the tree so far."""
        now, found = time.monotonic(), dict(readings)
        if cpu_s is not None:
            if self._cpu:  # processes that ended take their time with them
                found["cpu"] = max(0.0, cpu_s - self._cpu[0]) / (now - self._cpu[1])
            self._cpu = cpu_s, now
        for name, value in found.items():
            most, total, count = self._found.get(name, (value, 0.0, 0))
            self._found[name] = max(most, value), total + value, count + 1
        self.latest = readings
        self._keep((now - self._began, found))
        if readings.get("gpu.util", self._idle_below) >= self._idle_below:
            self._busy_at = now
        self.idle_s = now - self._busy_at

    def _keep(self, row: _Row) -> None:
        self._newest = [*self._newest, row]
        if len(self._newest) == self._width:
            self._rows = [*self._rows, _joined(self._newest)]
            self._newest = []
        if len(self._rows) == _POINTS:
            pairs = zip(self._rows[::2], self._rows[1::2], strict=True)
            self._rows = [_joined(pair) for pair in pairs]
            self._width *= 2
        self._count += 1

    def news(self, *, is_last: bool = False) -> UsageCurves | None:
        """Return usage over time, if much of it is new, or some when the attempt ends."""
        new = self._count - self._sent
        least = 1 if is_last else max(_LEAST_NEWS, _NEWS_SHARE * self._count)
        if new < least or self._count < _LEAST_NEWS:
            return None
        self._sent = self._count
        newest = self._newest
        rows = [*self._rows, *([_joined(newest)] if newest else [])]
        of = {"gpu.memory_gb": _OWN} if any(_OWN in found for _, found in rows) else {}
        columns = {n: tuple(found.get(of.get(n, n)) for _, found in rows) for n in READINGS}
        return UsageCurves(
            seconds=tuple(at for at, _ in rows),
            values={name: column for name, column in columns.items() if {*column} != {None}},
        )

    def figures(self) -> dict[str, float]:
        """Return maximum and mean of each reading, named as in hpq.domain.trial.USAGE."""
        found = self._found.copy()
        # The GPU's memory stands for the trial's only if the driver never counted that.
        if _OWN in found:
            found["gpu.memory_gb"] = found.pop(_OWN)
        means = {f"{name}.mean": total / count for name, (_, total, count) in found.items()}
        figures = {name: most for name, (most, *_) in found.items()} | means
        return {name: figures[name] for name in USAGE if name in figures}


def _joined(rows: Sequence[_Row]) -> _Row:
    """Return readings that follow each other as one: the maximum of memory, else the mean."""
    names = dict.fromkeys(name for _, found in rows for name in found)
    values = {name: [found[name] for _, found in rows if name in found] for name in names}
    return rows[-1][0], {
        name: max(some) if name.endswith("_gb") or name == _OWN else fmean(some)
        for name, some in values.items()
    }


class UsageReader:
    """Reads for one attempt at a time."""

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        """`gpus` are this slot's, as CUDA_VISIBLE_DEVICES names them."""
        self._gpus = gpus
        self._nvml: Any = None
        self._trial: TrialUsage | None = None
        self._due_at = 0.0

    @property
    def latest(self) -> Mapping[str, float]:
        """What the last read of the running trial found; empty between trials."""
        trial = self._trial
        return {} if trial is None else trial.latest

    def start(self) -> None:
        """Start the thread."""
        Thread(target=self._loop, name="usage", daemon=True).start()

    def begin(self, pid: int, idle_below: float) -> TrialUsage:
        """Read for an attempt from now on."""
        self._trial = trial = TrialUsage(pid, idle_below)
        return trial

    def end(self) -> None:
        """Read no more for the attempt."""
        self._trial = None

    def _loop(self) -> None:
        if self._gpus:
            with suppress(Exception):  # no library, or no driver
                nvml: Any = import_module("pynvml")
                nvml.nvmlInit()
                self._nvml = nvml
        while True:
            time.sleep(_TICK_S)
            trial = self._trial
            if trial is None or time.monotonic() < max(self._due_at, trial.due_at):
                continue
            began_s = time.thread_time()
            try:
                self._read(trial)
            except Exception:  # of a process that ended, or a driver: nothing is known
                trial.add({})
            now, cost_s = time.monotonic(), time.thread_time() - began_s
            self._due_at = now + cost_s / _MOST_CPU
            trial.pause_s = min(_PAUSE_S, 2 * trial.pause_s)
            trial.due_at = now + trial.pause_s - _TICK_S / 2

    def _read(self, trial: TrialUsage) -> None:
        root = psutil.Process(trial.pid)
        rss = 0
        cpu_s = 0.0
        pids = set[int]()
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error), process.oneshot():
                rss += process.memory_info().rss
                cpu_s += sum(process.cpu_times()[:4])  # also of its children that ended
                pids.add(process.pid)
        readings = {"rss_gb": rss / _GB}
        if self._nvml is not None:
            with suppress(Exception):
                readings |= _of_gpus(self._nvml, self._gpus, pids)
        trial.add(readings, cpu_s)


def _of_gpus(nvml: Any, gpus: Sequence[str], pids: set[int]) -> dict[str, float]:
    """Return the mean use in percent, the fullest GPU's memory, and the sum of the power.

    What a GPU or a MIG instance does not know is missing. _OWN is the memory of these processes: a
    driver that does not share their ids, as in most containers, does not count it.
    """
    found: dict[str, list[float]] = {}
    for name in gpus:
        is_index = name.isdigit()
        by = nvml.nvmlDeviceGetHandleByIndex if is_index else nvml.nvmlDeviceGetHandleByUUID
        gpu = by(int(name) if is_index else name)
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
        found.setdefault("gpu.memory_gb", []).append(memory.used / _GB)
        found.setdefault("gpu.size_gb", []).append(memory.total / _GB)
        with suppress(nvml.NVMLError):
            use = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu
            found.setdefault("gpu.util", []).append(use / len(gpus))
        with suppress(nvml.NVMLError):
            watts = nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
            found.setdefault("gpu.power_w", []).append(watts)
        with suppress(nvml.NVMLError):
            users = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
            if own := sum(it.usedGpuMemory or 0 for it in users if it.pid in pids):
                found.setdefault(_OWN, []).append(own / _GB)
    summed = ("gpu.util", "gpu.power_w")
    return {name: (sum if name in summed else max)(values) for name, values in found.items()}


# Of this container: by version 2 of cgroups, then by version 1.
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_EVENTS = ("memory.events", "memory/memory.oom_control")
_CGROUP = Path("/sys/fs/cgroup")


def host_memory_gb() -> float:
    """Return the memory of this machine, or of this container if that is limited."""
    total = int(psutil.virtual_memory().total)
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # another cgroup version; `max`
            total = min(total, int((_CGROUP / name).read_text("ascii")))
    return total / _GB


def memory_kills() -> int:
    """Return how many processes the kernel has killed at this container's limit of memory."""
    for name in _EVENTS:
        with suppress(OSError, ValueError):
            lines = (_CGROUP / name).read_text("ascii").splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0
