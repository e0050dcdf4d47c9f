"""The trainer beside the code that the article published: `python -m benchmarks.published DIR`.

DIR holds utils.py and cifar10_train.py of NVIDIA-developer-blog/kubernetes-hyperparam-exp. They run
as they are, but for what today's NumPy, a CPU and float64 need, for 24 epochs on few noisy images;
then hpq trains from the same weights, in the same order, with what their code drew. Prints by how
much the figures differ; exit code 1 where that is more than rounding.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from worker.trainers import augment
from worker.trainers.augment import Choices
from worker.trainers.batches import in_order, with_choices
from worker.trainers.data import Split
from worker.trainers.device import Plan, placed
from worker.trainers.loop import Recipe, Task, fit
from worker.trainers.model import ResNet9
from worker.trainers.step import Batch

IMAGES, TESTS, SIZE, WIDTH, EPOCHS = 42, 12, 8, 8, 24
PLAN = Plan(dtype=torch.float64)
ROUNDING = 1e-9
SETS = (  # batch norm, cutout, momentum, max learning rate
    (True, 5, 0.9, 0.4),
    (True, 12, 0.99, 0.1),
    (False, 5, 0.9, 0.02),
)
_CHANGES = (
    (r"import torchvision\n", ""),  # only reads the images
    (r"np\.float\)", "np.float64)"),  # NumPy has no np.float any more
    (r"np\.array\(a, np\.float32\)", "np.array(a, np.float64)"),
    (r"shape is \(\)", "shape == ()"),  # else a warning
    (r"pin_memory=True", "pin_memory=False"),
    (r"\.half\(\)", ".double()"),
)


def published(folder: Path) -> tuple[ModuleType, ModuleType]:
    """Their two modules."""
    found = []
    for name in ("utils", "cifar10_train"):
        text = (folder / f"{name}.py").read_text("utf-8")
        for pattern, instead in _CHANGES:
            text = re.sub(pattern, instead, text)
        module = sys.modules[name] = ModuleType(name)
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
        found.append(module)
    return found[0], found[1]


@dataclass(kw_only=True)
class Heard:
    """A trial, and the logger of their code: it keeps what is said after each epoch."""

    rows: list[Mapping[str, float]] = field(default_factory=list)
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0
    should_stop: bool = False

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Of hpq."""
        self.rows.append(metrics)

    def append(self, row: Mapping[str, float]) -> None:
        """Of theirs."""
        self.rows.append({name.replace(" ", "/"): value for name, value in row.items()})


def compare(
    utils: Any, theirs: Any, batch_norm: bool, cutout: int, momentum: float, rate: float
) -> float:
    """The largest relative difference of a loss or an accuracy in any epoch."""
    random = np.random.default_rng(0)
    images, tests = (random.integers(0, 256, (n, 32, 32, 3), np.uint8) for n in (IMAGES, TESTS))
    labels, answers = (random.integers(0, 10, n) for n in (IMAGES, TESTS))
    torch.manual_seed(3)
    np.random.seed(3)
    channels = {"prep": WIDTH, "layer1": 2 * WIDTH, "layer2": 4 * WIDTH, "layer3": 8 * WIDTH}
    net = theirs.net(channels=channels, use_bn=batch_norm)
    model = theirs.TorchGraph(theirs.union(net, theirs.losses)).double()
    for module in model.modules():
        module.to(torch.float64)
    ours = ResNet9(WIDTH, batch_norm=batch_norm).double()
    with torch.no_grad():
        for one, other in zip(ours.parameters(), model.parameters(), strict=True):
            one.copy_(other)
    drawn = _Draws(utils, images, labels, cutout)
    said, heard = Heard(), Heard()
    utils.train(
        model,
        utils.PiecewiseLinear([0, 5, EPOCHS], [0, rate, 0]),
        utils.nesterov(utils.trainable_params(model), momentum=momentum, weight_decay=5e-4 * SIZE),
        drawn.data,
        list(zip(utils.transpose(utils.normalise(tests)), answers, strict=True)),
        batch_size=SIZE,
        loggers=(said,),
        test_time_in_total=False,
        drop_last=True,
    )
    test = Split(images=torch.from_numpy(tests), labels=torch.from_numpy(answers))
    epochs = drawn.epochs()
    task = Task(
        model=placed(ours, torch.device("cpu"), PLAN),
        train=lambda: next(epochs),
        test=lambda: in_order(test, lambda some: augment.normalise(some, PLAN.dtype)),
        train_images=IMAGES,
    )
    recipe = Recipe(
        seed=0,
        epochs=EPOCHS,
        batch_size=SIZE,
        momentum=momentum,
        max_learning_rate=rate,
        weight_decay=5e-4,
    )
    fit(task, recipe, heard, PLAN)  # type: ignore[arg-type]
    return _worst(said.rows, heard.rows)


class _Draws:
    """Their training set, which notes the order and the choices of each epoch."""

    def __init__(self, utils: Any, images: Any, labels: Any, cutout: int) -> None:
        self._split = Split(images=torch.from_numpy(images), labels=torch.from_numpy(labels))
        self._cutout = cutout
        self._orders: list[list[int]] = []
        self._choices: list[list[dict[str, Any]]] = []
        pixels = utils.transpose(utils.normalise(utils.pad(images, 4)))
        outer = self

        class Noting(utils.Transform):  # type: ignore[misc]
            def set_random_choices(self) -> None:
                super().set_random_choices()
                outer._choices.append(list(self.choices))
                outer._orders.append([])

            def __getitem__(self, index: int) -> Any:
                if self.choices is not None:
                    outer._orders[-1].append(index)
                return super().__getitem__(index)

        cut = utils.Cutout(cutout, cutout)
        some = list(zip(pixels, labels, strict=True))
        self.data = Noting(some, [utils.Crop(32, 32), utils.FlipLR(), cut])

    def epochs(self) -> Iterator[Iterator[Batch]]:
        """The same epochs for hpq."""
        for order, (crop, flip, cut) in zip(self._orders, self._choices, strict=True):
            index = torch.tensor(order)[: IMAGES - IMAGES % SIZE]
            choices = Choices(
                crop_y=torch.as_tensor(crop["y0"])[index],
                crop_x=torch.as_tensor(crop["x0"])[index],
                flip=torch.as_tensor(flip["choice"])[index].bool(),
                cut_y=torch.as_tensor(cut["y0"])[index],
                cut_x=torch.as_tensor(cut["x0"])[index],
            )
            yield with_choices(self._split, index, choices, SIZE, self._cutout, PLAN)


def _worst(theirs: list[Mapping[str, float]], ours: list[Mapping[str, float]]) -> float:
    names = ("train/loss", "train/acc", "test/loss", "test/acc")
    return max(
        abs(row[name] - other[name]) / max(abs(other[name]), 1e-3)
        for row, other in zip(ours, theirs, strict=True)
        for name in names
    )


def main() -> None:
    """Compare; exits with 1 where the figures are not the same."""
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "utils.py").exists():
        sys.exit("benchmarks.published: give the directory of the published utils.py")
    torch.set_num_threads(1)
    modules, is_same = published(Path(sys.argv[1])), True
    for batch_norm, cutout, momentum, rate in SETS:
        worst = compare(*modules, batch_norm, cutout, momentum, rate)
        is_same = is_same and worst < ROUNDING
        said = f"batch norm {'on' if batch_norm else 'off'}, cutout {cutout}, {momentum=}, {rate=}"
        print(f"{said}: {EPOCHS} epochs differ by {worst:.1e} at most", flush=True)
    sys.exit(not is_same)


if __name__ == "__main__":
    main()
