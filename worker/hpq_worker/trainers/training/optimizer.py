"""The update rule: SGD with Nesterov momentum and weight decay, on flat buffers.

All weights of one number format lie in one buffer. The gradients come as backward makes them, and
the decay takes them into another: five passes, of which four are one kernel however many layers
there are. Rate, momentum and decay are numbers on the device, so that a captured step takes new
ones without being captured anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

ALIGNED = 64  # elements; so that kernels may read 16 bytes at a time from the start of each weight

# A rate is held 256 times as large and divided again inside the kernel, where numbers are float32:
# a rate over the batch size would fall among the subnormal numbers of half precision.
_SHIFT = 256.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flat:
    weights: torch.Tensor
    gradients: torch.Tensor  # with their decay
    velocity: torch.Tensor
    # On the device and of the weights' own format: of another, a kernel would look at the formats
    # of all that it reads, number by number.
    momentum: torch.Tensor
    drag: torch.Tensor  # 1 - momentum
    decay: torch.Tensor
    each: Sequence[tuple[nn.Parameter, torch.Tensor]]  # a weight, and its place in `gradients`


class Nesterov:
    """The optimizer of one network. It moves the weights into its buffers, where they stay.

    v <- m v + g + d w;  w <- w - rate (g + d w + m v), as torch.optim.SGD(nesterov=True) has it.
    In half precision each pass computes in float32 and rounds its result; the momentum enters as
    v - (1 - m) v, since 0.99 itself rounded to half precision would be 2 % off in what it sums.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        self._flats, self._views = [], []
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            some = [p for p in parameters if p.dtype == dtype]
            flat, views = _flatten(some)
            self._flats.append(flat)
            self._views += views
        # Wider than a weight: a schedule's numbers, rounded when a step takes them.
        self.rate = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def reset(self, *, momentum: float, decay: float) -> None:
        """Forget what was learnt, and take another momentum and decay."""
        for flat in self._flats:
            flat.velocity.zero_()
            flat.momentum.fill_(momentum)
            flat.drag.fill_(1 - momentum)
            flat.decay.fill_(decay)
            for weight, _ in flat.each:
                weight.grad = None
        self.rate.zero_()

    def step(self) -> None:
        """Update the weights by their gradients, which are gone afterwards."""
        rate = self.rate * _SHIFT
        with torch.no_grad():
            for flat in self._flats:
                w, g, v = flat.weights, flat.gradients, flat.velocity
                for weight, own in flat.each:
                    given = own.zero_() if weight.grad is None else weight.grad
                    torch.addcmul(given, weight, flat.decay, out=own)
                    weight.grad = None  # backward's next ones need no zeros to be added to
                v.addcmul_(v, flat.drag, value=-1).add_(g)
                g.addcmul_(v, flat.momentum)
                w.addcmul_(g, rate.to(w.dtype), value=-1 / _SHIFT)

    def state_dict(self) -> dict[str, list[torch.Tensor]]:
        """The velocity of each weight, in the network's order within each number format."""
        return {"velocity": [view.clone() for view in self._views]}

    def load_state_dict(self, state: dict[str, list[torch.Tensor]]) -> None:
        """Take the velocities back, also those of another device's formats.

        Raises:
            ValueError: they are of another network.
        """
        pairs = list(zip(self._views, state["velocity"], strict=True))
        for view, saved in pairs:
            if view.shape != saved.shape:
                raise ValueError(f"a velocity of shape {tuple(saved.shape)} for {view.shape}")
        for view, saved in pairs:
            view.copy_(saved)


def _flatten(parameters: list[nn.Parameter]) -> tuple[_Flat, list[torch.Tensor]]:
    starts, end = [], 0
    for p in parameters:
        starts.append(end)
        end += -(-p.numel() // ALIGNED) * ALIGNED
    like = parameters[0].detach()
    weights, gradients, velocity = (like.new_zeros(end) for _ in range(3))
    momentum, drag, decay = (like.new_zeros(()) for _ in range(3))
    for start, p in zip(starts, parameters, strict=True):
        place = _view(weights, p, start)
        place.copy_(p.detach())
        p.data, p.grad = place, None
    views, places = (
        [_view(flat, p, start) for p, start in zip(parameters, starts, strict=True)]
        for flat in (velocity, gradients)
    )
    flat = _Flat(
        weights=weights,
        gradients=gradients,
        velocity=velocity,
        momentum=momentum,
        drag=drag,
        decay=decay,
        each=list(zip(parameters, places, strict=True)),
    )
    return flat, views


def _view(flat: torch.Tensor, like: torch.Tensor, start: int) -> torch.Tensor:
    # Of the same strides: a weight that is channels_last stays so.
    return flat.as_strided(like.shape, like.stride(), start)
