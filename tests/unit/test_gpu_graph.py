"""The checks of a captured step, on a graph that is recorded and replayed; each is seen to fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.figures import Figure
from benchmarks.gpu import alike, graph, steps
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, Rows, network, random_data
from tests.recorded_graph import Gpu, Graph, Recorder
from worker.trainers import device, step
from worker.trainers.data import DataSet, Split
from worker.trainers.device import Plan
from worker.trainers.update import Nesterov

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
replay = Graph.replay
PLAN = Plan(dtype=torch.float64, graph=True, whole_epoch=True, fill=8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    step.forget()
    return Gpu(monkeypatch)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("lab")
    data = random_data(folder / "cifar-10-batches-py", 100, 20)
    size = {"width": 4, "epochs": 3, "train_images": 100, "test_images": 20}
    return Lab(data=data, cache=folder, place=torch.device("cpu"), size=size, shrink=16)


def checked(lab: Lab) -> tuple[list[Figure], list[str]]:
    return parted(row for rows in both(lab) for row in rows)


def both(lab: Lab) -> tuple[Rows, Rows]:
    return graph.checked(lab, Clock(), PLAN), graph.broken_off(lab, PLAN)


def parted(found: Rows) -> tuple[list[Figure], list[str]]:
    rows = list(found)
    return [r for r in rows if isinstance(r, Figure)], [r for r in rows if isinstance(r, str)]


def test_a_capture_that_is_right_and_clean_passes_every_check(gpu: Gpu, lab: Lab) -> None:
    figures, said = checked(lab)
    assert said == []
    apart, noise, told, sums, *_ = figures
    assert list(apart.values) == [0.0] * 6 == list(sums.values)  # recorded: bit for bit
    assert noise.values == [0.0] and told.median > 10
    assert not any(figure.is_over for figure in figures)
    # first, in float64, as trials compute, given back; first, after the break, one with dropout
    assert (gpu.graphs, len(gpu.ended)) == (7, 1)
    assert not step._kept


def test_a_number_that_a_replay_keeps_from_the_first_trial_is_seen(gpu, lab, monkeypatch) -> None:
    fill = Nesterov.reset

    def reset(self: Nesterov, *, momentum: float, decay: float) -> None:
        kept = self.__dict__.setdefault("kept", [])
        kept.append((momentum, decay))
        momentum, decay = kept[min(1, len(kept) - 1)]  # the first is of the capture itself
        fill(self, momentum=momentum, decay=decay)

    monkeypatch.setattr(Nesterov, "reset", reset)
    _, said = parted(graph._right("replayed", lab, PLAN))
    assert [line.rpartition(": ")[0] for line in said] == [
        f"failed: replayed, {what} with another {number}"
        for what in ("weights", "sums")
        for number in ("momentum", "decay")
    ]


def test_labels_that_a_replay_keeps_are_seen_on_images_that_lie_class_by_class(
    gpu: Gpu, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sorted(Lab):
        def images(self) -> DataSet:
            found = super().images()
            order = found.train.labels.argsort(stable=True)
            train = Split(images=found.train.images[order], labels=found.train.labels[order])
            return replace(found, train=train)

    take = step.Static.__call__

    def stale(self: step.Static, batch: step.Batch, *given: torch.Tensor) -> None:
        take(self, (batch[0], self._batch[1]), *given)

    monkeypatch.setattr(step.Static, "__call__", stale)
    folders = Sorted(data=lab.data, cache=lab.cache, place=lab.place, size=lab.size, shrink=128)
    _, said = parted(graph._right("replayed", folders, PLAN))  # 8 images, and 10 of each class
    assert {line.partition(" with ")[0] for line in said} == {
        "failed: replayed, weights",
        "failed: replayed, sums",
    }


def test_a_key_that_captures_anew_for_other_numbers_is_seen(gpu, lab, monkeypatch) -> None:
    def afresh(*given: object) -> step.Bench:
        step.forget()
        return bench(*given)

    bench = step.bench
    monkeypatch.setattr(alike, "bench", afresh)
    _, said = parted(graph._right("replayed", lab, PLAN))
    assert said == ["failed: other numbers made another capture, replayed"]


def test_a_step_that_is_not_captured_is_seen(lab: Lab) -> None:
    _, said = checked(lab)  # there is no GPU here, and no stand-in for one
    assert [line.split(":")[1].strip() for line in said] == [
        "no capture in float64",
        "no capture as trials compute",
        "a capture that breaks off says 0 lines",
        "no capture after one that broke off",
    ]


def test_a_network_that_is_captured_though_it_reads_back_is_seen(gpu, lab, monkeypatch) -> None:
    def lets_through(self: Recorder, func, types, args=(), kwargs=None) -> object:
        result = func(*args, **(kwargs or {}))
        self.tape.append((func, args, kwargs or {}, result))
        return result

    monkeypatch.setattr(Recorder, "__torch_dispatch__", lets_through)
    _, said = parted(graph._broken_off(lab, PLAN, 0.0))
    assert said[0] == "failed: a step that reads a value back was captured"


def test_draws_that_come_again_are_seen(gpu, lab, monkeypatch) -> None:
    drawn = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *size, **how: drawn(*size, **how).zero_())
    monkeypatch.setattr(Graph, "replay", lambda self: (torch.manual_seed(0), replay(self)))
    _, said = parted(graph._broken_off(lab, PLAN, 0.0))
    assert [line.partition(" of [")[0] for line in said] == [
        "failed: after a capture that broke off the default generator does not draw anew",
        "failed: a captured dropout gave losses",
    ]


def test_memory_that_stays_reserved_is_seen(gpu, lab, monkeypatch) -> None:
    reads = iter((140.0, 400.0, 110.0))  # after the break, kept, given back
    monkeypatch.setattr(graph, "_memory", lambda: next(reads))
    checks = graph._broken_off, graph._given_back
    figures, said = parted(row for check in checks for row in check(lab, PLAN, 100.0))
    assert [figure.median for figure in figures[-3:]] == [40, 300, 10]
    assert said == [
        "failed: once a capture that broke off, with the next one, is forgotten 40 MiB stay"
        " reserved, at most 32"
    ]


def test_blocks_that_torch_keeps_for_later_are_no_memory_of_a_step(monkeypatch) -> None:
    reserved = [96 * 2**20, 32 * 2**20]  # before and after those that are free are given back
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: reserved.pop(0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved[0])
    assert graph._memory() == 32


def test_what_raises_is_said_and_the_next_check_begins(gpu, lab, monkeypatch) -> None:
    def breaks(*given: object) -> None:
        raise RuntimeError("CUDA error: an illegal\n instruction")

    monkeypatch.setattr(alike, "told_apart", breaks)
    figures, said = parted(graph.checked(lab, Clock(), PLAN))
    assert said == ["failed: RuntimeError: CUDA error: an illegal instruction"] * 2
    assert figures[-1].what == "still reserved once a captured step is forgotten"


def test_without_cuda_it_says_so_and_fails_nothing(lab: Lab) -> None:
    assert list(graph.captured_step(lab, Clock())) == [
        "nothing is captured here: this section needs CUDA"
    ]


def test_out_of_time_it_ends(gpu: Gpu, lab: Lab) -> None:
    with pytest.raises(OutOfTime):
        list(graph.checked(lab, Clock(until=0.0), PLAN))
    assert not torch.backends.cudnn.deterministic


def test_the_updates_that_stand_beside_hpqs_are_captured_and_compute_the_same(gpu, lab) -> None:
    weights = []
    for kind in (None, *steps._KINDS):
        like = steps._first(lab, 8)
        model = network(lab, device.plan(lab.place))
        update = Nesterov(model) if kind is None else steps._Torchs(model, 8, kind)
        taken = step.Static(model, update, like)  # captured, after steps of its own
        assert taken.is_captured
        model.load_state_dict(network(lab, device.plan(lab.place)).state_dict())
        if isinstance(update, Nesterov):
            update.reset(momentum=steps._MOMENTUM, decay=8 * steps._DECAY)
        else:
            for state in update._sgd.state.values():
                state["momentum_buffer"].zero_()
        for _ in range(3):
            taken(like, torch.tensor(steps._RATE / 8), torch.zeros(3, dtype=torch.float64))
        weights.append([p.detach().clone() for p in model.parameters()])
    own, *others = weights
    fresh = list(network(lab, device.plan(lab.place)).parameters())
    for other in others:
        for a, b, was in zip(own, other, fresh, strict=True):
            assert torch.dist(a, b) < 1e-3 * torch.dist(a, was)


def test_the_update_alone_is_captured_without_its_step(gpu: Gpu, lab: Lab) -> None:
    for _, update in steps._each(lab):
        update.capture()
        assert update.is_captured
        update.once()
