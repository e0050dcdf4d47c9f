"""Telemetry without a worker: what a thread reads of processes and GPUs, and what is kept of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from hpq.domain.attempt import Outcome
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq.domain.usage import READINGS, USAGE
from hpq.store.wire.trial import encode_usage, encode_usage_curves
from hpq_worker.attempt.outcome import at_memory_limit, with_peak
from hpq_worker.health import usage as usage_module
from hpq_worker.health.usage import TrialUsage, UsageReader
from tests.support.constants import ROOT
from tests.support.nvml import GB, FakeNvml

# pynvml keeps the library that it loaded: each read is by a process of its own.
READ = """
import json, sys, time
from hpq_worker.health.usage import UsageReader
reader = UsageReader(sys.argv[1].split(","))
reader.start()
trial = reader.begin(int(sys.argv[2]), 0.0)
while not (figures := trial.figures()):
    time.sleep(0.01)
print(json.dumps(figures))
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ten seconds pass between two looks at the clock."""
    seconds = count(0, 10)
    monkeypatch.setattr("hpq_worker.health.usage.time.monotonic", lambda: float(next(seconds)))
    yield


def read(gpus: str, **env: str) -> dict[str, float]:
    path = os.pathsep.join(map(str, (ROOT, ROOT / "worker")))
    command = [sys.executable, "-c", READ, gpus, str(os.getpid())]
    env = {**os.environ, "PYTHONPATH": path, **env}
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_maximum_and_mean_of_each_reading_are_kept(clock: None) -> None:
    usage = TrialUsage()
    usage.add({"gpu.util": 50, "rss_gb": 1}, 100.0)
    usage.add({"gpu.util": 100}, 120.0)
    assert usage.figures() == {
        "rss_gb": 1, "rss_gb.mean": 1, "cpu": 2, "cpu.mean": 2, "gpu.util": 100, "gpu.util.mean": 75
    }  # fmt: skip


def test_memory_that_the_driver_counts_for_the_trial_replaces_that_of_the_gpu(clock: None) -> None:
    usage = TrialUsage()
    usage.add({"gpu.memory_gb": 70.0})  # another trial's: this one has just begun
    usage.add({"gpu.memory_gb": 75.0, "own": 5.0})
    assert usage.figures()["gpu.memory_gb"] == 5.0


def test_a_read_that_fails_says_neither_that_the_gpus_are_idle_nor_that_they_were(
    clock: None,
) -> None:
    usage = TrialUsage(idle_below=10)
    usage.add({"gpu.util": 3})
    usage.add({"gpu.util": 9})
    assert usage.idle_s == 20
    usage.add({})
    assert usage.idle_s == 0
    usage.add({"gpu.util": 10})
    assert usage.idle_s == 0


def test_usage_over_time_keeps_few_points_that_cover_the_whole_attempt(clock: None) -> None:
    usage, sent = TrialUsage(), []
    for n in range(10_000):
        usage.add({"gpu.util": n % 2 * 100, "rss_gb": n / 1000})
        if news := usage.news():
            sent.append(news)
    last = sent[-1]
    assert 50 <= len(last.seconds) <= 100 and set(last.values) == {"rss_gb", "gpu.util"}
    apart = [b - a for a, b in zip(last.seconds, last.seconds[1:], strict=False)]
    assert max(apart) == apart[0] and last.seconds[0] < 2 * apart[0], "no part is lost"
    assert {*last.values["gpu.util"][:-1]} == {50} and max(last.values["rss_gb"]) > 9.5
    assert len(sent) < 200 and len(encode_usage_curves(last)) < 2_000
    every = dict.fromkeys(READINGS, (123.456,) * 100)
    assert len(encode_usage_curves(replace(last, seconds=(86_400.0,) * 100, values=every))) < 3_000


def test_usage_over_time_is_sent_from_the_second_reading_and_the_rest_at_the_end(
    clock: None,
) -> None:
    usage = TrialUsage()
    assert usage.news() is None and usage.news(is_last=True) is None
    usage.add({"rss_gb": 1})
    assert usage.news() is None and usage.news(is_last=True) is None, "one is in the figures"
    usage.add({})
    news = usage.news()
    assert news and news.values == {"rss_gb": (1, None)}
    assert usage.news() is None
    usage.add({"own": 5, "gpu.memory_gb": 70}, 1.0)
    news = usage.news(is_last=True)
    assert news and news.values["gpu.memory_gb"] == (None, None, 5), "as the figures"
    assert usage.news(is_last=True) is None


def test_a_machine_without_the_library_reads_the_processes_only(tmp_path: Path) -> None:
    assert set(read("0", LD_LIBRARY_PATH=str(tmp_path))) == {"rss_gb", "rss_gb.mean"}


def test_a_mig_instance_has_memory_and_no_use(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set(total=10 * GB, used=4 * GB, util=50, power=1000)
    found = read("MIG-1", **nvml.env)
    assert (found["gpu.memory_gb"], found["gpu.size_gb"]) == (4, 10)
    assert "gpu.util" not in found and "gpu.power_w" not in found


def test_of_several_gpus_the_fullest_counts_and_use_is_the_mean(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set(total=10 * GB, used=4 * GB, util=50, power=200_000)
    found = read("0,GPU-1", **nvml.env)
    assert (found["gpu.util"], found["gpu.memory_gb"], found["gpu.power_w"]) == (50, 4, 400)


def test_a_driver_that_refuses_leaves_the_figures_of_the_processes(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set(error=999)
    assert "rss_gb" in read("0", **nvml.env)


@pytest.mark.parametrize("value", [0.0, 0.012345, 9.876, 99.994, 1234.5])
def test_figures_of_a_trial_take_at_most_64_bytes(value: float) -> None:
    """One longer value would make Redis keep the trial's hash in its large form."""
    assert len(encode_usage(dict.fromkeys(USAGE, value))) <= 64
    assert encode_usage({"rss_gb": 0.0321, "rss_gb.mean": 0.026}) == "0.03 0.03"


@pytest.mark.parametrize(
    ("kind", "message", "rss", "ends"),
    [
        ("out_of_memory", "CUDA out of memory", 1, "use 23 of its GPU's 24 GB"),
        ("out_of_memory", "MemoryError", 60, "use 60 of this machine's 64 GB"),
        ("killed", "killed by SIGKILL", 60, "use 60 of this machine's 64 GB"),
        ("killed", "killed by SIGKILL", 1950, "use 1950 of this machine's 2015 GB"),
        ("killed", "killed by SIGKILL", 1, "killed by SIGKILL"),
        ("user_error", "CUDA error", 60, "CUDA error"),
    ],
)
def test_a_lack_of_memory_names_the_peak_and_the_size(
    kind: str, message: str, rss: float, ends: str
) -> None:
    outcome = Outcome(
        state=TrialState.FAILED,
        failure=Failure(kind=FailureKind(kind), message=message),
        usage={"rss_gb": rss, "gpu.memory_gb": 23, "gpu.size_gb": 24},
    )
    failure = with_peak(outcome, lambda: 64.0 if rss < 64 else 2015.0).failure
    assert failure is not None and failure.message.endswith(ends)


def test_a_kill_at_the_limit_of_a_pod_is_a_lack_of_memory(monkeypatch, tmp_path: Path) -> None:
    """Also if the kernel kills before a read has seen the memory."""
    monkeypatch.setattr(usage_module, "_CGROUP", tmp_path)
    (tmp_path / "memory").mkdir()
    for name in ("memory.events", "memory/memory.oom_control"):  # of the versions 2 and 1
        (tmp_path / name).write_text("low 0\noom 3\noom_kill 1\noom_group_kill 0\n")
        trial = TrialUsage()
        assert not trial.is_out_of_memory()
        (tmp_path / name).write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
        assert trial.is_out_of_memory()
        (tmp_path / name).unlink()
    assert usage_module.memory_kills() == 0
    killed = Failure(kind=FailureKind.KILLED, message="rank 1: killed by SIGKILL")
    failed = Outcome(state=TrialState.FAILED, failure=killed)
    found = with_peak(at_memory_limit(failed, lambda: True, lambda: 2.0), lambda: 2.0).failure
    assert found is not None and found.kind is FailureKind.OUT_OF_MEMORY
    assert "its container, 2 GB" in found.message
    other = replace(failed, failure=replace(killed, message="exit status 1"))
    assert at_memory_limit(other, lambda: True, lambda: 2.0) == other
    assert at_memory_limit(failed, lambda: False, lambda: 2.0) == failed


def test_torchs_own_account_of_a_full_gpu_counts_and_is_left_to_the_log() -> None:
    """The text is that of torch 2.11 on an H200; the last read was 1.5 s before."""
    text = (
        "exit status 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 25.00 GiB."
        " GPU 0 has a total capacity of 139.80 GiB of which 14.04 GiB is free. Including"
        " non-PyTorch memory, this process has 125.75 GiB memory in use. Of the allocated memory"
        " 125.09 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    )
    outcome = Outcome(
        state=TrialState.FAILED,
        failure=Failure(kind=FailureKind.OUT_OF_MEMORY, message=text),
        usage={"rss_gb": 0.7, "gpu.memory_gb": 101, "gpu.size_gb": 140},
    )
    found = with_peak(outcome, lambda: 64.0)
    assert found.usage["gpu.memory_gb"] == 125.75 and found.failure is not None
    message = found.failure.message
    assert "25.00 GiB; " in message and "126 of its GPU's 140 GB" in message


def test_a_reader_keeps_nothing_of_a_trial_whose_processes_are_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    usage = TrialUsage(gone.pid)
    with pytest.raises(Exception, match="process"):
        UsageReader()._read(usage)
    assert usage.figures() == {}
