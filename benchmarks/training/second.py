"""A program that trains for one second of CPU time with torch, on one thread."""

from __future__ import annotations

import time

import torch

torch.set_num_threads(1)
begun, weights = time.process_time(), torch.rand(64, 64)
while time.process_time() - begun < 1.0:
    weights = torch.nn.functional.normalize(weights @ weights)
print(f"loss={weights.norm().item()}")
