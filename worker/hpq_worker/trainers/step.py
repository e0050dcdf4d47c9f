"""One training step: forward, backward and update; on a GPU captured once a trial as a CUDA graph.

As in the CIFAR10 article, the loss is summed over the batch. `Step` divides the rate by the batch
size and multiplies the decay by it, which is the update of a mean loss.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hpq.errors import BadParams

Batch = tuple[torch.Tensor, torch.Tensor]  # images (B, …) as the network takes them, labels (B,)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits, labels: summed over the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a device computes. Nothing here changes what a hyperparameter means."""

    dtype: torch.dtype = torch.float32  # of weights, gradients and momentum
    autocast: torch.dtype | None = None  # what torch.autocast computes in; None: no autocast
    graph: bool = False  # the training step is one CUDA graph
    compile: bool = False  # the network goes through torch.compile
    channels: int = 3  # zero channels fill up the images of cifar10 to this number


def summed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of logits (B, classes) and labels (B,), summed over the batch."""
    return F.cross_entropy(logits, labels, reduction="sum")


def measure(
    model: nn.Module, batch: Batch, sums: torch.Tensor, plan: Plan, loss_of: Loss
) -> torch.Tensor:
    """Return the batch's loss; add the loss and the number of hits to `sums` (2,) on the device."""
    images, labels = batch
    with torch.autocast(images.device.type, plan.autocast, enabled=plan.autocast is not None):
        logits = model(images)
    if logits.dtype in (torch.half, torch.bfloat16):
        logits = logits.float()
    loss = loss_of(logits, labels)
    sums[0] += loss.detach()
    sums[1] += (logits.argmax(1) == labels).sum()
    return loss


class Step:
    """A network with its optimizer: each call is one update with a batch of `size` images.

    With `plan.graph` the first call captures the step; each call then copies its batch and rate
    into the memory of the capture and replays it. If a network cannot be captured, one line on
    stderr says why and each kernel is launched by itself, which computes the same.

    `sums` adds up loss and hits of all calls; the loop (`fit`) zeroes it before an epoch and reads
    it after, once: nothing else makes the CPU wait for the device.
    """

    def __init__(
        self, model: nn.Module, plan: Plan, loss: Loss, size: int, momentum: float, decay: float
    ) -> None:
        self.model, self.plan, self.loss_of, self.size = model, plan, loss, size
        self.network = torch.compile(model, dynamic=False) if plan.compile else model
        weights = [p for p in model.parameters() if p.requires_grad]
        place, on_gpu = weights[0].device, weights[0].is_cuda
        # A tensor, so that a captured step takes a new rate; CUDA's kernel reads float32.
        self.lr = torch.zeros((), dtype=torch.float32 if on_gpu else torch.float64, device=place)
        # float64: a float32 sum of many batches would lose what single images add.
        self.sums = torch.zeros(2, dtype=torch.float64, device=place)
        # torch 2.13's fused update of half precision on a CPU skips weights without momentum.
        fused = on_gpu or plan.dtype in (torch.float32, torch.float64)
        self.sgd = torch.optim.SGD(
            weights,
            self.lr,
            momentum,
            weight_decay=decay * size,
            nesterov=momentum > 0,
            fused=fused,
        )
        # Made here, as SGD's first update differs from the others, and a capture is of one.
        self.velocity = [torch.zeros_like(p) for p in weights]
        for p, velocity in zip(weights, self.velocity, strict=True):
            self.sgd.state[p]["momentum_buffer"] = velocity
        self.first: list[Any] = []  # shapes and formats of the first batch
        self.graph: torch.cuda.CUDAGraph | None = None
        self.why = "the plan has no graph"  # the step is not captured

    def __call__(self, batch: Batch, lr: torch.Tensor) -> None:
        """Update the weights; `lr` is the rate of a mean loss, a number () on the device.

        Raises:
            BadParams: the batch is of another shape or format than the first was.
        """
        forms = [(tuple(part.shape), part.dtype) for part in batch]
        if not self.first:
            self.first = forms
            if self.plan.graph:
                self.batch = batch[0].clone(), batch[1].clone()  # the memory that a capture reads
                self._capture()
        if forms != self.first:  # a copy would broadcast
            raise BadParams(
                f"the training set: a batch is {forms}, the first was {self.first}; leave out a"
                " last batch that is not whole (DataLoader: drop_last=True)"
            )
        torch.div(lr, self.size, out=self.lr)
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
        held = [*self.model.parameters(), *self.model.buffers()]
        state = [*(tensor.detach() for tensor in held), *self.velocity, self.sums]
        saved, random = [tensor.clone() for tensor in state], torch.cuda.get_rng_state()
        stream, graph = _side_stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            # The side stream stays the current one if a capture fails.
            with torch.cuda.stream(stream), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
                # Warm-ups, as PyTorch's notes advise: libraries choose kernels and allocate. In the
                # last, a network that reads a value back fails; in a capture it would break it.
                for on_reading_back in ("default", "default", "default", "error"):
                    torch.cuda.set_sync_debug_mode(on_reading_back)
                    self._update(self.batch)
                torch.cuda.set_sync_debug_mode("default")
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._update(self.batch)
            self.graph = graph
        except Exception as error:  # whatever prevents a capture, single launches are right
            # After a failed capture its generator cannot draw.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(torch.Generator(generator.device))
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            print(f"hpq: no CUDA graph, steps are launched singly: {self.why}", file=sys.stderr)
            self.sgd.zero_grad(set_to_none=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.current_stream().wait_stream(stream)
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)
        torch.cuda.set_rng_state(random)


@cache
def _side_stream() -> torch.cuda.Stream:
    # One for all captures: cuBLAS keeps a workspace for each stream that it has seen.
    return torch.cuda.Stream()
