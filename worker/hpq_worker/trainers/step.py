"""One training step: forward, backward and update.

On a GPU with `plan.graph`, the first call captures the whole step as one CUDA graph. The loss is a
sum over the batch. `Step` divides the rate by the batch size and multiplies the decay by it, which
is the update of a mean loss.
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

    # Of weights, gradients and momentum; `device.placed` casts, and keeps batch norms in float32.
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None  # what torch.autocast computes in; None: no autocast
    graph: bool = False  # the training step is captured as a CUDA graph
    compile: bool = False  # the network goes through torch.compile
    channels: int = 3  # images of cifar10 are padded with channels of zeros to this number


def summed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of logits (B, classes) and labels (B,), summed over the batch."""
    return F.cross_entropy(logits, labels, reduction="sum")


def measure(
    model: nn.Module, batch: Batch, sums: torch.Tensor, plan: Plan, loss_of: Loss
) -> torch.Tensor:
    """Return the batch's loss; add the loss and the number of hits to `sums` (2,) on the device.

    Raises:
        BadParams: the network or the labels have another shape than those of a classifier, or
            the images another dtype than the plan.
    """
    images, labels = batch
    with torch.autocast(images.device.type, plan.autocast, enabled=plan.autocast is not None):
        try:
            logits = model(images)
        except RuntimeError as error:
            if images.dtype == plan.dtype or "type" not in str(error):
                raise
            text = f"plan: its dtype is {plan.dtype}, that of the images {images.dtype}"
            raise BadParams(f"{text}; convert the images, or pass another Plan ({error})") from None
    shape = tuple(getattr(logits, "shape", ()))
    if len(shape) != 2 or tuple(labels.shape) != shape[:1]:  # other hits would be nonsense
        returned = shape or type(logits).__name__
        given = tuple(labels.shape)
        raise BadParams(
            f"the network: it returns {returned} for labels {given};"
            " logits are (B, classes), for labels (B,)"
        )
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
    stderr says why, and the steps run without a graph, with the same results.

    `sums` adds up loss and hits of all calls; the loop (`fit`) zeroes it before an epoch and reads
    it once after, so that no step waits for the device.
    """

    def __init__(
        self, model: nn.Module, plan: Plan, loss: Loss, size: int, momentum: float, decay: float
    ) -> None:
        self.model = model
        self.plan = plan
        self.loss_of = loss
        self.size = size
        self.network = torch.compile(model, dynamic=False) if plan.compile else model
        weights = [p for p in model.parameters() if p.requires_grad]
        device = weights[0].device
        on_gpu = weights[0].is_cuda
        # A tensor: a captured step reads the rate from its address; CUDA's kernel needs float32.
        self.lr = torch.zeros((), dtype=torch.float32 if on_gpu else torch.float64, device=device)
        # float64: a float32 sum of many batches would lose what single images add.
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        # On a CPU torch 2.13's fused update leaves most weights of half precision unchanged.
        fused = on_gpu or plan.dtype in (torch.float32, torch.float64)
        self.sgd = torch.optim.SGD(
            weights,
            self.lr,
            momentum,
            weight_decay=decay * size,
            nesterov=momentum > 0,
            fused=fused,
        )
        # Made here, so that the loop can save it and a capture can put it back.
        self.velocity = [torch.zeros_like(p) for p in weights]
        for p, velocity in zip(weights, self.velocity, strict=True):
            self.sgd.state[p]["momentum_buffer"] = velocity
        self.forms: list[Any] = []  # shape and dtype of images and labels of the first batch
        self.graph: torch.cuda.CUDAGraph | None = None
        self.why_eager = ""  # why the capture failed

    def __call__(self, batch: Batch, lr: torch.Tensor) -> None:
        """Update the weights; `lr` is the rate of a mean loss, a number () on the device.

        Raises:
            BadParams: a batch has another shape or type than the first.
        """
        forms = [(tuple(part.shape), part.dtype) for part in batch]
        if not self.forms:
            self.forms = forms
            if self.plan.graph:
                self.batch = batch[0].clone(), batch[1].clone()  # the memory that a capture reads
                self._capture()
        if forms != self.forms:  # the rate is for `size` images, and copy_ would broadcast fewer
            raise BadParams(
                f"the training set: a batch is {forms}, the first was {self.forms}; leave out a"
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
        """Capture the step; the updates before it leave no trace in weights, sums or generators.

        Raises:
            BadParams: the network or the labels are not those of a classifier.
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
            # After a failed capture, torch.cuda.graph does not restore the current stream.
            with torch.cuda.stream(stream), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
                # Warm-ups, as PyTorch's notes advise: libraries choose kernels and allocate. The
                # last raises an error if the network reads a value back, which breaks a capture.
                for sync_mode in ("default", "default", "default", "error"):
                    torch.cuda.set_sync_debug_mode(sync_mode)
                    self._update(self.batch)
                torch.cuda.set_sync_debug_mode("default")
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._update(self.batch)
            self.graph = graph
        except Exception as error:  # whatever prevents a capture, eager steps are right
            # A failed capture leaves a generator that cannot draw; below it gets its state back.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(torch.Generator(generator.device))
            # The end of a failed capture fails as well: its context is the cause.
            if isinstance(error.__context__ or error, torch.OutOfMemoryError | BadParams):
                raise error.__context__ or error  # noqa: B904
            self.why_eager = _reason(error)
            print(f"hpq: no CUDA graph, the steps run eagerly: {self.why_eager}", file=sys.stderr)
            self.sgd.zero_grad(set_to_none=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.current_stream().wait_stream(stream)
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)
        torch.cuda.set_rng_state(random)


def _reason(error: Exception) -> str:
    """Return why a capture failed; no frame that holds its tensors refers to the error after it."""
    cause = error.__context__ or error
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:200]


@cache
def _side_stream() -> torch.cuda.Stream:
    # One for all captures: cuBLAS keeps a workspace for each stream that it has seen.
    return torch.cuda.Stream()
