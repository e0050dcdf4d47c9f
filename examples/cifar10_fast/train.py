"""Another network and recipe for CIFAR10, after airbench94; few epochs.

A new implementation of Keller Jordan's airbench94 (arXiv 2404.00498). The first layer is computed
from the training images and frozen, convolutions start as the identity, norms have no scale, their
biases learn 64 times as fast, each image is mirrored in every other epoch, and a test averages six
views. Not included: lookahead, freezing the first layer's bias after three epochs, and rates that
neither start nor end at 0. The parameters differ in meaning from those of `trainer: cifar10`.

In a terminal: `hpq try train:train --set width=16 --set epochs=3`.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from hpq import Augmented, Batches, device, fit, load_data

DEFAULTS = {
    "epochs": 10,
    "batch_size": 1024,
    "momentum": 0.85,
    "max_learning_rate": 1.5,
    "weight_decay": 1.33e-3,
    "label_smoothing": 0.2,
    "translate": 2,  # pixels, each way
    "tta": "on",  # average six views of each test image
    "width": 64,  # channels, then twice 4 times as many
    "train_images": 50_000,
    "test_images": 10_000,
}
PATCHES = 24  # filters of the first layer: 12 directions of 2x2 patches, and their negatives
SEEN = 5_000  # images (up to twice as many) whose patches determine the first layer
LEAST_VARIANCE = 5e-4  # limits the scale of rare directions
FASTER = 8.0  # squared: the factor of a norm's bias learning rate


def train(params, trial):
    p = DEFAULTS | params
    data = load_data("cifar10", trial, p["train_images"], p["test_images"])
    plan = device.plan(dtype=torch.half, autocast=None, graph=True)
    train = Alternating(data.train, p["batch_size"], p["translate"], trial.seed, plan)
    torch.manual_seed(trial.seed)
    with device.pick():
        model = FastNet(p["width"], looks_again=p["tta"] == "on")
    every = max(1, len(data.train) // SEEN)  # images may be sorted by class
    with torch.no_grad():
        model.whiten.weight.copy_(whitening(train.prepare(data.train.images[::every]).float()))
    fit(
        model,
        train,
        Batches(data.test, train.prepare),
        trial,
        epochs=p["epochs"],
        max_learning_rate=p["max_learning_rate"],
        momentum=p["momentum"],
        weight_decay=p["weight_decay"],
        loss=partial(F.cross_entropy, reduction="sum", label_smoothing=p["label_smoothing"]),
        plan=plan,
    )


class Alternating(Augmented):
    """Shifted images, each mirrored in every other epoch, half of them in the first."""

    def __init__(self, split, batch_size, translate, seed, plan):
        super().__init__(split, batch_size, 0, seed, plan)
        self.translate, self.number = translate, 1
        first = torch.Generator().manual_seed(seed)
        self.mirrored = torch.randint(2, (len(split),), generator=first)

    def set_epoch(self, epoch):
        self.number = epoch

    def draw(self, order):
        n = len(order)

        def shift():
            most = self.translate
            return 4 + torch.randint(-most, most + 1, (n, 1), generator=self.generator)

        whole = torch.zeros(n, 1, dtype=torch.int64)  # no cutout
        flip = (self.mirrored[order][:, None] + self.number) % 2
        return {"crop_y": shift(), "crop_x": shift(), "flip": flip, "cut_y": whole, "cut_x": whole}


class Norm(nn.BatchNorm2d):
    """Batch normalization without a scale, whose bias learns 64 times as fast as other weights.

    The stored bias is an eighth of the used one, so its gradient and its step are each 8 times as
    large. Weight decay is the same.
    """

    def __init__(self, channels):
        super().__init__(channels, momentum=0.4)
        self.weight.requires_grad_(False)

    def forward(self, x):
        bias = self.bias * FASTER
        means, squares = self.running_mean, self.running_var
        return F.batch_norm(x, means, squares, self.weight, bias, self.training, 0.4, self.eps)


def conv(c_in, c_out):
    made = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(made.weight[:c_in])  # the first filters pass their input on
    return made


def pair(c_in, c_out):
    first = conv(c_in, c_out), nn.MaxPool2d(2), Norm(c_out), nn.GELU()
    return nn.Sequential(*first, conv(c_out, c_out), Norm(c_out), nn.GELU())


class FastNet(nn.Module):
    """Return logits (B, 10) of images (B, 3, 32, 32), at a test the mean of six views if `tta`."""

    def __init__(self, width, *, looks_again):
        super().__init__()
        self.looks_again, w = looks_again, width
        self.whiten = nn.Conv2d(3, PATCHES, 2)
        self.whiten.weight.requires_grad_(False)
        nn.init.zeros_(self.whiten.bias)
        pairs = pair(PATCHES, w), pair(w, 4 * w), pair(4 * w, 4 * w)
        self.features = nn.Sequential(nn.GELU(), *pairs, nn.MaxPool2d(3), nn.Flatten())
        self.linear = nn.Linear(4 * w, 10, bias=False)

    def forward(self, x):
        if self.training or not self.looks_again:
            return self.look(x)
        around = F.pad(x, (1, 1, 1, 1), mode="reflect")
        looks = (x, 0.5), (around[..., :-2, :-2], 0.25), (around[..., 2:, 2:], 0.25)
        both = [(self.look(image) + self.look(image.flip(3))) / 2 * share for image, share in looks]
        return torch.stack(both).sum(0)

    def look(self, x):
        return self.linear(self.features(self.whiten(x))) / 9


def whitening(images):
    """Return the first layer's filters (24, 3, 2, 2) for normalized images (N, 3, H, W).

    Of the patches of these images the first twelve are uncorrelated and of variance 1; the other
    twelve are the same with the sign turned, so that nothing is lost to what follows.
    """
    patches = F.unfold(images, 2)  # (N, 12, positions)
    together = torch.matmul(patches, patches.transpose(1, 2)).sum(0)
    # 12 x 12: on the CPU in float64 it is the same on any device.
    covariance = together.double().cpu() / (len(patches) * patches.shape[2])
    variances, directions = torch.linalg.eigh(covariance)
    filters = (directions / (variances + LEAST_VARIANCE).sqrt()).T.reshape(-1, 3, 2, 2)
    return torch.cat([filters, -filters])
