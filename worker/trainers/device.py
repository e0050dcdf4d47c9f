"""The one place that decides where the trainers compute and in which number format.

Threads are not set here: torch takes OMP_NUM_THREADS, which the worker sets for each runner.
"""

from __future__ import annotations

import torch


def pick() -> torch.device:
    """The GPU that CUDA_VISIBLE_DEVICES leaves first, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype(device: torch.device) -> torch.dtype:
    """The format of images, weights and gradients on a device."""
    return torch.float32
