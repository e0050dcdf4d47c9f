"""What trials use of a GPU, read by a real worker from a libnvidia-ml with NVML's C ABI."""

from __future__ import annotations

import csv
import io
import json

import pytest

from hpq.domain.trial import FailureKind
from tests.support.lab import Lab
from tests.support.nvml import GB, FakeNvml

# Each trial sets what the fake driver answers, and goes on when a read has begun and ended since.
PROGRAM = """
    import json, os, sys, time
    from pathlib import Path

    FILE = Path(os.environ["FAKE_NVML"])
    READS = Path(f"{FILE}.reads")
    GB = 1 << 30

    def reads():
        return READS.stat().st_size if READS.exists() else 0

    def set_values(**values):
        draft = FILE.with_suffix(".trial")
        draft.write_text("".join(f"{k} {v}\\n" for k, v in values.items()))
        draft.rename(FILE)
        until = reads() + 2
        while reads() < until:
            time.sleep(0.01)

    params = json.loads(Path(os.environ["HPQ_PARAMS"]).read_text())
    gpu = dict(total=24 * GB, used=30 * GB, util=80, power=300_000, pid=os.getpid())
"""
SWEEP = """
program: train.py
command: ["${env}", python, "${program}"]
method: grid
metric: {name: loss, goal: minimize}
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    nvml = FakeNvml(tmp_path_factory.mktemp("nvml"))
    nvml.set(total=24 * GB, used=30 * GB, util=80, power=300_000)  # until the first trial begins
    return nvml


@pytest.fixture(scope="module")
def worker_env(nvml: FakeNvml) -> dict[str, str]:
    return {**nvml.env, "CUDA_VISIBLE_DEVICES": "GPU-0", "HPQ_TRIALS_PER_GPU": "4"}


@pytest.fixture
def lab(served_lab: Lab) -> Lab:
    """All tests share one worker, on the GPU of the fake driver."""
    return served_lab


def test_use_of_the_gpu_is_shown_filtered_and_named_by_a_failure(lab) -> None:
    """The driver fails in the middle of the first trial; the second runs out of memory."""
    program = """
    gpu["pid_used"] = params["batch"] * GB
    set_values(**gpu)
    if params["batch"] == 23:
        raise MemoryError("CUDA out of memory: the GPU is full")
    set_values(**gpu, error=15)
    print("loss=1")
    """
    lab.write("train.py", PROGRAM + program)
    sid = lab.enqueue(f"{SWEEP}parameters: {{batch: {{values: [2, 23]}}}}\n")
    lab.wait_over(sid)
    sound, full = [lab.trial(sid, n) for n in (1, 2)]
    expected = {"gpu.util": 80, "gpu.util.mean": 80, "gpu.memory_gb": 2, "gpu.size_gb": 24,
                "gpu.power_w": 300}  # fmt: skip
    assert sound.state == "finished" and expected.items() <= sound.usage.items()
    used = lab.reader.usage_curves([sound.id])[0]
    assert used and used.attempt == 1 and {80, None} <= {*used.values["gpu.util"]}
    assert 2 in used.values["gpu.memory_gb"] and len(used.seconds) == len(used.values["rss_gb"])
    assert sound.usage["rss_gb"] > 0 and "cpu" in sound.usage
    assert full.failure.kind is FailureKind.OUT_OF_MEMORY
    assert full.failure.message.endswith("the trial was seen to use 23 of its GPU's 24 GB")
    text = lab.ok("show", f"{sid}/1")
    assert "gpu.memory_gb  2 (mean 2)" in text and "gpu.size_gb    24" in text
    rows = json.loads(lab.ok("results", sid, "--where", "gpu.memory_gb < 20", "-o", "json"))
    assert [(row["trial"], row["usage"]["gpu.util"]) for row in rows] == [(1, 80)]
    table = csv.DictReader(io.StringIO(lab.ok("results", sid, "-o", "csv")))
    assert [row["gpu.memory_gb"] for row in table] == ["2.0", "23.0"]


def test_a_trial_that_leaves_its_gpu_idle_is_ended_and_requeued(lab) -> None:
    program = """
    if os.environ["HPQ_ATTEMPT"] == "1":
        set_values(**gpu | dict(util=9))
        time.sleep(1000)
    set_values(**gpu)
    print("loss=1")
    """
    lab.write("train.py", PROGRAM + program)
    limit = "stall: {gpu_below: 10, for: 1s}"
    sid = lab.enqueue(f"{SWEEP}{limit}\nparameters: {{x: {{value: 1}}}}\n")
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    reasons = [e.fields.get("reason") for e in lab.reader.events.read(sid) if e.what == "requeued"]
    assert reasons == ["stalled"]
    assert "GPU use stayed below 10 % for 1 s" in lab.printed(sid)
    assert "stall  " in lab.ok("show", sid)


def test_a_trial_counts_its_share_of_a_gpu(lab) -> None:
    lab.write("train.py", 'print("loss=1")')
    sid = lab.enqueue(f"{SWEEP}budget: {{gpu_hours: 1}}\nparameters: {{x: {{value: 1}}}}\n")
    lab.wait_over(sid)
    assert float(lab.redis.hget(lab.keys.trial(lab.trial(sid).id), "gpus")) == 0.25
