"""One training step: forward, backward and update; on a GPU captured once a trial as a CUDA graph.

As in the CIFAR10 article, the loss is summed over the batch: the learning rate is divided by the
batch size and the weight decay multiplied by it, which is the update of a mean loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hpq.errors import BadParams
from hpq_worker.trainers.device import Plan

Batch = tuple[torch.Tensor, torch.Tensor]  # images (B, …) as the network takes them, labels (B,)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits, labels: summed over the batch
_WARM_UPS = 3  # as PyTorch's notes on CUDA graphs advise: libraries choose kernels and allocate


def summed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of logits (B, classes) and labels (B,), summed over the batch."""
    return F.cross_entropy(logits, labels, reduction="sum")


def measure(
    model: nn.Module, batch: Batch, sums: torch.Tensor, plan: Plan, loss_of: Loss
) -> torch.Tensor:
    """Return the batch's loss; add the loss and the number of hits to `sums` (2,) on the device."""
    images, labels = batch
    with torch.autocast(labels.device.type, plan.autocast) if plan.autocast else nullcontext():
        logits = model(images)
    if logits.dtype in (torch.half, torch.bfloat16):
        logits = logits.float()
    loss = loss_of(logits, labels)
    sums[0] += loss.detach()
    sums[1] += (logits.argmax(1) == labels).sum()
    return loss


class Step:
    """A network with its optimizer: each call is one update with a batch, at a learning rate.

    With `plan.graph` the first call captures the step; each call then copies its batch and rate
    into the memory of the capture and replays it. If a network cannot be captured, one line on
    stderr says why and each kernel is launched by itself, which computes the same.
    """

    def __init__(
        self, model: nn.Module, plan: Plan, loss_of: Loss, *, momentum: float, decay: float
    ) -> None:
        self.model, self.plan, self.loss_of = model, plan, loss_of
        self.network = torch.compile(model, dynamic=False) if plan.compile else model
        weights = [p for p in model.parameters() if p.requires_grad]
        place, on_gpu = weights[0].device, weights[0].is_cuda
        # A tensor, so that a captured step takes a new rate; CUDA's kernel reads float32.
        kind = torch.float32 if on_gpu else torch.float64
        self.lr = torch.zeros((), dtype=kind, device=place)
        # float64: a float32 sum of many batches would lose what single images add.
        self.sums = torch.zeros(2, dtype=torch.float64, device=place)
        # torch 2.13's fused update of half precision on a CPU skips weights without momentum.
        fused = on_gpu or plan.dtype in (torch.float32, torch.float64)
        self.sgd = torch.optim.SGD(
            weights, self.lr, momentum, weight_decay=decay, nesterov=momentum > 0, fused=fused
        )
        self.velocity = [torch.zeros_like(p) for p in weights]
        for p, velocity in zip(weights, self.velocity, strict=True):
            self.sgd.state[p]["momentum_buffer"] = velocity
        self.forms: list[str] = []  # of the first batch
        self.graph: torch.cuda.CUDAGraph | None = None
        self.why = "the plan has no graph"  # the step is not captured

    def __call__(self, batch: Batch, lr: torch.Tensor) -> None:
        """Update the weights; `lr` is a number () on the device, for a loss that is a sum.

        Raises:
            BadParams: the batch is of another shape or format than the first was.
        """
        forms = [f"{tuple(part.shape)} {part.dtype}" for part in batch]
        if not self.forms:
            self.forms = forms
            if self.plan.graph:
                self.batch = batch[0].clone(), batch[1].clone()  # the memory that a capture reads
                self._capture()
        if forms != self.forms:  # a copy would broadcast
            raise BadParams(
                f"the training set: a batch has {' and '.join(forms)}, the first had"
                f" {' and '.join(self.forms)}; leave out a last batch that is not whole"
                " (DataLoader: drop_last=True)"
            )
        self.lr.copy_(lr)
        if self.graph is None:
            self._update(batch)
            return
        for own, given in zip(self.batch, batch, strict=True):
            own.copy_(given)
        self.graph.replay()

    def _update(self, batch: Batch) -> None:
        measure(self.network, batch, self.sums, self.plan, self.loss_of).backward()
        self.sgd.step()
        self.sgd.zero_grad(set_to_none=True)

    def _capture(self) -> None:
        """Capture the step; weights, momentum, sums and the GPU's random state stay as they were.

        Raises:
            torch.OutOfMemoryError: a step does not fit into the device's memory.
        """
        state = [*self.model.state_dict().values(), *self.velocity, self.sums]
        saved, random = [tensor.clone() for tensor in state], torch.cuda.get_rng_state()
        try:
            self.graph = _captured(lambda: self._update(self.batch))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever prevents a capture, single launches are right
            self.why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            print(f"hpq: no CUDA graph, steps are launched singly: {self.why}", file=sys.stderr)
            self.sgd.zero_grad(set_to_none=True)
        with torch.no_grad():
            for tensor, before in zip(state, saved, strict=True):
                tensor.copy_(before)
        torch.cuda.set_rng_state(random)


def _captured(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    stream, graph = _side_stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):  # it stays the current one if a capture fails
            for _ in range(_WARM_UPS):
                work()
            # A network that reads a value back fails here, before a capture that it would break.
            torch.cuda.set_sync_debug_mode("error")
            work()
            torch.cuda.set_sync_debug_mode("default")
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                work()
    except Exception:  # after a failed capture, its generator cannot draw
        place = torch.cuda.current_device()
        torch.cuda.default_generators[place].graphsafe_set_state(_new_generator(place))
        raise
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.current_stream().wait_stream(stream)
    return graph


def _new_generator(place: int) -> torch.Generator:
    return torch.Generator(f"cuda:{place}")


@cache
def _side_stream() -> torch.cuda.Stream:
    # One for all captures: cuBLAS keeps a workspace for each stream that it has seen.
    return torch.cuda.Stream()
