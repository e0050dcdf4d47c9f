"""The update rule: SGD with Nesterov momentum and weight decay, on flat buffers.

All weights of one number format lie in one buffer, their gradients in another: an update is six
passes over it, however many layers there are. Rate, momentum and decay are numbers on the device,
so that a captured step takes new ones without being captured anew.
"""

from __future__ import annotations

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
    gradients: torch.Tensor
    velocity: torch.Tensor


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
        place = parameters[0].device
        # 0-dimensional: they take no part in type promotion, so float64 costs nothing.
        self.rate, self._momentum, self._drag, self._decay = (
            torch.zeros((), dtype=torch.float64, device=place) for _ in range(4)
        )

    def reset(self, *, momentum: float, decay: float) -> None:
        """Forget what was learnt, and take another momentum and decay."""
        for flat in self._flats:
            flat.velocity.zero_()
            flat.gradients.zero_()
        self._momentum.fill_(momentum)
        self._drag.fill_(1 - momentum)
        self._decay.fill_(decay)
        self.rate.zero_()

    def step(self) -> None:
        """Update the weights by their gradients, which are zero afterwards."""
        rate = self.rate * _SHIFT
        with torch.no_grad():
            for flat in self._flats:
                w, g, v = flat.weights, flat.gradients, flat.velocity
                g.addcmul_(w, self._decay)
                v.addcmul_(v, self._drag, value=-1).add_(g)
                g.addcmul_(v, self._momentum)
                w.addcmul_(g, rate, value=-1 / _SHIFT)
                g.zero_()

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
    weights, gradients, velocity = (
        torch.zeros(end, dtype=parameters[0].dtype, device=parameters[0].device) for _ in range(3)
    )
    for start, p in zip(starts, parameters, strict=True):
        place = _view(weights, p, start)
        place.copy_(p.detach())
        p.data, p.grad = place, _view(gradients, p, start)
    views = [_view(velocity, p, s) for s, p in zip(starts, parameters, strict=True)]
    return _Flat(weights=weights, gradients=gradients, velocity=velocity), views


def _view(flat: torch.Tensor, like: torch.Tensor, start: int) -> torch.Tensor:
    # Of the same strides: a weight that is channels_last stays so.
    return flat.as_strided(like.shape, like.stride(), start)
