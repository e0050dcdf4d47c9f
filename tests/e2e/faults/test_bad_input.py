"""Bad input of built-in trainers, and memory that ends: one line each, the worker goes on.

On a real worker. What is refused before anything is queued: tests/unit/sweepfile/test_errors.py.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from hpq.datasets import CIFAR10_CLASSES
from hpq.domain.trial import TrialState

pytest.importorskip("torch")
pytest.importorskip("sklearn")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

DIGITS = """
    trainer: digits
    method: grid
    parameters: {epochs: {value: 1}, hidden: {values: [4, 8]}}
"""
MNIST = """
    trainer: mnist
    method: grid
    parameters:
      epochs: {value: 1}
      batch_size: {values: [8, 16]}
      width: {value: 3}
      train_images: {values: [10, 20]}
      test_images: {value: 20}
"""
CIFAR10 = "trainer: cifar10\nmethod: grid\nparameters: {epochs: {value: 1}}\n"
MEMORY = """
    import os
    import torch

    def train(params, trial):
        print(f"pid {os.getpid()}", flush=True)
        if params["mode"] == "memory of a GPU":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        if params["mode"] == "memory of the machine":
            torch.empty(2**60)
        return {"test/acc": 0.5}
"""


@pytest.fixture
def lab(lab):
    lab.env["OMP_NUM_THREADS"] = "1"  # so small a network only waits for further threads
    return lab


def mine(lab, *modes: str) -> str:
    lab.write("mine.py", MEMORY)
    return lab.enqueue(
        "trainer: mine:train\nresident: true\nmethod: grid\nmetric: {name: test/acc}\n"
        f"parameters: {{mode: {{values: {list(modes)}}}}}\n"
    )


def failures(lab, sid: str) -> dict[str, tuple[str, str]]:
    """By the trial's last parameter."""
    return {
        str(list(trial.params.values())[-1]): (trial.failure.kind.value, trial.failure.message)
        for trial in lab.reader.trials.all(sid)
        if trial.failure
    }


def process(lab, sid: str, number: int) -> set[str]:
    return set(re.findall(r"pid (\d+)", lab.printed(sid, number)))


def idx(path: Path, shape: tuple[int, ...]) -> None:
    head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    count = 1 if len(shape) == 1 else 28 * 28
    path.write_bytes(head + bytes(i % 10 for i in range(shape[0] * count)))


def mnist(folder: Path) -> Path:
    """Twenty digits to train on and twenty to test."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train", "t10k"):
        idx(raw / f"{name}-images-idx3-ubyte", (20, 28, 28))
        idx(raw / f"{name}-labels-idx1-ubyte", (20,))
    return raw


def test_a_gpu_that_cannot_be_used_is_said_and_the_trial_goes_back_uncharged(lab) -> None:
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        pytest.skip("this machine's GPU can be used")
    sid, other = lab.enqueue(DIGITS), lab.steered(1)
    lab.go()
    lab.worker(CUDA_VISIBLE_DEVICES="0")
    lab.wait_over(other)  # it goes on with what needs no GPU
    why = "GPU 0: torch "
    lab.wait_until(lambda: re.search(f"{sid}/1 .*{why}.*\\[worker-fault\\]", lab.log()), "its line")
    watched = lambda: lab.ok("watch", sid, "--once", COLUMNS="300")  # noqa: E731
    reason = f"{why}.* CUDA_VISIBLE_DEVICES= "
    lab.wait_until(
        lambda: re.search(reason, watched()), "the reason beside its worker", every_s=0.5
    )
    lab.worker()  # another machine
    lab.wait_over(sid)
    assert [t.state for t in lab.reader.trials.all(sid)] == [TrialState.FINISHED] * 2
    assert failures(lab, sid) == {}


def test_data_that_is_damaged_or_of_another_shape_is_said_and_other_sweeps_go_on(lab) -> None:
    from PIL import Image  # noqa: PLC0415

    data = lab.folder / "data"
    raw = mnist(data)
    torn = raw / "train-images-idx3-ubyte"
    torn.write_bytes(torn.read_bytes()[:-1])
    for split, name in product(("train", "test"), CIFAR10_CLASSES):
        folder = data / "cifar10" / split / name
        folder.mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(folder / "0.png")
    damaged, misshapen = lab.enqueue(MNIST), lab.enqueue(CIFAR10)
    other = lab.enqueue(DIGITS)
    lab.worker(HPQ_DATA=str(data))
    lab.wait_over(other)
    for sid, words in (
        (damaged, [str(data / "MNIST"), "train-images-idx3-ubyte"]),
        (misshapen, [str(data / "cifar10"), "train/airplane/0.png", "16x16", "32x32"]),
    ):
        told = [one for one in lab.log().splitlines() if f"{sid}/1 " in one]
        line = next(one for one in told if "[data-missing]" in one)
        page = " ".join(lab.ok("watch", sid, "--once", COLUMNS="400").split())
        assert all(word in line and word in page for word in words), (line, page)
    counts = lab.reader.sweeps.get(damaged).counts
    assert (counts.queued + counts.running, counts.failed) == (4, 0)  # it is tried again


def test_a_batch_larger_than_the_images_fails_alone(lab) -> None:
    mnist(lab.folder / "data")
    path = lab.write("sweep.yaml", MNIST)
    done = lab.hpq("enqueue", path)
    sid = done.stdout.strip()
    lab.worker(HPQ_DATA=str(lab.folder / "data"))
    lab.wait_over(sid)
    trials = {tuple(t.params[n] for n in ("batch_size", "train_images")): t
              for t in lab.reader.trials.all(sid)}  # fmt: skip
    bad = trials.pop((16, 10))
    line = bad.failure.message
    assert (bad.failure.kind, bad.attempt) == ("bad_params", 1)
    assert line.startswith("batch_size: 16 ")
    assert [t.state for t in trials.values()] == [TrialState.FINISHED] * 3
    assert line in lab.ok("show", str(bad.id))


def test_memory_that_does_not_suffice_is_typed_and_the_next_trial_has_a_new_process(lab) -> None:
    sid = mine(lab, "memory of a GPU", "memory of the machine", "as it should be")
    lab.worker()
    lab.wait_over(sid)
    got = failures(lab, sid)
    line_of_gpu = "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert got["memory of a GPU"] == ("out_of_memory", line_of_gpu)
    kind, line = got["memory of the machine"]
    assert kind == "out_of_memory" and "allocate" in line
    assert lab.trial(sid, 3).state is TrialState.FINISHED
    pids = [process(lab, sid, number) for number in (1, 2, 3)]
    assert len(set.union(*pids)) == sum(map(len, pids))  # none is used again
    shown = lab.ok("show", f"{sid}/1").split("\n")
    assert shown[2].split() == ["failed", "out", "of", "memory"] and shown[3].endswith(line_of_gpu)
