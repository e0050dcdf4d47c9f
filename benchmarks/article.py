"""The CIFAR10 article's training by its description, which is the reference for hpq's trainer.

NumPy crops, flips and cuts one sample at a time, a DataLoader collates them, loss and hits are read
back at each step, and each trial is a process. The code is our own.
`python -m benchmarks.article ARRAYS.npz '{"epochs": 3, …}'` runs one trial. Needs torch and NumPy,
but not hpq.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
PAD = 4
Array = np.ndarray


class Block(nn.Module):
    """A 3x3 convolution, optional batch normalization, ReLU, optional pooling."""

    def __init__(self, c_in: int, c_out: int, batch_norm: bool, pool: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel_size=3, stride=1, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(c_out) if batch_norm else None
        self.pool = nn.MaxPool2d(2) if pool else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pool last: pooling before normalization would change its statistics."""
        x = self.conv(x)
        x = x if self.norm is None else self.norm(x)
        x = torch.relu(x)
        return x if self.pool is None else self.pool(x)


class Network(nn.Module):
    """Eight convolutions, two residual connections, a linear layer whose output is divided by 8."""

    def __init__(self, width: int, batch_norm: bool) -> None:
        super().__init__()
        w, bn = width, batch_norm
        self.prep = Block(3, w, bn)
        self.layer1 = Block(w, 2 * w, bn, pool=True)
        self.residual1 = nn.ModuleList([Block(2 * w, 2 * w, bn), Block(2 * w, 2 * w, bn)])
        self.layer2 = Block(2 * w, 4 * w, bn, pool=True)
        self.layer3 = Block(4 * w, 8 * w, bn, pool=True)
        self.residual3 = nn.ModuleList([Block(8 * w, 8 * w, bn), Block(8 * w, 8 * w, bn)])
        self.linear = nn.Linear(8 * w, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 10) of images (B, 3, 32, 32)."""
        x = self.layer1(self.prep(x))
        x = x + self.residual1[1](self.residual1[0](x))
        x = self.layer3(self.layer2(x))
        x = x + self.residual3[1](self.residual3[0](x))
        x = torch.max_pool2d(x, 4).flatten(1)
        return self.linear(x) * 0.125


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The random draws of an epoch: its order, and the augmentation of each image."""

    order: Sequence[int]
    crop_y: Array
    crop_x: Array
    flip: Array
    cut_y: Array
    cut_x: Array


def draw(n: int, cutout: int) -> Draws:
    """Draw from NumPy's and torch's global generators, as the article does."""
    return Draws(
        order=torch.randperm(n).tolist(),
        crop_x=np.random.choice(range(2 * PAD + 1), size=n),
        crop_y=np.random.choice(range(2 * PAD + 1), size=n),
        flip=np.random.choice([True, False], size=n),
        cut_x=np.random.choice(range(33 - cutout), size=n),
        cut_y=np.random.choice(range(33 - cutout), size=n),
    )


class Augmented(torch.utils.data.Dataset):
    """Images normalized and padded once; cropped, flipped and cut at each access."""

    def __init__(self, images: Array, labels: Array, cutout: int) -> None:
        border = [(0, 0), (PAD, PAD), (PAD, PAD), (0, 0)]
        self.images = normalized(np.pad(images, border, mode="reflect"))
        self.labels, self.cutout = labels, cutout
        self.draws: Draws

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Array, int]:
        d, hole = self.draws, self.cutout
        x = self.images[i][:, d.crop_y[i] : d.crop_y[i] + 32, d.crop_x[i] : d.crop_x[i] + 32]
        x = x[:, :, ::-1].copy() if d.flip[i] else x.copy()
        x[:, d.cut_y[i] : d.cut_y[i] + hole, d.cut_x[i] : d.cut_x[i] + hole] = 0
        return x, int(self.labels[i])


def normalized(images: Array) -> Array:
    """Convert (N, H, W, 3) uint8 to (N, 3, H, W) float32 of mean 0 and deviation 1."""
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)
    return ((images.astype(np.float32) - 255 * mean) / (255 * std)).transpose(0, 3, 1, 2)


def train(
    model: nn.Module,
    arrays: Mapping[str, Array],
    params: Mapping[str, Any],
    dtype: torch.dtype,
    draws: Callable[[int, int], Draws] = draw,
) -> Iterator[dict[str, float]]:
    """Train for `epochs`; return losses, accuracies and seconds of each."""
    place = next(model.parameters()).device
    size, epochs = params["batch_size"], params["epochs"]
    training = Augmented(
        arrays["train_images"], arrays["train_labels"], params["data_aug_cutout_size"]
    )
    testing = list(zip(normalized(arrays["test_images"]), arrays["test_labels"], strict=True))
    steps = len(training) // size
    loss_of = nn.CrossEntropyLoss(reduction="sum")
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=0.0,
        momentum=params["momentum"],
        weight_decay=5e-4 * size,
        nesterov=params["momentum"] > 0,
    )

    def batches(data: Any, order: Sequence[int], drop_last: bool) -> Any:
        loader = torch.utils.data.DataLoader(
            data, size, sampler=order, drop_last=drop_last, pin_memory=place.type == "cuda"
        )
        return ((x.to(place).to(dtype), y.to(place)) for x, y in loader)

    for epoch in range(epochs):
        began = time.perf_counter()
        training.draws = draws(len(training), training.cutout)
        model.train()
        losses, hits = [], []
        for step, (x, y) in enumerate(batches(training, training.draws.order, drop_last=True)):
            at = (epoch + step / steps) * 24 / epochs
            rate = np.interp(at, [0, 5, 24], [0, params["max_learning_rate"], 0]) / size
            logits = model(x)
            loss = loss_of(logits, y)
            losses.append(loss.detach().cpu().numpy())
            hits.append((logits.max(1)[1] == y).cpu().numpy().sum())
            loss.backward()
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            model.zero_grad()
        trained_s = time.perf_counter() - began
        model.eval()
        tested, right = [], []
        with torch.no_grad():
            for x, y in batches(testing, range(len(testing)), drop_last=False):
                logits = model(x)
                tested.append(loss_of(logits, y).cpu().numpy())
                right.append((logits.max(1)[1] == y).cpu().numpy().sum())
        yield {
            "train/loss": float(np.sum(losses, dtype=np.float64)) / (steps * size),
            "train/acc": float(np.sum(hits)) / (steps * size),
            "test/loss": float(np.sum(tested, dtype=np.float64)) / len(testing),
            "test/acc": float(np.sum(right)) / len(testing),
            "train/time": trained_s,
            "epoch/time": time.perf_counter() - began,
        }


def network(params: Mapping[str, Any], place: torch.device) -> tuple[nn.Module, torch.dtype]:
    """Move the network as the article does: half precision on a GPU, except batch norms."""
    torch.manual_seed(params.get("seed", 0))
    np.random.seed(params.get("seed", 0))
    model = Network(params.get("width", 64), params.get("batch_norm", "on") == "on").to(place)
    if place.type != "cuda":
        return model, torch.float32
    torch.backends.cudnn.benchmark = True
    model.half()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    return model, torch.half


def main() -> None:
    """Run one trial; print its last epoch as JSON."""
    arrays = dict(np.load(sys.argv[1]))
    params = json.loads(sys.argv[2])
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, dtype = network(params, place)
    for row in train(model, arrays, params, dtype):  # noqa: B007
        pass
    print(json.dumps(row))


if __name__ == "__main__":
    main()
