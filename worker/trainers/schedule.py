"""The learning rate of each step: up to its maximum at 5/24 of the training, then down to 0.

Over 24 epochs this is the CIFAR10 article's schedule: 0 -> maximum at epoch 5 -> 0 at epoch 24.
"""

from __future__ import annotations

import torch

KNEE = 5 / 24


def learning_rate(progress: torch.Tensor, maximum: float) -> torch.Tensor:
    """The rates at points of the training, as shares of all its steps from 0 to 1."""
    return maximum * torch.minimum(progress / KNEE, (1 - progress) / (1 - KNEE))


def rates(steps: int, epochs: int, maximum: float, batch_size: int) -> torch.Tensor:
    """The rate of each step of a training, (epochs * steps,) float64, for a loss that is a sum:
    divided by the batch size. The first is 0."""
    every = epochs * steps
    return learning_rate(torch.arange(every, dtype=torch.float64) / every, maximum) / batch_size
