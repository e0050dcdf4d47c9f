"""Compare the trainer with the article's published code: `python -m benchmarks.published DIR`.

DIR is a checkout of NVIDIA-developer-blog/kubernetes-hyperparam-exp. Its code runs with changes for
current NumPy, a CPU and float64 (benchmarks/upstream.py), for 24 epochs on few noisy images; then
hpq trains from the same weights, in the same order, with the same random draws. Prints the relative
differences of the weights at the end and of the reported figures, which hpq rounds to float32; exit
code 1 if one exceeds rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.desk import Desk
from benchmarks.upstream import REPOSITORY, Row, Upstream, load
from hpq.errors import UserError
from hpq_worker.trainers.cifar10 import Augmented, ResNet9, normalize
from hpq_worker.trainers.data import Batches, Split
from hpq_worker.trainers.loop import fit
from hpq_worker.trainers.step import Batch, Plan

IMAGES, TESTS, SIZE, WIDTH, EPOCHS = 42, 12, 8, 8, 24
PLAN = Plan(dtype=torch.float64)
ROUNDING = 1e-9  # of weights in float64, relative
REPORTED = 1e-7  # of reported losses in float32, relative; half of a last digit is 6e-8
SETS = (  # batch norm, cutout, momentum, max learning rate
    (True, 5, 0.9, 0.4),
    (True, 12, 0.99, 0.1),
    (False, 5, 0.9, 0.02),
)


def compare(
    code: Upstream, batch_norm: bool, cutout: int, momentum: float, rate: float
) -> tuple[float, float]:
    """Return the largest relative difference of a layer's weights at the end, and of any figure."""
    random = np.random.default_rng(0)
    images, tests = (random.integers(0, 256, (n, 32, 32, 3), np.uint8) for n in (IMAGES, TESTS))
    labels, answers = (random.integers(0, 10, n) for n in (IMAGES, TESTS))
    torch.manual_seed(3)
    np.random.seed(3)
    cpu = torch.device("cpu")
    model = code.model(WIDTH, batch_norm, cpu)
    ours = ResNet9(WIDTH, batch_norm=batch_norm).double()
    with torch.no_grad():
        for one, other in zip(ours.parameters(), model.parameters(), strict=True):
            one.copy_(other)
    drawn = _Draws(code.utils, images, labels, cutout)
    utils, theirs, desk = code.utils, list[Row](), Desk()
    params = {
        "batch_size": SIZE,
        "epochs": EPOCHS,
        "momentum": momentum,
        "max_learning_rate": rate,
        "weight_decay": 5e-4,
    }
    pairs = list(zip(utils.transpose(utils.normalise(tests)), answers, strict=True))
    code.fit(model, (drawn.data, pairs), params, theirs.append)
    test = Split(images=torch.from_numpy(tests), labels=torch.from_numpy(answers))
    fit(
        ours,
        _Again(drawn),
        Batches(test, lambda some: normalize(some, PLAN)),
        desk,  # type: ignore[arg-type]
        params,
        PLAN,
    )
    with torch.no_grad():
        pairs_of_layers = zip(ours.parameters(), model.parameters(), strict=True)
        weights = max(float(torch.dist(a, b) / b.norm()) for a, b in pairs_of_layers)
    return weights, _worst(theirs, desk.reports)


class _Draws:
    """Their training set, which records the order and the draws of each epoch."""

    def __init__(self, utils: Any, images: Any, labels: Any, cutout: int) -> None:
        self.split = Split(images=torch.from_numpy(images), labels=torch.from_numpy(labels))
        self.cutout = cutout
        self.orders: list[list[int]] = []
        self.choices: list[list[dict[str, Any]]] = []
        pixels = utils.transpose(utils.normalise(utils.pad(images, 4)))
        outer = self

        class Noting(utils.Transform):  # type: ignore[misc]
            def set_random_choices(self) -> None:
                super().set_random_choices()
                outer.choices.append(list(self.choices))
                outer.orders.append([])

            def __getitem__(self, index: int) -> Any:
                if self.choices is not None:
                    outer.orders[-1].append(index)
                return super().__getitem__(index)

        cut = utils.Cutout(cutout, cutout)
        some = list(zip(pixels, labels, strict=True))
        self.data = Noting(some, [utils.Crop(32, 32), utils.FlipLR(), cut])


class _Again(Augmented):
    """Replays the same epochs for hpq."""

    def __init__(self, drawn: _Draws) -> None:
        super().__init__(drawn.split, SIZE, drawn.cutout, 0, PLAN)
        self._epochs = zip(drawn.orders, drawn.choices, strict=True)

    def __iter__(self) -> Iterator[Batch]:
        order, (crop, flip, cut) = next(self._epochs)
        index = torch.tensor(order)[: IMAGES - IMAGES % SIZE]
        drawn = (crop["y0"], crop["x0"], flip["choice"], cut["y0"], cut["x0"])
        names = ("crop_y", "crop_x", "flip", "cut_y", "cut_x")
        choices = [torch.as_tensor(each)[index][:, None] for each in drawn]
        images = self.take(index, **dict(zip(names, choices, strict=True)))
        return zip(images.split(SIZE), self.split.labels[index].split(SIZE), strict=True)


def _worst(theirs: list[Row], ours: list[Row]) -> float:
    names = ("train/loss", "train/acc", "test/loss", "test/acc")
    return max(
        abs(row[name] - other[name]) / max(abs(other[name]), 1e-3)
        for row, other in zip(ours, theirs, strict=True)
        for name in names
    )


def main() -> None:
    """Compare; exit with 1 if the figures differ."""
    if len(sys.argv) != 2:
        sys.exit(f"benchmarks.published: pass a checkout of {REPOSITORY}")
    try:
        code = load(Path(sys.argv[1]), torch.float64)
    except UserError as error:
        sys.exit(f"benchmarks.published: {error}")
    torch.set_num_threads(1)
    is_same = True
    for batch_norm, cutout, momentum, rate in SETS:
        weights, figures = compare(code, batch_norm, cutout, momentum, rate)
        is_same = is_same and weights < ROUNDING and figures < REPORTED
        said = f"batch norm {'on' if batch_norm else 'off'}, cutout {cutout}, {momentum=}, {rate=}"
        found = f"weights differ by {weights:.1e}, figures by {figures:.1e} at most"
        print(f"{said}: after {EPOCHS} epochs {found}", flush=True)
    sys.exit(not is_same)


if __name__ == "__main__":
    main()
