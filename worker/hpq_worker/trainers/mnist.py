"""The trainer `mnist`: a small convolutional network on MNIST, with the recipe of `cifar10`."""

from __future__ import annotations

import torch
from torch import nn

from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Params
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.cifar10 import conv_block
from hpq_worker.trainers.data import Batches, load_data
from hpq_worker.trainers.loop import fit

MEAN, STD = 0.1307, 0.3081  # of all training pixels, in 0..1


def train(params: Params, trial: Trial) -> None:
    """Train two convolutions on MNIST and report each epoch; raises as `cifar10` does."""
    p = BUILT_IN["mnist"].fill(params)
    data = load_data("mnist", trial, p["train_images"], p["test_images"])
    train = Batches(data.train, normalize, p["batch_size"], p["seed"])
    torch.manual_seed(p["seed"])
    with device.pick():
        model = network(p["width"], p["dropout"])
    fit(model, train, Batches(data.test, normalize), trial, p, device.plan())


def network(width: int, dropout: float) -> nn.Sequential:
    """Return two pooled blocks and a linear layer: logits (B, 10) of images (B, 1, 28, 28)."""
    return nn.Sequential(
        conv_block(1, width, batch_norm=True, pool=True),
        conv_block(width, 2 * width, batch_norm=True, pool=True),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * 7 * 7, 10),
    )


def normalize(images: torch.Tensor) -> torch.Tensor:
    """uint8 to (B, 1, 28, 28) float32 of mean 0 and deviation 1."""
    return images[:, None].float().sub_(255 * MEAN).div_(255 * STD)
