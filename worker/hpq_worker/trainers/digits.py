"""The trainer `digits`: one hidden layer on the 8x8 digits inside scikit-learn; needs no download.

By hand: `python -m hpq.train digits --set hidden=32`.
"""

from __future__ import annotations

import torch
from torch import nn

from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Params
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.data import Batches, load_data
from hpq_worker.trainers.loop import fit

MEAN, STD = 4.88, 6.02  # of all pixels, in 0..16


def train(params: Params, trial: Trial) -> None:
    """Train a small network on digits and report each epoch; raises as `cifar10` does."""
    p = SHIPPED["digits"].fill(params)
    data = load_data("digits", trial)
    torch.manual_seed(p["seed"])
    hidden = p["hidden"]
    with device.pick():
        layers = nn.Linear(64, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 10)
    fit(
        nn.Sequential(nn.Flatten(), *layers),
        Batches(data.train, normalise, p["batch_size"], p["seed"]),
        Batches(data.test, normalise),
        trial,
        epochs=p["epochs"],
        max_learning_rate=p["max_learning_rate"],
        momentum=p["momentum"],
        weight_decay=p["weight_decay"],
        plan=device.plan(graph=True),
    )


def normalise(images: torch.Tensor) -> torch.Tensor:
    """uint8 to (B, 8, 8) float32 of mean 0 and deviation 1."""
    return images.float().sub_(MEAN).div_(STD)
