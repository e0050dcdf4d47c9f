"""Run the article's published code from the caller's checkout; no part of it is copied here.

utils.py and cifar10_train.py of NVIDIA-developer-blog/kubernetes-hyperparam-exp run with CHANGES.
Their parts are called in the order of their `main`, which reads files of the author's machine.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from hpq.errors import UserError

REPOSITORY = "NVIDIA-developer-blog/kubernetes-hyperparam-exp"
FILES = ("utils.py", "cifar10_train.py")
Row = dict[str, float]  # the metrics of an epoch, by hpq's names
_NAMES = {
    "utils.py": (
        "device normalise pad transpose Transform Crop FlipLR Cutout PiecewiseLinear nesterov"
        " trainable_params train warmup_cudnn"
    ).split(),
    "cifar10_train.py": ["TorchGraph", "union", "net", "losses"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A pattern in their text, its replacement, the precisions that need it, and the reason."""

    pattern: str
    instead: str
    dtypes: tuple[torch.dtype, ...]
    why: str


_GPU, _CPU, _EXACT = torch.half, torch.float32, torch.float64
CHANGES = (
    Change(
        pattern=r"^import torchvision$",
        instead="",
        dtypes=(_GPU, _CPU, _EXACT),
        why="only their main uses it, for an image layout that no longer exists",
    ),
    Change(
        pattern=r"\bnp\.float\b",
        instead="np.float64",
        dtypes=(_GPU, _CPU, _EXACT),
        why="NumPy 1.24 removed this alias of Python's float (float64)",
    ),
    Change(
        pattern=r"shape is \(\)",
        instead="shape == ()",
        dtypes=(_GPU, _CPU, _EXACT),
        why="Python warns of `is` with a literal, since 3.8",
    ),
    Change(
        pattern=r"pin_memory=True",
        instead="pin_memory=False",
        dtypes=(_CPU, _EXACT),
        why="pinned memory is for copies to a GPU; torch warns without one",
    ),
    Change(
        pattern=r"\.half\(\)",
        instead=".float()",
        dtypes=(_CPU,),
        why="half precision is for a GPU; on a CPU it is many times slower",
    ),
    Change(
        pattern=r"\.half\(\)",
        instead=".double()",
        dtypes=(_EXACT,),
        why="equality is tested with rounding far below the tolerance",
    ),
    Change(
        pattern=r"np\.array\(a, np\.float32\)",
        instead="np.array(a, np.float64)",
        dtypes=(_EXACT,),
        why="the same for images",
    ),
)


@dataclass(frozen=True, slots=True)
class _Logger:
    """Receives the metrics of each epoch from their loop."""

    hear: Callable[[Row], None]

    def append(self, row: Mapping[str, Any]) -> None:
        """Convert their names, which have a space instead of hpq's slash."""
        said = {name.replace(" ", "/"): float(value) for name, value in row.items()}
        # A test ends when its last batch is read back, so the sum of both times is exact; the
        # split is not, since training may still run when its clock is read.
        self.hear({**said, "epoch/time": said["train/time"] + said["test/time"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Their two modules in one precision, half on a GPU as in the original."""

    utils: Any
    script: Any
    dtype: torch.dtype
    crc: str  # of both texts, before any change

    def model(self, width: int, batch_norm: bool, place: torch.device) -> Any:
        """Build their network with their losses from torch's global generator."""
        names = ("prep", "layer1", "layer2", "layer3")
        channels = {name: width << doubled for doubled, name in enumerate(names)}
        net = self.script.net(channels=channels, use_bn=batch_norm)
        model = self.script.TorchGraph(self.script.union(net, self.script.losses)).to(place)
        # Their own half() leaves the batch norms float32.
        return model.half() if self.dtype == torch.half else model.to(self.dtype)

    def fit(
        self,
        model: Any,
        data: tuple[Any, Any],
        params: Mapping[str, Any],
        hear: Callable[[Row], None],
    ) -> None:
        """Run their loop on a training and a test set; `hear` gets each epoch and may stop it."""
        size, epochs, rate = params["batch_size"], params["epochs"], params["max_learning_rate"]
        self.utils.device = next(model.parameters()).device
        self.utils.train(
            model,
            self.utils.PiecewiseLinear([0, 5 * epochs / 24, epochs], [0, rate, 0]),
            self.utils.nesterov(
                self.utils.trainable_params(model),
                momentum=params["momentum"],
                weight_decay=5e-4 * size,
            ),
            *data,
            batch_size=size,
            loggers=(_Logger(hear),),
            test_time_in_total=False,
            drop_last=True,
        )

    def trial(
        self,
        arrays: Mapping[str, Any],
        params: Mapping[str, Any],
        place: torch.device,
        hear: Callable[[Row], None],
    ) -> None:
        """Run one trial on images (N, 32, 32, 3) of uint8, normalized before the first epoch."""
        utils, size, cutout = self.utils, params["batch_size"], params["data_aug_cutout_size"]
        torch.manual_seed(params.get("seed", 0))
        np.random.seed(params.get("seed", 0))
        model = self.model(params["width"], params["batch_norm"] == "on", place)
        if place.type == "cuda":  # warm-up: cuDNN chooses its kernels for both batch sizes
            for some in (size, len(arrays["test_images"]) % size):
                if some:
                    utils.warmup_cudnn(model, some)
        padded = utils.transpose(utils.normalise(utils.pad(arrays["train_images"], 4)))
        tests = utils.transpose(utils.normalise(arrays["test_images"]))
        changed = [utils.Crop(32, 32), utils.FlipLR(), utils.Cutout(cutout, cutout)]
        training = utils.Transform(_pairs(padded, arrays["train_labels"]), changed)
        self.fit(model, (training, _pairs(tests, arrays["test_labels"])), params, hear)


def _pairs(images: Any, labels: Any) -> list[Any]:
    return list(zip(images, labels.tolist(), strict=True))


def load(folder: Path, dtype: torch.dtype) -> Upstream:
    """Load their two modules; `dtype` is half on a GPU, float32 or float64 on a CPU.

    Raises:
        UserError: the directory is not that checkout, or its code cannot be loaded.
    """
    texts = {name: _read(folder, name) for name in FILES}
    crc = 0
    for text in texts.values():
        crc = zlib.crc32(text.encode(), crc)
    utils = _module(folder, "utils.py", texts["utils.py"], dtype)
    before = sys.modules.get("utils")
    sys.modules["utils"] = utils  # cifar10_train imports it by this name
    try:
        script = _module(folder, "cifar10_train.py", texts["cifar10_train.py"], dtype)
    finally:
        if before is None:
            del sys.modules["utils"]
        else:
            sys.modules["utils"] = before
    return Upstream(utils=utils, script=script, dtype=dtype, crc=f"{crc:08x}")


def _read(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"{folder}: {name}: {why}; pass a checkout of {REPOSITORY}") from None


def _module(folder: Path, name: str, text: str, dtype: torch.dtype) -> ModuleType:
    for change in CHANGES:
        if dtype in change.dtypes:
            text = re.sub(change.pattern, change.instead, text, flags=re.MULTILINE)
    module = ModuleType(name.removesuffix(".py"))
    try:
        exec(compile(text, str(folder / name), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{folder}: cannot load {name}: {said}") from None
    _see(folder, name, module, _NAMES[name])
    return module


def _see(folder: Path, name: str, module: ModuleType, names: Iterable[str]) -> None:
    for missing in (wanted for wanted in names if not hasattr(module, wanted)):
        raise UserError(f"{folder}: {name} has no {missing}; pass a checkout of {REPOSITORY}")
