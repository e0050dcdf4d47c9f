"""The article's published code as the peer: loaded from a checkout, with few changes, never ours.

Without a checkout (ARTICLE_CODE names one) a small stand-in with the same names has its place.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

from benchmarks.gpu.trials import BEST
from benchmarks.upstream import CHANGES, FILES, REPOSITORY, Row, Upstream, load
from hpq.errors import UserError
from tests.unit.test_gpu_benchmark import measured

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
GIVE = f"give a checkout of {REPOSITORY}"

# What is called, and what no longer runs as it stands; a linear layer on mean colours learns.
UTILS = """
import time
import numpy as np
import torch
import torchvision
from torch import nn

device = "no device"
warmed = []
is_number = lambda a: a.shape is ()

def normalise(a):
    return np.array(a, np.float32) / 255

def pad(images, border):
    return images

def transpose(images):
    return images.transpose(0, 3, 1, 2)

def Crop(*sizes):
    return sizes

FlipLR = Cutout = Crop

def Transform(pairs, changes):
    return pairs

def PiecewiseLinear(knots, values):
    return lambda at: np.interp(at, knots, values), knots[-1]

def trainable_params(model):
    return model.parameters()

def nesterov(params, momentum, weight_decay):
    return torch.optim.SGD(params, momentum=momentum, weight_decay=weight_decay, nesterov=True)

def warmup_cudnn(model, size):
    warmed.append(size)

def batches(pairs, size):
    loader = torch.utils.data.DataLoader(pairs, size, pin_memory=True)
    return [(x.to(device).half(), y.to(device)) for x, y in loader]

def train(model, schedule, optimizer, training, tests, batch_size, loggers,
          test_time_in_total, drop_last):
    rate, epochs = schedule
    for epoch in range(epochs):
        began = time.time()
        for x, y in batches(training, batch_size):
            optimizer.param_groups[0]["lr"] = rate(epoch) / batch_size
            optimizer.zero_grad()
            model({"input": x, "target": y})["loss"].backward()
            optimizer.step()
        trained = time.time()
        hits = [model({"input": x, "target": y})["correct"] for x, y in batches(tests, batch_size)]
        hits = np.sum(np.concatenate([h.numpy() for h in hits]), dtype=np.float)
        for logger in loggers:
            logger.append({
                "epoch": epoch + 1, "train time": trained - began,
                "test time": time.time() - trained, "test acc": hits / len(tests),
            })
"""
SCRIPT = """
from utils import *

losses = {"loss": nn.CrossEntropyLoss(reduction="sum")}

def union(*parts):
    return {name: part for some in parts for name, part in some.items()}

def net(channels, use_bn):
    return {"linear": nn.Linear(3, 10), "channels": channels, "use_bn": use_bn}

class TorchGraph(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.linear, self.loss, self.parts = parts["linear"], parts["loss"], parts

    def forward(self, batch):
        logits = self.linear(batch["input"].mean((2, 3)))
        return {
            "loss": self.loss(logits, batch["target"]),
            "correct": logits.max(1)[1] == batch["target"],
        }
"""


@pytest.fixture
def standin(tmp_path: Path) -> Path:
    """A directory with what a checkout has."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name, text in zip(FILES, (UTILS, SCRIPT), strict=True):
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.fixture(params=["a stand-in", "the published code"])
def checkout(request: pytest.FixtureRequest, standin: Path) -> Path:
    if request.param == "a stand-in":
        return standin
    if not os.environ.get("ARTICLE_CODE"):
        pytest.skip(f"ARTICLE_CODE names no checkout of {REPOSITORY}")
    return Path(os.environ["ARTICLE_CODE"])


def test_what_is_measured_beside_it_says_so_and_is_mixed_with_nothing_else(
    tmp_path: Path, checkout: Path
) -> None:
    words = "--small", "--minutes", "2", "--published", str(checkout)
    code, said = measured(tmp_path, *words, "--only", "G1", "parity", "--out", "first")
    assert code == 0, said
    first = tmp_path / "first" / "gpu.json"
    found = json.loads(first.read_text("utf-8"))
    rows = {name: [row["what"] for row in rows] for name, rows in found["benchmarks"].items()}
    assert rows["G1"][-2:] == [
        "G1 the article's published code, 2 epochs scaled up, MFU unknown",
        "G1 hpq, times as fast as the article's published code",
    ]
    assert rows["parity"][:2] == [
        "parity: hpq, 5 seeds", "parity: the article's published code, 2 seeds",
    ]  # fmt: skip
    assert found["conditions"]["peer"].startswith("the article's published code, CRC-32 ")
    assert all(0 <= value <= 100 for value in found["parity"]["theirs"])
    goes_on = "--only", "parity", "--parity-from", str(first)
    code, said = measured(tmp_path, *words, *goes_on, "--out", "second")
    assert code == 0, said
    again = json.loads((tmp_path / "second" / "gpu.json").read_text("utf-8"))
    assert again["parity"] == found["parity"]
    code, said = measured(tmp_path, "--small", *goes_on, "--out", "third")
    assert code == 2
    assert said.splitlines()[-1] == (
        f"benchmarks.gpu: --parity-from {first}: its peer: {found['conditions']['peer']};"
        " here: the article's way"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_a_gpu_it_trains_in_the_precision_that_it_is_loaded_for(
    checkout: Path, dtype: torch.dtype
) -> None:
    random = np.random.default_rng(0)
    arrays = {"train_labels": random.integers(0, 10, 16), "test_labels": random.integers(0, 10, 6)}
    for name, count in (("train_images", 16), ("test_images", 6)):
        arrays[name] = random.integers(0, 256, (count, 32, 32, 3), np.uint8)
    params = {**BEST, "width": 4, "batch_size": 8, "epochs": 2}
    code, cpu, rows = load(checkout, dtype), torch.device("cpu"), list[Row]()
    code.trial(arrays, params, cpu, rows.append)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all(row["epoch/time"] == row["train/time"] + row["test/time"] > 0 for row in rows)
    assert all(0 <= row["test/acc"] <= 1 for row in rows)
    assert {p.dtype for p in code.model(4, True, cpu).parameters()} == {dtype}
    (batch,) = batches(code, [(np.zeros((3, 32, 32), np.float32), 1)])
    assert batch.dtype == dtype
    assert code.utils.normalise(arrays["test_images"]).dtype == str(dtype).removeprefix("torch.")


def batches(code: Upstream, pairs: list[tuple[np.ndarray, int]]) -> list[torch.Tensor]:
    """The images as its loop has them: its name for them is `Batches`, the stand-in's `batches`."""
    if hasattr(code.utils, "Batches"):
        return [batch["input"] for batch in code.utils.Batches(pairs, 1, shuffle=False)]
    return [x for x, _ in code.utils.batches(pairs, 1)]


def test_on_a_gpu_it_keeps_half_precision_and_pinned_memory(checkout: Path) -> None:
    for_a_gpu = [change.pattern for change in CHANGES if torch.half in change.dtypes]
    assert not {r"\.half\(\)", "pin_memory=True"} & set(for_a_gpu)
    model = load(checkout, torch.half).model(4, True, torch.device("cpu"))
    kinds = {type(m): p.dtype for m in model.modules() for p in m.parameters(recurse=False)}
    assert kinds.pop(nn.BatchNorm2d, torch.float32) == torch.float32
    assert set(kinds.values()) == {torch.half}


def test_its_module_named_utils_is_nobody_elses(
    standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ModuleType("utils")
    monkeypatch.setitem(sys.modules, "utils", ours)
    load(standin, torch.float32)
    assert sys.modules["utils"] is ours
    monkeypatch.delitem(sys.modules, "utils")
    load(standin, torch.float32)
    assert "utils" not in sys.modules


def test_another_text_is_another_peer(standin: Path) -> None:
    first = load(standin, torch.float32).crc
    assert load(standin, torch.float64).crc == first
    (standin / FILES[1]).write_text(SCRIPT + "# edited\n", "utf-8")
    assert load(standin, torch.float32).crc != first


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("utils.py", None, f"utils.py: No such file or directory; {GIVE}"),
        ("cifar10_train.py", None, f"cifar10_train.py: No such file or directory; {GIVE}"),
        ("utils.py", b"\xff", f"utils.py: not UTF-8; {GIVE}"),
        ("utils.py", b"import nowhere_at_all", "utils.py does not load: ModuleNotFoundError: No"),
        ("utils.py", b"def", "utils.py does not load: SyntaxError: invalid syntax"),
        ("utils.py", b"exit(3)", "utils.py does not load: SystemExit: 3"),
        ("utils.py", b"", f"utils.py has no device; {GIVE}"),
        ("cifar10_train.py", b"", f"cifar10_train.py has no TorchGraph; {GIVE}"),
    ],
)
def test_what_is_no_such_checkout_is_one_line(
    standin: Path, name: str, text: bytes | None, said: str
) -> None:
    (standin / name).unlink() if text is None else (standin / name).write_bytes(text)
    with pytest.raises(UserError) as caught:
        load(standin, torch.float32)
    assert str(caught.value).startswith(f"{standin}: {said}")
    assert "\n" not in str(caught.value)
    assert "utils" not in sys.modules


def test_it_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    assert measured(tmp_path, "--small", "--published", "nowhere") == (
        2,
        f"benchmarks.gpu: --published nowhere: utils.py: No such file or directory; {GIVE}\n",
    )
    assert not list(tmp_path.glob("gpu-*"))
