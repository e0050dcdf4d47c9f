"""One training step, and the same step as a CUDA graph.

A captured step reads its batch, rate, momentum and decay from the device's memory, so one capture
serves every trial of its shape. The last four are kept, with the networks they were captured on.

What a capture that broke off leaves taken in torch, and how it is taken back.

Torch takes it back itself where a capture ends well, and in its newer versions some of it where it
does not (pytorch#180395, #190348). So each part is looked at, and taken back where it is left: its
memory would stay taken, and its generator refuse to draw for the next trial.
"""

from __future__ import annotations

import copy
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.optimizer import Nesterov
from hpq_worker.trainers.training.trial_context import BadParams

Pool = tuple[int, int]
# Torch's allocator of pinned memory goes on asking the graph whether it is being captured.
_asked: list[torch.cuda.CUDAGraph] = []


def clear_up(graph: torch.cuda.CUDAGraph, pool: Pool, error: BaseException) -> None:
    """Take back the memory and the generator of the graph whose capture ended with `error`.

    All steps captured before are of no use afterwards: their draws come from a state of the
    generator that nobody seeds any more.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)  # they hold tensors of the capture
        cause = cause.__context__
    place = torch.cuda.current_device()
    _asked.append(graph)
    with suppress(Exception):  # newer torch has ended it
        torch._C._cuda_endAllocateToPool(place, pool)
    with suppress(Exception):  # in newer torch it gives the pool back
        graph.reset()
    torch.cuda.empty_cache()
    if _is_kept_empty(pool):
        with suppress(Exception):
            torch._C._cuda_releasePool(place, pool)
        torch.cuda.empty_cache()
    generator = torch.cuda.default_generators[place]
    generator.graphsafe_set_state(torch.Generator(torch.device("cuda", place)))


def _is_kept_empty(pool: Pool) -> bool:
    """Whether memory is reserved for the pool, and none of it in use.

    To give a pool back twice would break the allocator. One in use cannot be told from one that
    was given back and is not empty yet; so that is left: a leak, at worst, of one step's memory.
    """
    segments = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == pool]
    return bool(segments) and not any(s["allocated_size"] for s in segments)


KEPT = 4  # captured steps; each holds the memory of one step
_WARM_UPS = 3  # as PyTorch's notes on CUDA graphs have it: libraries choose and allocate meanwhile

Batch = tuple[torch.Tensor, torch.Tensor]  # images (B, C, H, W), labels (B,) int64
Take = Callable[[Batch, torch.Tensor, torch.Tensor], None]


def forward(
    model: nn.Module, batch: Batch, sums: torch.Tensor, smoothing: float = 0.0
) -> torch.Tensor:
    """The summed loss; adds the batch's loss, hits and size to `sums` (3,) on the device."""
    images, labels = batch
    logits = model(images)
    logits = logits.float() if logits.dtype in (torch.half, torch.bfloat16) else logits
    loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    sums[0] += loss.detach()
    sums[1] += (logits.argmax(1) == labels).sum()
    sums[2] += len(labels)
    return loss


def train_step(
    model: nn.Module, update: Nesterov, batch: Batch, sums: torch.Tensor, smoothing: float = 0.0
) -> None:
    """One update, at the rate that `update` holds."""
    forward(model, batch, sums, smoothing).backward()
    update.step()


class Static:
    """A step between buffers that stay where they are; captured, if it can be."""

    def __init__(
        self, model: nn.Module, update: Nesterov, like: Batch, smoothing: float = 0.0
    ) -> None:
        self._model, self._update, self._smoothing = model, update, smoothing
        self._batch = like[0].clone(), like[1].clone()
        self._sums = torch.zeros(3, dtype=torch.float64, device=like[1].device)
        self._replay: Callable[[], None] | None = None
        self.why = "nothing was captured"  # that each kernel is launched by itself

    @property
    def is_captured(self) -> bool:
        """False where each kernel is launched by itself."""
        return self._replay is not None

    def __call__(self, batch: Batch, rate: torch.Tensor, sums: torch.Tensor) -> None:
        """One update with this batch at this rate; adds what it sums up to `sums`.

        Raises:
            BadParams: the batch is of another shape or format than the first was.
        """
        for name, own, given in zip(("images", "labels"), self._batch, batch, strict=True):
            if own.shape != given.shape or own.dtype != given.dtype:  # a copy would make it fit
                raise BadParams(
                    f"a batch has {name} {_form(given)}, the first batch had {_form(own)}; with a"
                    " key all training batches are alike: leave `key` out, or mend the batches"
                )
            own.copy_(given)
        self._update.rate.copy_(rate)
        self._sums.zero_()
        (self._replay or self._run)()
        sums += self._sums

    def _run(self) -> None:
        train_step(self._model, self._update, self._batch, self._sums, self._smoothing)

    def capture(self) -> None:
        """Make a CUDA graph of the step; where that cannot be, say so and go on without.

        Weights and velocities are of no use afterwards; random states stay as they were.

        Raises:
            torch.OutOfMemoryError: a step does not fit into the device's memory.
        """
        try:
            self._replay = self._captured()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever kept it from being captured, eager steps are right
            self._model = getattr(self._model, "_orig_mod", self._model)  # nor is it compiled
            self.why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            print(f"hpq: no CUDA graph, steps are launched singly: {self.why}", file=sys.stderr)

    def _captured(self) -> Callable[[], None]:
        self._model.train()
        states, pool = torch.cuda.get_rng_state(), torch.cuda.graph_pool_handle()
        graph, stream = torch.cuda.CUDAGraph(), _side_stream()
        stream.wait_stream(torch.cuda.current_stream())
        began = False
        try:
            with torch.cuda.stream(stream):  # torch's own `graph` stays on it where a capture fails
                for _ in range(_WARM_UPS):
                    self._run()
                began = True
                with torch.cuda.graph(
                    graph, pool=pool, stream=stream, capture_error_mode="thread_local"
                ):
                    self._run()
        except Exception as error:
            if began:
                self._model.zero_grad(set_to_none=True)  # they lie in the capture's memory
                clear_up(graph, pool, error)
                _kept.clear()  # of no use any more, as clear_up says
            raise
        finally:  # also of a capture that broke off: its warm-ups wrote the weights on that stream
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.set_rng_state(states)
        return graph.replay


def _form(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


@cache
def _side_stream() -> torch.cuda.Stream:
    # One for all captures: cuBLAS keeps a workspace for each stream that it has seen.
    return torch.cuda.Stream()


def eager(model: nn.Module, update: Nesterov, smoothing: float = 0.0) -> Take:
    """A step on the batch as it comes."""

    def take(batch: Batch, rate: torch.Tensor, sums: torch.Tensor) -> None:
        update.rate.copy_(rate)
        train_step(model, update, batch, sums, smoothing)

    return take


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What one trial trains on: a network, its optimizer, and how a step is taken."""

    model: nn.Module
    update: Nesterov
    take: Take


_kept: OrderedDict[Hashable, Bench] = OrderedDict()


def bench(
    model: nn.Module, like: Batch, key: Hashable, plan: Plan, smoothing: float = 0.0
) -> Bench:
    """A bench with the weights of `model`: the one kept for this key, else `model`'s own.

    `like` is a batch as all will be. Without a key nothing is captured or kept. Networks that print
    otherwise (a width, a dropout) are others, also where the key does not say so.

    Raises:
        BadParams: the key is none of a dictionary.
    """
    _check_hashable(key)  # on every device: a key that fails on a GPU alone is found too late
    if key is None or not plan.graph:
        update = Nesterov(model)
        take = eager(_compiled(model, plan), update, smoothing)
        return Bench(model=model, update=update, take=take)
    key = key, repr(model), tuple(map(_form, like)), plan, smoothing
    if key not in _kept:
        while len(_kept) >= KEPT:
            _kept.popitem(last=False)
        others, made = len(_kept), None
        try:
            made = _captured(model, like, plan, smoothing)
        except torch.OutOfMemoryError:
            if not others:
                raise
        if made is None:  # out of the except: its traceback holds what the first attempt took
            forget()  # other shapes' memory is worth less than this trial
            made = _captured(model, like, plan, smoothing)
        _kept[key] = made
    _kept.move_to_end(key)
    found = _kept[key]
    found.model.load_state_dict(model.state_dict())
    return found


def _check_hashable(key: Hashable) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise BadParams(f"key: {error}; make it of names, numbers and tuples") from None


def is_captured() -> bool:
    """Whether the step that was used last is a CUDA graph."""
    return not why_not_captured()


def why_not_captured() -> str:
    """Why the step that was used last is no CUDA graph; "" where it is one."""
    last = next(reversed(_kept.values()), None)
    if last is None or not isinstance(last.take, Static):
        return "no step is kept"
    return "" if last.take.is_captured else last.take.why


def forget() -> None:
    """Give all kept steps and their memory back."""
    _kept.clear()
    if torch.cuda.is_available():
        with suppress(RuntimeError):  # a device that failed refuses this too; it has been said
            torch.cuda.empty_cache()


def _captured(model: nn.Module, like: Batch, plan: Plan, smoothing: float) -> Bench:
    # The caller's network keeps its weights: a capture trains a few steps.
    own = copy.deepcopy(model)
    update = Nesterov(own)
    update.reset(momentum=0.0, decay=0.0)
    step = Static(_compiled(own, plan), update, like, smoothing)
    if like[0].is_cuda:
        step.capture()
    return Bench(model=own, update=update, take=step)


def _compiled(model: nn.Module, plan: Plan) -> nn.Module:
    return torch.compile(model, dynamic=False) if plan.compiled else model
