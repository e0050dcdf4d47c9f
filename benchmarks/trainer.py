"""Measure the CIFAR10 trainer on a CPU: the small sweep by a worker, and as in the article.

Needs CIFAR10 in HPQ_DATA; one thread each. A round is one of the sixteen trials at each batch size.
The article's code gets decoded images of the right number, as a file of arrays.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks import article
from benchmarks.desk import Desk
from benchmarks.figures import Figure, in_turn
from benchmarks.processes import ROOT, WORKER, environment, running, wall_s
from benchmarks.server import Server, private_server
from benchmarks.sweeps import put, wait_over
from hpq.domain.trial import Json
from hpq.errors import DataMissing
from hpq_producer.sweepfile.load import load as read_file
from hpq_producer.sweepfile.spec import parameter_sets
from hpq_worker.trainers import cifar10
from hpq_worker.trainers.data import load_data

_FILE = ROOT / "configs" / "cifar10-16-small.yaml"
_THREADS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
_WALL, _CPU = "from start to last result", "CPU time of all its processes"


def measure(rounds: int) -> Iterator[Figure]:
    """Measure the CPU time of an epoch, then wall and CPU time of whole sweeps.

    Raises:
        SystemExit: CIFAR10 is not in HPQ_DATA.
    """
    data = os.environ.get("HPQ_DATA")
    torch.set_num_threads(1)
    every = list(parameter_sets(read_file(_FILE)))
    some = [every[i] for i in _spread(len(every))][: 2 * rounds]
    with private_server() as server:
        desk = Desk(
            data=Path(data) if data else server.folder, cache=server.folder / "home" / "cache"
        )
        arrays = _arrays(desk, every[0])
        path = server.folder / "arrays.npz"
        np.savez(path, **arrays)
        yield from _epochs(desk, arrays, every, rounds)
        ours = _used(lambda: _hpq(server, desk, some))
        theirs = _used(lambda: _articles(path, some))
    for i, what in enumerate((_WALL, _CPU)):
        own = Figure(what=f"hpq, {len(some)} sets, {what}", unit="s", values=[ours[i]])
        yield own
        yield own.peer(f"the article's way, a process a set, {what}", [theirs[i]])


def _spread(of: int) -> list[int]:
    # The halves differ in batch size, so that any two trials include both.
    return [number for i in range(of // 2) for number in (i, of // 2 + i)]


def _arrays(desk: Desk, params: dict[str, Json]) -> dict[str, Any]:
    sizes: Any = (params["train_images"], params["test_images"])
    try:
        images = load_data("cifar10", desk, *sizes)  # type: ignore[arg-type]
    except DataMissing as error:
        raise SystemExit(f"benchmarks: {error}") from None
    return {
        f"{part}_{kind}": getattr(getattr(images, part), kind).numpy()
        for part in ("train", "test")
        for kind in ("images", "labels")
    }


def _hpq(server: Server, desk: Desk, some: Sequence[dict[str, Json]]) -> None:
    listed = [{"hyperparam_set": params} for params in some]
    file = server.folder / "sets.yaml"
    file.write_text(yaml.safe_dump(listed, sort_keys=False), "utf-8")
    sid = put(server, file)
    with running(WORKER, {**server.env, **_THREADS, "HPQ_DATA": str(desk.data)}):
        wait_over(server, sid, 3_600)


def _articles(arrays: Path, some: Sequence[dict[str, Json]]) -> None:
    for params in some:
        words = (sys.executable, "-m", "benchmarks.article", str(arrays), json.dumps(params))
        wall_s(words, environment(_THREADS))


def _used(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall time, and CPU time of all processes that started and ended meanwhile."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu_s


def _epochs(
    desk: Desk, arrays: dict[str, Any], every: Sequence[dict[str, Json]], rounds: int
) -> Iterator[Figure]:
    for batch_size in (128, 512):
        best = next(params for params in every if params["batch_size"] == batch_size)
        params = {**best, "epochs": 1}

        def ours(params: dict[str, Json] = params) -> float:
            return _cpu_s(lambda: cifar10.train(params, desk))  # type: ignore[arg-type]

        def theirs(params: dict[str, Json] = params) -> float:
            return _cpu_s(lambda: _article(arrays, params))

        found = in_turn(rounds, {"ours": ours, "theirs": theirs})
        own = Figure(
            what=f"hpq, CPU time of a trial of 1 epoch, batch {batch_size}",
            unit="s",
            values=found["ours"],
        )
        yield own
        yield own.peer("the article's way, the same in a warm process", found["theirs"])


def _article(arrays: dict[str, Any], params: dict[str, Json]) -> None:
    model, dtype = article.network(params, torch.device("cpu"))
    for _ in article.train(model, arrays, params, dtype):
        pass


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
