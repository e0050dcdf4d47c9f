"""The networks: the CIFAR10 article's ResNet9, and a small one for MNIST made of the same blocks.

The order conv - BN - ReLU - pool is the article's: pooling before BN would change BN's statistics.
Weights are PyTorch's defaults, drawn from the global generator: seed it first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10


class Stem(nn.Conv2d):
    """A convolution whose images, and weights, are filled up to `fill` channels with zeros.

    The same function with the same weights. Tensor cores take channels by eights, and the gradient
    of three is far slower than that of eight.
    """

    fill = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As Conv2d has it."""
        if self.fill <= self.in_channels:
            return super().forward(x)
        more = (0, 0, 0, 0, 0, self.fill - self.in_channels)
        return self._conv_forward(F.pad(x, more), F.pad(self.weight, more), self.bias)


def conv_block(c_in: int, c_out: int, *, batch_norm: bool, pool: bool = False) -> nn.Sequential:
    """A 3x3 convolution without bias, BN if asked, ReLU, and max pooling by 2 if asked."""
    kind = Stem if c_in < 8 else nn.Conv2d
    layers: list[nn.Module] = [kind(c_in, c_out, 3, padding=1, bias=False)]
    if batch_norm:
        layers.append(nn.BatchNorm2d(c_out))
    layers.append(nn.ReLU(inplace=True))
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """Two blocks of as many channels, added to what went in."""

    def __init__(self, channels: int, *, batch_norm: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            conv_block(channels, channels, batch_norm=batch_norm),
            conv_block(channels, channels, batch_norm=batch_norm),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape-preserving: (B, C, H, W)."""
        return x + self.blocks(x)


class ResNet9(nn.Module):
    """The article's network; width 64 has 6.57 M parameters with BN."""

    def __init__(self, width: int = 64, *, batch_norm: bool = True) -> None:
        super().__init__()
        w, bn = width, batch_norm
        self.features = nn.Sequential(
            conv_block(3, w, batch_norm=bn),
            conv_block(w, 2 * w, batch_norm=bn, pool=True),
            Residual(2 * w, batch_norm=bn),
            conv_block(2 * w, 4 * w, batch_norm=bn, pool=True),
            conv_block(4 * w, 8 * w, batch_norm=bn, pool=True),
            Residual(8 * w, batch_norm=bn),
            nn.MaxPool2d(4),
            nn.Flatten(),
        )
        self.linear = nn.Linear(8 * w, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (B, 10) of images (B, 3, 32, 32)."""
        return self.linear(self.features(x)) * 0.125


def fill_stem(model: nn.Module, channels: int) -> None:
    """Let the network fill its images up to so many channels; 0 takes that back."""
    for module in model.modules():
        if isinstance(module, Stem):
            module.fill = channels


def mnist_net(width: int, dropout: float) -> nn.Sequential:
    """Two pooled blocks and a linear layer: logits (B, 10) of images (B, 1, 28, 28)."""
    return nn.Sequential(
        conv_block(1, width, batch_norm=True, pool=True),
        conv_block(width, 2 * width, batch_norm=True, pool=True),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * 7 * 7, CLASSES),
    )


def digits_net(hidden: int) -> nn.Sequential:
    """One hidden layer: logits (B, 10) of images (B, 1, 8, 8)."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, CLASSES)
    )
