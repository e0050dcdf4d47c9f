"""Another network and recipe for CIFAR10, after airbench94; few epochs.

A new implementation of Keller Jordan's airbench94 (arXiv 2404.00498). The first layer is computed
from the training images and frozen, convolutions start as the identity, norms have no scale, their
biases learn 64 times as fast, each image is mirrored in every other epoch, and the last test
averages six views. Not included: lookahead, freezing the first layer's bias after three epochs, and
rates that neither start nor end at 0. The parameters differ in meaning from those of
`trainer: cifar10`.

In a terminal: `hpq data cifar10`, then `hpq try train:train --set width=16 --set epochs=3`.
"""

import math
import pickle
import tarfile
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hpq import Diverged

DEFAULTS = {
    "epochs": 10,
    "batch_size": 1024,
    "momentum": 0.85,
    "max_learning_rate": 1.5,
    "weight_decay": 1.33e-3,
    "label_smoothing": 0.2,
    "translate": 2,  # pixels, each way
    "tta": "on",  # average six views of each image in the last test
    "width": 64,  # channels, then twice 4 times as many
    "train_images": 50_000,
    "test_images": 10_000,
}
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
KNEE = 5 / 24  # of the training: here the learning rate is at its maximum
PATCHES = 24  # filters of the first layer: 12 directions of 2x2 patches, and their negatives
SEEN = 5_000  # images whose patches determine the first layer
LEAST_VARIANCE = 5e-4  # limits the scale of rare directions
FASTER = 8.0  # squared: the factor of a norm's bias learning rate
TESTED = 2_000  # images at a time
GPU = torch.cuda.is_available()
KIND = torch.half if GPU else torch.float32


def train(params, trial):
    p = DEFAULTS | params
    images, labels, tests, answers = load(trial.data, p["train_images"], p["test_images"])
    torch.manual_seed(trial.seed)
    model = FastNet(p["width"])
    with torch.no_grad():
        model.whiten.weight.copy_(whitening(images[:SEEN].float()))
    model = model.to(images.device, KIND, memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, Norm):
            module.float()

    size, epochs = p["batch_size"], p["epochs"]
    steps = len(images) // size
    # The loss is a sum, since half precision would lose small gradients: rate and decay fit a mean.
    sgd = torch.optim.SGD(
        [weight for weight in model.parameters() if weight.requires_grad],
        momentum=p["momentum"],
        weight_decay=p["weight_decay"] * size,
        nesterov=True,
    )
    mirrored = torch.rand(len(images), device=images.device) < 0.5
    for epoch in range(1, epochs + 1):
        model.train()
        shown = shifted(images, p["translate"])
        shown = torch.where(mirrored[:, None, None, None], shown.flip(3), shown)
        mirrored = ~mirrored
        order = torch.randperm(len(images), device=images.device)
        total = torch.zeros((), device=images.device)
        for step in range(steps):
            if trial.should_stop:
                return
            done = (step + (epoch - 1) * steps) / (epochs * steps)
            rate = p["max_learning_rate"] * min(done / KNEE, (1 - done) / (1 - KNEE))
            sgd.param_groups[0]["lr"] = rate / size
            some = order[step * size : (step + 1) * size]
            loss = F.cross_entropy(
                model(shown[some]).float(),
                labels[some],
                reduction="sum",
                label_smoothing=p["label_smoothing"],
            )
            loss.backward()
            sgd.step()
            sgd.zero_grad()
            total += loss.detach()
        mean = total.item() / (steps * size)
        if not math.isfinite(mean):
            raise Diverged(f"epoch {epoch}: train/loss is {mean}; use a lower max_learning_rate")
        looks_again = p["tta"] == "on" and epoch == epochs
        accuracy = tested(model, tests, answers, looks_again)
        trial.report({"train/loss": mean, "test/acc": accuracy}, step=epoch)


@cache
def load(folder, train_images, test_images):
    """Return images (N, 3, 32, 32) and labels (N,) for training, then those for testing."""
    parts = {}
    with tarfile.open(folder / "cifar-10-python.tar.gz") as archive:
        for member in archive:
            if "_batch" in member.name:
                # hpq data has verified the archive's checksum: a pickle may run code
                part = pickle.load(archive.extractfile(member), encoding="latin1")
                parts[member.name.rpartition("/")[2]] = part
    found = []
    names = [f"data_batch_{number}" for number in range(1, 6)]
    for some, count in ((names, train_images), (["test_batch"], test_images)):
        images = torch.cat([torch.as_tensor(parts[name]["data"]) for name in some])[:count]
        labels = torch.cat([torch.as_tensor(parts[name]["labels"]) for name in some])[:count]
        images = images.to("cuda" if GPU else "cpu").view(-1, 3, 32, 32).float().div_(255)
        mean, std = (torch.tensor(x, device=images.device)[:, None, None] for x in (MEAN, STD))
        images = images.sub_(mean).div_(std).to(KIND, memory_format=torch.channels_last)
        found += [images, labels.to(images.device)]
    return found


def shifted(images, most):
    """Return the images (N, 3, H, W), each moved by up to `most` pixels each way, reflected."""
    side = images.shape[3]
    padded = F.pad(images, (most,) * 4, mode="reflect")
    moves = torch.randint(2 * most + 1, (2, len(images)), device=images.device)
    out = torch.empty_like(images)
    for y in range(2 * most + 1):
        for x in range(2 * most + 1):
            some = (moves[0] == y) & (moves[1] == x)
            out[some] = padded[some, :, y : y + side, x : x + side]
    return out


def tested(model, images, labels, looks_again):
    """Return the accuracy, of the mean of six views of each image if `looks_again`."""
    model.eval()
    look = model.look_six_times if looks_again else model
    hits = 0
    with torch.no_grad():
        for some, answers in zip(images.split(TESTED), labels.split(TESTED), strict=True):
            hits += (look(some).argmax(1) == answers).sum()
    return int(hits) / len(labels)


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
    """Return logits (B, 10) of images (B, 3, 32, 32)."""

    def __init__(self, width):
        super().__init__()
        self.whiten = nn.Conv2d(3, PATCHES, 2)
        self.whiten.weight.requires_grad_(False)
        nn.init.zeros_(self.whiten.bias)
        pairs = pair(PATCHES, width), pair(width, 4 * width), pair(4 * width, 4 * width)
        self.features = nn.Sequential(nn.GELU(), *pairs, nn.MaxPool2d(3), nn.Flatten())
        self.linear = nn.Linear(4 * width, 10, bias=False)

    def forward(self, x):
        return self.linear(self.features(self.whiten(x))) / 9

    def look_six_times(self, x):
        """Return the mean of the logits of the images, of two that are moved, and mirrored."""
        around = F.pad(x, (1, 1, 1, 1), mode="reflect")
        looks = (x, 0.5), (around[..., :-2, :-2], 0.25), (around[..., 2:, 2:], 0.25)
        both = [(self(image) + self(image.flip(3))) / 2 * share for image, share in looks]
        return torch.stack(both).sum(0)


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
