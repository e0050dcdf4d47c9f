"""The learning rate of each step: up to its maximum at 5/24 of the training, then down to 0.

Over 24 epochs this is the CIFAR10 article's schedule: 0 -> maximum at epoch 5 -> 0 at epoch 24.
"""

from __future__ import annotations

KNEE = 5 / 24


def learning_rate(progress: float, maximum: float) -> float:
    """The rate at a point of the training, as a share of all its steps from 0 to 1."""
    if progress < KNEE:
        return maximum * progress / KNEE
    return maximum * (1 - progress) / (1 - KNEE)
