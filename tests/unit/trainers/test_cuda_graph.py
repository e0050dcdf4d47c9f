"""The captured step, on a CPU: a graph that is recorded and replayed, and one that cannot be."""

from __future__ import annotations

import gc
import re
import traceback
import weakref
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from hpq_worker.trainers.data import augment
from hpq_worker.trainers.data.batches import augmented, in_order
from hpq_worker.trainers.data.datasets import Split
from hpq_worker.trainers.networks import ResNet9, fill_stem, mnist_net
from hpq_worker.trainers.training import device, loop, step
from hpq_worker.trainers.training.device import Plan, placed, share
from hpq_worker.trainers.training.trial_context import BadParams
from tests.constants import ROOT
from tests.recorded_graph import Gpu
from tests.unit.trainers.test_loop import Recorded, recipe
from tests.unit.trainers.test_parity import PLAN, given, ours

pytestmark = pytest.mark.torch
GRAPH = replace(PLAN, graph=True, whole_epoch=True, fill=8)
__all__ = ["given"]  # the fixture with the images


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def test_replays_give_bit_for_bit_what_plain_steps_give_whatever_a_trial_sets(gpu: Gpu) -> None:
    plain = replace(PLAN, whole_epoch=True, fill=8)
    sets: list[dict[str, object]] = [
        {},
        {"momentum": 0.99, "max_learning_rate": 0.6, "data_aug_cutout_size": 12, "seed": 3},
        {"momentum": 0.0, "weight_decay": 0.0},
        {"batch_norm": "off", "max_learning_rate": 0.01},
        {"batch_size": 5},
        {"epochs": 3},
        {},
    ]
    assert [ours(GRAPH, **s) for s in sets] == [ours(plain, **s) for s in sets]
    assert gpu.graphs == 3  # shapes


def test_a_replay_draws_anew_from_the_generator_that_a_trial_seeds(gpu: Gpu) -> None:
    def dropped() -> list[float]:
        torch.manual_seed(1)
        model = placed(mnist_net(2, 0.5), torch.device("cpu"), GRAPH)
        like = torch.zeros(4, 1, 28, 28, dtype=torch.float64), torch.arange(4)
        own = step.bench(model, like, "mnist", GRAPH)
        own.update.reset(momentum=0.0, decay=0.0)
        own.model.train()
        losses = []
        for _ in range(3):
            sums = torch.zeros(3, dtype=torch.float64)
            own.take((torch.ones_like(like[0]), like[1]), torch.tensor(0.0), sums)
            losses.append(sums[0].item())
        return losses

    first = dropped()
    assert len(set(first)) == 3
    assert dropped() == first  # the kept step, seeded again; the capture itself drew nothing


def test_a_key_that_leaves_a_dropout_out_lets_no_other_network_stand_in(gpu: Gpu) -> None:
    like = torch.zeros(4, 1, 28, 28, dtype=torch.float64), torch.arange(4)
    own = [
        step.bench(placed(mnist_net(2, dropout), torch.device("cpu"), GRAPH), like, "mine", GRAPH)
        for dropout in (0.0, 0.5, 0.0)
    ]
    assert [bench.model[3].p for bench in own] == [0.0, 0.5, 0.0]
    assert own[0] is own[2] and gpu.graphs == 2


@pytest.mark.parametrize("plan", [PLAN, GRAPH], ids=["plain", "graph"])
def test_a_key_of_lists_is_refused_on_every_device(gpu: Gpu, plan: Plan) -> None:
    like = torch.zeros(4, 1, 28, 28, dtype=torch.float64), torch.arange(4)
    with pytest.raises(BadParams, match=r"^key: .*list"):
        step.bench(mnist_net(2, 0.0), like, ("mine", [3]), plan)  # type: ignore[arg-type]


class Peeks(nn.Module):
    """Reads a value back from the device, which a capture does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 10, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (2.0 if x.abs().max().item() > 100 else 1.0)


def test_what_a_capture_that_broke_off_holds_is_given_back(gpu: Gpu, capsys) -> None:
    torch.manual_seed(0)
    model, states = Peeks(), torch.get_rng_state()
    like = torch.zeros(4, 6, dtype=torch.float64), torch.arange(4)
    own = step.bench(model, like, "peeks", GRAPH)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hpq: no CUDA graph") and "RuntimeError: operation not permitted" in line
    assert (gpu.ended, gpu.stream, gpu.graphs) == ([(0, 1)], "default", 0)
    assert torch.equal(torch.get_rng_state(), states)
    sums = torch.zeros(3, dtype=torch.float64)
    own.update.reset(momentum=0.0, decay=0.0)
    own.take((torch.ones_like(like[0]), like[1]), torch.tensor(0.1), sums)
    assert sums[2] == 4 and not torch.equal(own.model.linear.weight, model.linear.weight)


def test_what_torch_does_not_document_is_there_in_this_torch() -> None:
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        assert hasattr(torch._C, name)  # else a broken capture would be cleared up in silence only
    assert hasattr(torch.Generator, "graphsafe_set_state")
    assert isinstance(torch.cuda.default_generators, tuple)


@pytest.mark.parametrize("batch_norm", [True, False])
def test_between_the_draws_and_an_epochs_sums_all_lies_on_the_device(batch_norm: bool) -> None:
    """Meta tensors refuse to meet those of another device, or to be read back."""
    place, plan = torch.device("meta"), replace(GRAPH, dtype=torch.half)
    with place:
        model = ResNet9(4, batch_norm=batch_norm)
    fill_stem(model, plan.fill)
    task = loop.Task(
        model=placed(model, place, plan),
        train=list,
        test=list,
        train_images=10,
        key=("meta", batch_norm),
    )
    recipe = loop.Recipe(
        seed=0, epochs=1, batch_size=4, momentum=0.9, max_learning_rate=0.4, weight_decay=5e-4
    )
    images = torch.zeros(10, 32, 32, 3, dtype=torch.uint8, device=place)
    split = Split(images=images, labels=torch.zeros(10, dtype=torch.int64, device=place))
    batches = list(augmented(split, 4, 5, plan, torch.Generator().manual_seed(0)))
    own, sums = loop._bench(task, recipe, plan, batches[0]), loop._zeros(model)
    for batch in batches:
        assert batch[0].is_contiguous(memory_format=torch.channels_last)
        own.take(batch, torch.zeros((), device=place), sums)
    own.model.eval()
    with torch.no_grad():
        for batch in in_order(split, lambda images: augment.normalise(images, plan.dtype)):
            step.forward(own.model, batch, sums)
    assert sums.is_meta


def test_a_share_of_a_gpu_leaves_room_for_the_contexts_of_all_who_share_it() -> None:
    gib = 2**30
    assert share(2, 141 * gib) == 0.475
    for trials, total in ((2, 16), (4, 16), (4, 80), (8, 141)):
        each = share(trials, total * gib) * total * gib
        assert trials * (each + device._CONTEXT) <= total * gib


def test_memory_that_ends_within_a_trial_is_no_longer_held_by_it(monkeypatch) -> None:
    freed: list[int] = []
    alive: list[object] = []

    class Held:
        def __init__(self) -> None:
            alive.append(self)

        def __del__(self) -> None:
            freed.append(1)

    def short(*_: object) -> None:
        epoch = Held()
        alive.clear()
        assert epoch
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "_train", short)
    monkeypatch.setattr(loop, "forget", lambda: freed.append(2))
    model = nn.Linear(6, 10)
    batches = [(torch.zeros(2, 6), torch.zeros(2, dtype=torch.int64))] * 2
    task = loop.Task(model=model, train=lambda: batches, test=list, train_images=4)
    recipe = loop.Recipe(
        seed=0, epochs=1, batch_size=2, momentum=0.9, max_learning_rate=0.1, weight_decay=0.0
    )

    class Trial:
        checkpoint_dir, checkpoint_s = None, 60.0

    with pytest.raises(torch.OutOfMemoryError):
        loop.fit(task, recipe, Trial(), Plan())  # type: ignore[arg-type]
    assert freed == [1, 2]


def net(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def normed() -> nn.Module:
    return net(nn.BatchNorm2d(3), nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(20, 10))


class Rows(nn.Module):
    """Takes a batch of rows, and one of tables of them as well."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if x.ndim == 2 else self.linear(x.mean(1))


IMAGES = torch.rand(16, 3, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("make", "images", "dtype"),
    [
        (normed, IMAGES.half(), torch.half),
        (lambda: net(nn.Flatten(), nn.Linear(48, 10)), IMAGES, torch.float32),
        (
            lambda: net(nn.Embedding(7, 6), nn.Flatten(), nn.Linear(30, 10)),
            torch.arange(80).view(16, 5) % 7,
            torch.float32,
        ),
        (Rows, IMAGES.flatten(1)[:, :8], torch.float32),
    ],
    ids=["a norm comes first", "flattened", "words", "rows"],
)
def test_a_captured_step_takes_its_form_from_the_first_batch(gpu, make, images, dtype) -> None:
    labels = torch.arange(16) % 10

    def trained(graph: bool) -> dict[str, float]:
        plan, trial = Plan(dtype=dtype, graph=graph), Recorded()
        torch.manual_seed(0)
        task = loop.Task(
            model=placed(make(), torch.device("cpu"), plan),
            train=lambda: zip(images.split(4), labels.split(4), strict=True),
            test=lambda: [(images, labels)],
            train_images=16,
            key="mine",
        )
        loop.fit(task, recipe(), trial, plan)
        return {n: v for n, v in trial.reports[-1][1].items() if not n.endswith("time")}

    step.forget()
    assert trained(True) == trained(False)
    assert gpu.graphs == 1
    step.forget()


@pytest.mark.parametrize("other", [torch.zeros(4, 1), torch.zeros(4, 6).half()])
def test_a_batch_unlike_the_first_is_refused_and_not_made_to_fit(gpu: Gpu, other) -> None:
    labels = torch.arange(4)
    own = step.bench(nn.Linear(6, 10), (torch.zeros(4, 6), labels), "unlike", Plan(graph=True))
    with pytest.raises(BadParams, match=r"images \(4, \d\) float"):
        own.take((other, labels), torch.tensor(0.1), torch.zeros(3, dtype=torch.float64))
    step.forget()


def test_the_example_of_the_page_gives_the_same_figures_captured(
    gpu, monkeypatch, tmp_path
) -> None:
    pytest.importorskip("sklearn")
    page = ROOT / "docs" / "guides" / "training-code.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    example: dict[str, Any] = {}
    exec(code, example)
    params = {"epochs": 1, "rate": 0.1, "hidden": 8}
    figures = []
    for graph in (False, True):
        plan = Plan(graph=graph, whole_epoch=graph)
        monkeypatch.setattr(device, "plan", lambda _, plan=plan: plan)
        trial = Recorded(cache=tmp_path)
        trial.seed = 3
        example["train"](params, trial)
        ((_, metrics),) = trial.reports
        figures.append({n: v for n, v in metrics.items() if not n.endswith("time")})
    assert figures[0] == figures[1]
    assert gpu.graphs == 1
    step.forget()


def test_a_step_whose_capture_fails_for_memory_is_freed_at_once(monkeypatch) -> None:
    made: list[weakref.ref[step.Static]] = []

    def short(self: step.Static) -> None:
        made.append(weakref.ref(self))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(step.Static, "_captured", short)
    gc.disable()
    try:
        static = step.Static(nn.Linear(2, 2), None, (torch.zeros(1, 2), torch.zeros(1)))  # type: ignore[arg-type]
        with pytest.raises(torch.OutOfMemoryError) as caught:
            static.capture()
        traceback.clear_frames(caught.tb)
        del static, caught
        assert made[0]() is None
    finally:
        gc.enable()
