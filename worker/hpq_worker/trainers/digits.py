"""The trainer `digits`: one hidden layer on the 8x8 digits inside scikit-learn."""

from __future__ import annotations

import torch
from torch import nn

from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Params
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.data import Batches, load_data
from hpq_worker.trainers.loop import fit

MEAN, STD = 4.88, 6.02  # of all pixels, in 0..16


def train(params: Params, trial: Trial) -> None:
    """Train a small network on digits and report each epoch; raises as `cifar10` does."""
    p = BUILT_IN["digits"].fill(params)
    data = load_data("digits", trial)
    train = Batches(data.train, normalize, p["batch_size"], p["seed"])
    torch.manual_seed(p["seed"])
    with device.pick():
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, p["hidden"]),
            nn.ReLU(inplace=True),
            nn.Linear(p["hidden"], 10),
        )
    fit(model, train, Batches(data.test, normalize), trial, p, device.plan())


def normalize(images: torch.Tensor) -> torch.Tensor:
    """uint8 to (B, 8, 8) float32 of mean 0 and deviation 1."""
    return images.float().sub_(MEAN).div_(STD)
