"""The step, captured as a graph that is recorded on a CPU, and the device that computes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from hpq.domain.trial import FailureKind
from hpq.errors import DeviceUnusable
from hpq_worker.runner.failures import of_exception, ruins_process
from hpq_worker.trainers import cifar10, device, mnist
from hpq_worker.trainers.data import Batches, Split
from hpq_worker.trainers.device import placed, share
from hpq_worker.trainers.step import Plan, Step, measure
from tests.support.commands import run_hpq
from tests.support.constants import DEADLINE_S
from tests.support.recorded_graph import Gpu, Recorder
from tests.unit.trainers.test_loop import images_and_labels, linear
from tests.unit.trainers.test_parity import PLAN, given, ours

pytestmark = pytest.mark.torch
GRAPH = replace(PLAN, graph=True)
__all__ = ["given"]  # the fixture with the images


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def stepped(model: nn.Module, plan: Plan = PLAN, **numbers: float) -> Step:
    numbers = {"size": 1, "momentum": 0.9, "decay": 0.0, **numbers}
    return Step(placed(model, plan).train(), plan, **numbers)


def rate(value: float = 0.1) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"momentum": 0.99, "max_learning_rate": 0.6, "data_aug_cutout_size": 12, "seed": 3},
        {"momentum": 0.0, "weight_decay": 0.0},
        {"batch_norm": "off", "max_learning_rate": 0.01},
    ],
)
def test_replays_give_bit_for_bit_what_plain_steps_give(gpu: Gpu, params) -> None:
    assert ours(GRAPH, **params) == ours(replace(GRAPH, graph=False), **params)
    assert [graph.replays for graph in gpu.graphs] == [2 * 2]  # epochs of 2 steps


def test_a_capture_leaves_weights_momentum_sums_and_random_states_as_they_were(gpu: Gpu) -> None:
    step, batch = stepped(linear(), GRAPH), images_and_labels(4)
    step(batch, rate(0.0))
    assert gpu.graphs and torch.equal(step.model.weight, linear().double().weight)
    loss = F.cross_entropy(linear().double()(batch[0]), batch[1], reduction="sum").item()
    assert step.sums[0].item() == pytest.approx(loss)  # of one step, and not of the warm-ups
    once = stepped(linear())
    once(batch, rate(0.0))
    assert all(map(torch.equal, step.velocity, once.velocity))


class Counts(nn.Linear):
    """Scales its output by the number of its calls, which a state_dict leaves out."""

    def __init__(self) -> None:
        super().__init__(6, 10)
        self.load_state_dict(linear().state_dict())
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


def test_a_capture_leaves_a_buffer_that_no_checkpoint_holds_as_it_was(gpu: Gpu) -> None:
    captured, plain = stepped(Counts(), GRAPH), stepped(Counts())
    for step in (captured, plain):
        for _ in range(2):
            step(images_and_labels(4), rate())
    assert gpu.graphs and captured.model.calls == plain.model.calls == 2
    assert torch.equal(captured.model.weight, plain.model.weight)


def test_a_replay_draws_anew_from_the_generator_that_a_trial_seeds(gpu: Gpu) -> None:
    def losses() -> list[float]:
        torch.manual_seed(1)
        step, found = stepped(mnist.network(2, 0.5), GRAPH), [0.0]
        for _ in range(3):
            images = torch.ones(4, 1, 28, 28, dtype=torch.float64)
            step((images, torch.arange(4)), rate(0.0))
            found.append(step.sums[0].item())
        return [b - a for a, b in pairwise(found)]

    first = losses()
    assert len(set(first)) == 3
    assert losses() == first and len(gpu.graphs) == 2


def test_memory_that_ends_in_a_capture_ends_the_trial_as_out_of_memory(gpu: Gpu) -> None:
    class Large(nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls == 4:  # after the warm-ups
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(x)

    with pytest.raises(torch.OutOfMemoryError) as caught:
        stepped(Large(6, 10), GRAPH)(images_and_labels(4), rate())
    assert of_exception(caught.value).kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize("batch_norm", [True, False])
def test_between_the_draws_and_an_epochs_sums_nothing_is_read_back(gpu: Gpu, batch_norm) -> None:
    plan = replace(GRAPH, dtype=torch.float32)
    images = torch.zeros(10, 32, 32, 3, dtype=torch.uint8)
    split = Split(images=images, labels=torch.zeros(10, dtype=torch.int64))
    train = cifar10.Augmented(split, 4, 5, 0, plan)
    train.at_once = 8
    step = stepped(cifar10.ResNet9(4, batch_norm=batch_norm), plan)
    every = rate().view(1)
    batches = list(train)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in batches)
    step(batches[0], every[0])  # what is captured is recorded there
    with Recorder(note=False):
        batches = list(train)
        step(batches[1], every[0])
        step.model.eval()
        with torch.no_grad():
            for batch in Batches(split, lambda images: cifar10.normalize(images, plan)):
                measure(step.model, batch, step.sums, plan)
    assert gpu.graphs


def test_half_precision_leaves_the_norms_in_float32() -> None:
    plan = Plan(dtype=torch.half)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(4, 4))
    assert [m.weight.dtype for m in placed(model, plan)] == [torch.half, torch.float32, torch.half]


def test_a_gpu_has_captured_steps_float32_weights_and_bfloat16_autocast(monkeypatch) -> None:
    assert device.plan(dtype=torch.half) == Plan()  # on a CPU
    monkeypatch.setattr(device, "pick", lambda: torch.device("cuda"))
    for has_bf16, autocast in ((True, torch.bfloat16), (False, None)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation, has=has_bf16: has
        )
        assert device.plan() == Plan(autocast=autocast, graph=True)


def test_autocast_computes_in_bfloat16_and_keeps_float32_weights() -> None:
    plan, seen = Plan(autocast=torch.bfloat16), []
    step = stepped(linear(), plan)
    step.model.register_forward_hook(lambda _, __, logits: seen.append(logits.dtype))
    images, labels = images_and_labels(4)
    step((images.float(), labels), rate())
    assert seen == [torch.bfloat16]
    assert {t.dtype for t in (step.model.weight, *step.velocity)} == {torch.float32}


@pytest.fixture
def picks() -> Iterator[None]:
    """What a test makes this process see of its devices is forgotten afterwards."""
    device.pick.cache_clear()
    yield
    device.pick.cache_clear()


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


def test_a_gpu_that_torch_cannot_use_is_the_workers_fault_and_one_line(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine's GPU can be used")
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "HPQ_HOME": str(tmp_path)}
    done = run_hpq(["try", "digits", "--set", "epochs=1"], tmp_path, environ, DEADLINE_S)
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    *_, last = done.stderr.splitlines()
    assert "GPU 0: torch " in last and "CUDA_VISIBLE_DEVICES=" in last
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


def test_a_share_of_a_gpu_leaves_room_for_the_contexts_of_all_who_share_it() -> None:
    gib = 2**30
    assert share(2, 141 * gib) == 0.475
    for trials, total in ((2, 16), (4, 16), (4, 80), (8, 141)):
        each = share(trials, total * gib) * total * gib
        assert trials * (each + device._CONTEXT) <= total * gib
