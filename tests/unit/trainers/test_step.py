"""A step on a machine without a GPU, in half precision, and where memory or capture fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from hpq.domain.trial import FailureKind
from hpq_worker.runner.failures import of_exception, ruins_process
from hpq_worker.trainers import digits, mnist
from hpq_worker.trainers.networks import ResNet9
from hpq_worker.trainers.training import device, step
from hpq_worker.trainers.training.device import Plan, placed
from hpq_worker.trainers.training.optimizer import Nesterov
from hpq_worker.trainers.training.trial_context import DeviceUnusable

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(20, 10))


def batch(n: int = 6) -> step.Batch:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, 4, 4, generator=generator), torch.arange(n)


def test_a_step_that_cannot_be_captured_is_said_and_taken_singly(capsys) -> None:
    model = network()
    update = Nesterov(model)
    update.reset(momentum=0.9, decay=0.0)
    static = step.Static(model, update, batch())
    static.capture()  # there is no GPU
    assert not static.is_captured
    said = capsys.readouterr().err
    assert said.startswith("hpq: no CUDA graph")
    assert said.count("\n") == 1
    before = model[0].weight.detach().clone()
    sums = torch.zeros(3, dtype=torch.float64)
    static(batch(), torch.tensor(0.1), sums)
    assert not torch.equal(model[0].weight, before)
    assert sums[2] == 6


def test_memory_that_does_not_suffice_gives_up_what_is_kept_and_then_is_typed(monkeypatch) -> None:
    plan, model = Plan(graph=True), network()
    step.bench(model, batch(), "kept", plan)
    captured, calls = step._captured, []

    def short(*given: object) -> step.Bench:
        calls.append(len(step._kept))
        if len(calls) != 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return captured(*given)

    monkeypatch.setattr(step, "_captured", short)
    assert step.bench(model, batch(7), "new", plan).model is not model
    assert (calls, len(step._kept)) == ([1, 0], 1)
    step.forget()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        step.bench(model, batch(8), "other", plan)
    assert of_exception(caught.value).kind is FailureKind.OUT_OF_MEMORY
    assert not step._kept


def test_half_precision_leaves_the_norms_and_loses_neither_rate_nor_momentum() -> None:
    model = placed(network(), CPU, Plan(dtype=torch.half))
    weight, norm = model[0].weight, model[1].weight
    assert (weight.dtype, norm.dtype) == (torch.half, torch.float32)
    update = Nesterov(model)

    update.reset(momentum=0.0, decay=0.0)
    update.rate.fill_(4e-7)  # as at the end of a training: subnormal in half precision
    with torch.no_grad():
        weight.zero_()
        weight.grad = torch.full_like(weight, 1000)
    update.step()
    assert weight.double().mean().item() == pytest.approx(-4e-4, rel=2e-3)
    assert weight.grad is None

    update.reset(momentum=0.99, decay=0.0)
    for _ in range(300):  # 0.99 as half precision has it would come to 2 % more
        weight.grad = torch.ones_like(weight)
        update.step()
    (velocity,) = {v.double().mean().item() for v in update.state_dict()["velocity"][:1]}
    assert velocity == pytest.approx((1 - 0.99**300) / 0.01, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.half, torch.float32, torch.float64])
def test_gradients_enter_as_backward_makes_them_and_none_is_one_of_zero(dtype) -> None:
    plan, steps, states = Plan(dtype=dtype), 3, []
    for given in (True, False):
        model = placed(network(), CPU, plan)
        unused = model[0].bias
        update = Nesterov(model)
        update.reset(momentum=0.9, decay=0.25)
        for _ in range(steps):
            update.rate.fill_(1e-3)
            images, labels = batch()
            F.cross_entropy(model(images.to(dtype)).float(), labels, reduction="sum").backward()
            unused.grad = torch.zeros_like(unused) if given else None
            update.step()
            assert all(p.grad is None for p in model.parameters())
        states.append([*model.state_dict().values(), *update.state_dict()["velocity"]])
    assert all(map(torch.equal, *states))
    fresh = network()[0].bias.to(dtype)
    assert not torch.equal(states[0][1], fresh)  # it decays


def test_what_a_trial_left_of_a_gradient_is_not_the_next_ones() -> None:
    update = Nesterov(model := network())
    before = model[0].weight.detach().clone()
    model[0].weight.grad = torch.ones_like(before)  # as of a backward that broke off
    update.reset(momentum=0.0, decay=0.0)
    update.rate.fill_(1.0)
    update.step()
    assert torch.equal(model[0].weight, before)


def test_norms_other_than_of_batches_are_half_precision_as_their_images_are() -> None:
    layers = nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm1d(4)
    model = placed(nn.Sequential(*layers), CPU, Plan(dtype=torch.half))
    assert [m.weight.dtype for m in model] == [torch.half, torch.half, torch.float32]


def test_channels_that_tensor_cores_do_not_take_whole_are_said_where_there_are_any(capsys) -> None:
    gpu = Plan(dtype=torch.half, fill=8)
    for width, plan in ((8, gpu), (5, Plan())):
        placed(ResNet9(width), CPU, plan)
    assert capsys.readouterr().err == ""
    placed(ResNet9(5), CPU, gpu)
    (line,) = capsys.readouterr().err.splitlines()
    assert "5, 10, 20 channels" in line and "multiples of 8" in line


@pytest.fixture
def picks() -> Iterator[None]:
    """What a test makes this process see of its devices is forgotten afterwards."""
    device._pick.cache_clear()
    yield
    device._pick.cache_clear()


@pytest.mark.usefixtures("picks")
@pytest.mark.parametrize("major", [6, 7])
def test_a_gpu_that_is_too_old_for_torch_is_said_in_one_line(monkeypatch, major) -> None:
    for name, answer in {
        "is_available": True,
        "get_device_capability": (major, 1),
        "get_arch_list": ["sm_75", "sm_80", "sm_90a", "compute_120"],
        "get_device_name": "GeForce GTX 1080",
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(DeviceUnusable) as caught:
        device.pick()
    said = str(caught.value)
    assert said.startswith("GeForce GTX 1080: ") and f"capability {major}.1 " in said
    assert all(word in said for word in (torch.__version__, "7.5", "CUDA_VISIBLE_DEVICES="))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # it is put back afterwards
    assert device.pick().type == "cuda" and torch.backends.cudnn.benchmark


@pytest.mark.parametrize("trainer", [digits, mnist])
def test_images_are_normalised_in_float32_and_rounded_once(trainer) -> None:
    images = torch.arange(17 if trainer is digits else 256, dtype=torch.uint8)[:, None, None]
    scale = 255 if trainer is mnist else 1
    exact = (images.double() - scale * trainer.MEAN) / (scale * trainer.STD)
    found = trainer.normalise(images, torch.half).flatten().double()
    torch.testing.assert_close(found, exact.flatten(), rtol=2**-11, atol=1e-6)  # half a last digit


def test_a_channels_last_weight_stays_so_in_the_buffers_of_the_update() -> None:
    model = placed(network(), CPU, Plan())
    weight = model[0].weight.detach().clone()
    Nesterov(model)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model[0].weight, weight)
    assert all(p.data_ptr() % 64 == 0 for p in model.parameters())


def test_a_gpu_that_torch_cannot_use_is_the_workers_fault_and_one_line(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine's GPU can be used")
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "HPQ_HOME": str(tmp_path)}
    words = [sys.executable, "-m", "hpq.train", "digits", "--set", "epochs=1"]
    done = run(words, env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("GPU 0: torch ")
    assert "CUDA_VISIBLE_DEVICES=" in done.stderr
    assert done.stderr.count("\n") == 1
    failure = of_exception(DeviceUnusable("x"))
    assert failure.kind is FailureKind.WORKER_FAULT
    assert ruins_process(failure)  # CUDA looks for devices once in a process


def test_why_there_is_no_gpu_is_torchs_first_sentence_without_its_advice(monkeypatch) -> None:
    def init() -> None:
        raise RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and"
            " installed a driver from http://www.nvidia.com/Download/index.aspx"
        )

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    assert device.why_no_gpu() == "Found no NVIDIA driver on your system"
