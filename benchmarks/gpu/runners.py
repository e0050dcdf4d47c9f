"""Trials in hpq's own runner processes, over their pipes, as a worker has them: all but Redis."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.trials import Clock, Lab, OutOfTime
from hpq.domain.trial import FailureKind, Json
from hpq_worker.process import devices
from hpq_worker.process.protocol import LineBuffer, RunRequest, read_message
from hpq_worker.runner.process import RunnerKey, RunnerProcess

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(kw_only=True)
class Ran:
    """When a trial was sent, when its reports came, when it ended, and why it failed, if it did.

    A trial that diverges has come to its end, as the article's would after all its epochs.
    """

    sent: float
    at: list[float] = field(default_factory=list)
    first_s: float = 0.0  # what its first epoch took, as it says
    accuracy: float = 0.0
    ended: float = 0.0
    failure: str = ""

    @property
    def epoch_s(self) -> float:
        """The usual time from a report to the next."""
        between = [b - a for a, b in pairwise(self.at)]
        return median(between) if between else 0.0

    @property
    def first_epoch(self) -> float:
        """When its first epoch began, with its images' augmentation: the first report, less that.

        The first step is as much later as the augmentation takes. Only of one that has reported.
        """
        return self.at[0] - self.first_s


class Warm:
    """One runner."""

    def __init__(self, lab: Lab, sharing: int) -> None:
        self._lab, self._lines, self._number = lab, LineBuffer(), 0
        env = {
            **os.environ,
            "HPQ_TRIALS_PER_GPU": str(sharing),
            "OMP_NUM_THREADS": devices.threads(sharing, os.environ),
            "PYTHONUNBUFFERED": "1",
        }
        self.started = time.perf_counter()
        self._child = RunnerProcess(
            RunnerKey(trainer="cifar10", code="", code_dir=""), env, str(ROOT)
        )
        self.now = Ran(sent=0.0)

    @property
    def fds(self) -> tuple[int, int]:
        """What it says, and what it prints."""
        return self._child.answers, self._child.output

    def send(self, params: Mapping[str, Json]) -> None:
        """Start a trial."""
        self._number += 1
        checkpoint = self._lab.cache / f"checkpoint-{id(self)}-{self._number}"
        checkpoint.mkdir(parents=True)
        self.now = Ran(sent=time.perf_counter())
        self._child.run(
            RunRequest(
                trial=f"bench/{self._number}",
                attempt=1,
                params=dict(params),
                trainer="cifar10",
                checkpoint=str(checkpoint),
                data=str(self._lab.data),
                cache=str(self._lab.cache),
            )
        )

    def hear(self) -> None:
        """Take what has come."""
        data = os.read(self._child.answers, 65_536)
        if not data:
            self.now.failure, self.now.ended = "the runner died", time.perf_counter()
        for line in self._lines.feed(data):
            message: Any = read_message(line)
            if "report" in message:
                said = message["report"]
                self.now.first_s = self.now.first_s or said["train/time"] + said["test/time"]
                self.now.at.append(time.perf_counter())
                self.now.accuracy = said["test/acc"]
            elif "end" in message:
                self.now.ended = time.perf_counter()
                failure = message["end"]["failure"]
                if failure and failure["kind"] != FailureKind.DIVERGED:
                    self.now.failure = str(failure["message"])

    def echo(self) -> None:
        """What it prints goes to stderr."""
        sys.stderr.buffer.write(os.read(self._child.output, 65_536))
        sys.stderr.flush()

    def close(self) -> None:
        """End it."""
        self._child.close()


@contextmanager
def runners(lab: Lab, count: int) -> Iterator[list[Warm]]:
    """So many, that share the GPU, gone at the end."""
    started = [Warm(lab, count) for _ in range(count)]
    try:
        yield started
    finally:
        for runner in started:
            runner.close()


def together(some: list[Warm], params: Mapping[str, Json], clock: Clock) -> list[Ran]:
    """The same trial in each of them at once.

    Raises:
        OutOfTime: the clock ran out.
        RuntimeError: one failed; all have ended.
    """
    for runner in some:
        runner.send(params)
    with selectors.DefaultSelector() as selector:
        for runner in some:
            for fd, take in zip(runner.fds, (runner.hear, runner.echo), strict=True):
                selector.register(fd, selectors.EVENT_READ, take)
        while not all(runner.now.ended for runner in some):
            if clock.left_s < 0:
                raise OutOfTime
            for key, _ in selector.select(1.0):
                key.data()
    for runner in some:
        if runner.now.failure:
            raise RuntimeError(runner.now.failure)
    return [runner.now for runner in some]
