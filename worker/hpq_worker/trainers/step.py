"""One training step: forward, backward and update.

The loss is a sum over the batch. `Step` divides the rate by the batch size and multiplies the decay
by it, which is the update of a mean loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]  # images (B, …) as the network takes them, labels (B,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a device computes. Nothing here changes what a hyperparameter means."""

    # Of weights, gradients and momentum; `device.placed` casts, and keeps batch norms in float32.
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None  # what torch.autocast computes in; None: no autocast
    graph: bool = False  # the training step is captured as a CUDA graph


def measure(model: nn.Module, batch: Batch, sums: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Return the batch's cross-entropy; add it and the number of hits to `sums` (2,)."""
    images, labels = batch
    with torch.autocast(images.device.type, plan.autocast, enabled=plan.autocast is not None):
        logits = model(images)
    if logits.dtype in (torch.half, torch.bfloat16):
        logits = logits.float()
    loss = F.cross_entropy(logits, labels, reduction="sum")
    sums[0] += loss.detach()
    sums[1] += (logits.argmax(1) == labels).sum()
    return loss


class Step:
    """A network with its optimizer: each call is one update with a batch of `size` images.

    With `plan.graph` the first call captures the step as one CUDA graph; each call then copies its
    batch and rate into the memory of the capture and replays it. All batches have the form of the
    first.

    `sums` adds up loss and hits of all calls; the loop (`fit`) zeroes it before an epoch and reads
    it once after, so that no step waits for the device.
    """

    def __init__(
        self, model: nn.Module, plan: Plan, size: int, momentum: float, decay: float
    ) -> None:
        self.model = model
        self.plan = plan
        self.size = size
        weights = list(model.parameters())
        # A tensor: a captured step reads the rate from its address; CUDA's kernel needs float32.
        kind = torch.float32 if weights[0].is_cuda else torch.float64
        self.lr = torch.zeros((), dtype=kind, device=weights[0].device)
        # float64: a float32 sum of many batches would lose what single images add.
        self.sums = torch.zeros(2, dtype=torch.float64, device=weights[0].device)
        self.sgd = torch.optim.SGD(
            weights,
            self.lr,
            momentum,
            weight_decay=decay * size,
            nesterov=momentum > 0,
            fused=True,
        )
        # Made here, so that the loop can save it and a capture can put it back.
        self.velocity = [torch.zeros_like(p) for p in weights]
        for p, velocity in zip(weights, self.velocity, strict=True):
            self.sgd.state[p]["momentum_buffer"] = velocity
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Batch, lr: torch.Tensor) -> None:
        """Update the weights; `lr` is the rate of a mean loss, a number () on the device."""
        if self.plan.graph and self.graph is None:
            self.batch = batch[0].clone(), batch[1].clone()  # the memory that a capture reads
            self.graph = self._capture()
        torch.div(lr, self.size, out=self.lr)
        if self.graph is None:
            self._update(batch)
            return
        for own, given in zip(self.batch, batch, strict=True):
            own.copy_(given)
        self.graph.replay()

    def _update(self, batch: Batch) -> None:
        measure(self.model, batch, self.sums, self.plan).backward()
        self.sgd.step()
        self.sgd.zero_grad(set_to_none=True)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Capture the step; the updates before it leave no trace in weights, sums or generators.

        Raises:
            torch.OutOfMemoryError: a step does not fit into the device's memory.
        """
        tensors = [*self.model.parameters(), *self.model.buffers()]
        state = [*(tensor.detach() for tensor in tensors), *self.velocity, self.sums]
        saved = [tensor.clone() for tensor in state]
        random = torch.cuda.get_rng_state()
        stream = _side_stream()
        graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                # Warm-ups, as PyTorch's notes advise: libraries choose kernels and allocate.
                for _ in range(3):
                    self._update(self.batch)
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._update(self.batch)
        except RuntimeError as error:  # the end of a failed capture fails as well
            raise error.__context__ or error from None
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)
        torch.cuda.set_rng_state(random)
        return graph


@cache
def _side_stream() -> torch.cuda.Stream:
    # One for all captures: cuBLAS keeps a workspace for each stream that it has seen.
    return torch.cuda.Stream()
