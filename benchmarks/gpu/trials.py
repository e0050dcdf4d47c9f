"""Trials in this process: hpq's trainer and the article's, on the same images."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import article
from benchmarks.figures import Figure
from benchmarks.upstream import Row, Upstream
from hpq_worker.trainers import cifar10
from hpq_worker.trainers.data.datasets import DataSet, load_data
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.device import Plan

Rows = Iterator[Figure | str]  # of a section: figures, and what is to be said beside them
FAILED = "failed: "  # begins a line for which the run exits with 1
BEST = {"max_learning_rate": 0.4, "data_aug_cutout_size": 5, "momentum": 0.9, "batch_norm": "on"}


class OutOfTime(Exception):
    """Raised where a section has used what it may."""


class _Enough(Exception):
    """Raised out of the article's loop where all that is wanted has been heard."""


def reason(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


@dataclass(kw_only=True)
class Clock:
    """Says when a section has to end."""

    until: float = float("inf")

    @property
    def left_s(self) -> float:
        """Seconds until then."""
        return self.until - time.perf_counter()


@dataclass(kw_only=True)
class Desk:
    """The trial as a trainer sees it: it keeps its reports and when they came."""

    data: Path | None
    cache: Path
    clock: Clock = field(default_factory=Clock)
    most: int = 10_000  # epochs
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0
    reports: list[dict[str, float]] = field(default_factory=list)

    @property
    def should_stop(self) -> bool:
        """True when the time is over, or the epochs."""
        return self.clock.left_s < 0 or len(self.reports) >= self.most

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep it."""
        self.reports.append({**metrics, "at": time.perf_counter()})

    def phase(self, text: str) -> None:
        """Nothing."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A trial: seconds from its start to its end, of each epoch, and its last test accuracy."""

    whole_s: float
    epochs_s: list[float]
    accuracy: float

    @property
    def epoch_s(self) -> float:
        """The usual one, with its evaluation."""
        return median(self.epochs_s)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What a trial of the peer takes: seconds before its first epoch, and of each."""

    before_s: float
    epoch_s: float

    def takes_s(self, epochs: int) -> float:
        """Of a trial of so many epochs."""
        return self.before_s + epochs * self.epoch_s


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where everything is measured, and on what: `size` makes it small for a CPU."""

    data: Path
    cache: Path
    place: torch.device
    size: Mapping[str, Any]  # width, images, epochs of a whole trial
    shrink: int = 1  # what batch sizes are divided by
    upstream: Upstream | None = None  # the article's published code, where it was given
    paces: dict[int, Pace] = field(default_factory=dict)  # of the peer, by batch size, as measured

    @property
    def peer(self) -> str:
        """What stands beside hpq: the article's code, or what was written from its description."""
        return "the article's way" if self.upstream is None else "the article's published code"

    @property
    def epochs(self) -> int:
        """Of a whole trial."""
        return int(self.size["epochs"])

    def params(self, batch_size: int, **changes: Any) -> dict[str, Any]:
        """The best set at this batch size, changed."""
        return {**BEST, **self.size, "batch_size": batch_size // self.shrink, **changes}

    def ours(
        self,
        params: Mapping[str, Any],
        clock: Clock,
        plan: Plan | None = None,
        most: int = 10_000,
        train: Callable[..., None] = cifar10.train,
    ) -> Timed:
        """One trial of hpq's trainer in this process.

        Raises:
            OutOfTime: the clock ran out before its last epoch.
        """
        desk = Desk(data=self.data, cache=self.cache, clock=clock, most=most)
        began = time.perf_counter()
        train(params, desk, plan or device.plan(self.place))
        ended = time.perf_counter()
        if len(desk.reports) < min(most, params["epochs"]):
            raise OutOfTime
        at = [row["at"] for row in desk.reports]
        between = [b - a for a, b in pairwise(at)] or [ended - began]
        accuracy = desk.reports[-1]["test/acc"]
        return Timed(whole_s=ended - began, epochs_s=between, accuracy=accuracy)

    def articles(self, params: Mapping[str, Any], clock: Clock, most: int = 10_000) -> Timed:
        """One trial of the peer, in this process: its import and start are not counted.

        Of a trial that is not wanted whole, two epochs are enough when the clock runs out.

        Raises:
            OutOfTime: the clock ran out before.
        """
        arrays, rows = self.arrays(), list[Row]()
        most = min(most, params["epochs"])

        def hear(row: Row) -> None:
            rows.append(row)
            if len(rows) == most or (
                clock.left_s < 0 and len(rows) > 1 and most < params["epochs"]
            ):
                raise _Enough
            if clock.left_s < 0:
                raise OutOfTime

        began = time.perf_counter()
        with suppress(_Enough):
            if self.upstream is None:
                model, dtype = article.network(params, self.place)
                for row in article.train(model, arrays, params, dtype):
                    hear(row)
            else:
                self.upstream.trial(arrays, params, self.place, hear)
        whole_s = time.perf_counter() - began
        # torch's first optimizer imports its compiler, where a cycle of frames holds their network.
        gc.collect()
        seconds = [row["epoch/time"] for row in rows]
        found = Timed(
            whole_s=whole_s, epochs_s=seconds[1:] or seconds, accuracy=rows[-1]["test/acc"]
        )
        self.paces[params["batch_size"]] = Pace(
            before_s=max(0.0, whole_s - sum(seconds)), epoch_s=found.epoch_s
        )
        return found

    def arrays(self) -> dict[str, article.Array]:
        """The images and labels as the article's way takes them."""
        found = self.images()
        return {
            f"{name}_{what}": getattr(split, what).cpu().numpy()
            for name, split in (("train", found.train), ("test", found.test))
            for what in ("images", "labels")
        }

    def images(self) -> DataSet:
        """The images and labels as the trainer has them, on the device."""
        return load_data("cifar10", Desk(data=self.data, cache=self.cache), *self.counts)

    @property
    def counts(self) -> tuple[int, int]:
        """Images to train on and to test on."""
        return int(self.size["train_images"]), int(self.size["test_images"])


def random_data(folder: Path, train: int, test: int) -> Path:
    """CIFAR10's own files with noise in them, for speed where the images cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    names = [(f"data_batch_{i}", train // 5) for i in range(1, 6)] + [("test_batch", test)]
    for name, count in names:
        pixels = random.integers(0, 256, (count, 3072), np.uint8)
        labels = [i % 10 for i in range(count)]
        # Protocol 3: a newer one names functions that the reader refuses.
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": labels}, protocol=3))
    return folder


def network(lab: Lab, plan: Plan) -> nn.Module:
    """The trainer's network with the weights of seed 0, as a trial makes it."""
    return cifar10.network(int(lab.size["width"]), True, 0, lab.place, plan)
