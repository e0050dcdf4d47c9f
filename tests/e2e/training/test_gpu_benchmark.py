"""The plan for a GPU in short, on a CPU."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

pytest.importorskip("torch")

from benchmarks import gpu
from tests.support.constants import ROOT
from tests.unit.trainers.test_datasets import batches

pytestmark = pytest.mark.torch


def planned(folder: Path, *words: str) -> CompletedProcess[str]:
    paths = ":".join(str(ROOT / name) for name in ("", "views", "ops", "producer", "worker"))
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")} | {
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "benchmarks.gpu", "out", "--data", str(folder), *words]
    return run(command, env=environ, cwd=folder, capture_output=True, text=True)


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "out" / "gpu.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_parts_run_in_their_order_and_a_later_call_appends(tmp_path: Path) -> None:
    batches(tmp_path / "cifar-10-batches-py")
    code = ROOT / ".published"
    given = ("--published", str(code)) if code.is_dir() else ()
    done = planned(tmp_path, "--small", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(tmp_path)
    assert list(dict.fromkeys(row["part"] for row in found)) == list(gpu.PLAN)
    left_out = {row["part"] for row in found if "left_out" in row}
    assert left_out == (set() if given else {"half", "parity", "published"})
    assert "convolution" in (tmp_path / "out" / "kernels_8.txt").read_text("utf-8")
    assert "2 finished" in (tmp_path / "out" / "sweep.txt").read_text("utf-8")
    assert planned(tmp_path, "--small", "--only", "data").returncode == 0
    assert [row["part"] for row in rows(tmp_path)] == [row["part"] for row in found] + ["data"]


def test_a_part_that_fails_says_so_the_next_runs_and_none_begins_without_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(lab: gpu.Lab, until: float) -> None:
        raise ValueError("x\ny")

    def runs(lab: gpu.Lab, until: float) -> None:
        lab.say("runs", seconds_left=round(until - time.monotonic()))

    parts = {"fails": (9, fails, False), "runs": (9, runs, False), "theirs": (9, runs, True)}
    monkeypatch.setattr(gpu, "PLAN", parts)
    (tmp_path / "out").mkdir()
    lab = gpu.Lab(
        out=tmp_path / "out", data=tmp_path, published=None, is_small=True, began=time.monotonic()
    )
    assert not gpu.run(lab, ["fails", "runs", "theirs"], minutes=1)
    assert gpu.run(lab, ["runs"], minutes=-1)
    failed, ran, theirs, late = rows(tmp_path)
    assert failed["failed"] == "ValueError: x y" and ran["seconds_left"] in (8, 9)
    assert theirs["left_out"] == "no --published" and late["left_out"] == "no time"


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [  # by scipy.stats.t.ppf(0.95, n - 1)
        ([0.0, 0.1, -0.1, 0.2, 0.05, -0.02], -0.0472, 0.1239),
        ([0.01 * (n % 5 - 2) for n in range(21)], -0.0065, 0.0046),
    ],
)
def test_an_interval_is_students(values: list[float], low: float, high: float) -> None:
    assert gpu.interval(values) == (pytest.approx(low, abs=2e-4), pytest.approx(high, abs=2e-4))


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    refused = planned(tmp_path)
    assert refused.returncode == 2 and refused.stderr.startswith("benchmarks.gpu: no GPU")
    assert not (tmp_path / "out").exists()
