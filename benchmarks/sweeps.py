"""Write sweep files for benchmarks: a grid of the article's five parameters, or a trainer.

A set is about 120 bytes of JSON, which is subtracted from measured sizes.
"""

from __future__ import annotations

import time
from pathlib import Path

import yaml

from benchmarks.server import DEADLINE_S, Server
from hpq.domain.trial import Json
from hpq_producer.enqueue.enqueue_sweep import enqueue_sweep
from hpq_producer.enqueue.prepare import prepare
from hpq_producer.sweepfile.load import load

TRAINING = Path(__file__).resolve().parent / "training"


def grid(count: int) -> Json:
    """Return a search space of `count` sets (a multiple of 100)."""
    axes: dict[str, list[Json]] = {
        "max_learning_rate": [0.0123451 + i / 1e7 for i in range(5)],
        "momentum": [0.9012301 + i / 1e7 for i in range(5)],
        "batch_norm": ["on", "off"],
        "data_aug_cutout_size": [4, 5],
        "batch_size": list(range(128, 128 + count // 100)),
    }
    return {
        name: {"values": [round(v, 7) if isinstance(v, float) else v for v in values]}
        for name, values in axes.items()
    }


def write_grid(folder: Path, count: int) -> Path:
    """Write a sweep file of `count` sets for the trainer cifar10."""
    data: dict[str, Json] = {"trainer": "cifar10", "method": "grid"}
    return _write(folder / f"grid-{count}.yaml", {**data, "parameters": grid(count)})


def write_trials(folder: Path, trainer: str, count: int, *, resident: bool, **fixed: Json) -> Path:
    """Write a sweep file of `count` trials for a trainer of `benchmarks/training`."""
    parameters: dict[str, Json] = {"number": {"values": list(range(count))}}
    parameters |= {name: {"value": value} for name, value in fixed.items()}
    data: dict[str, Json] = {
        "trainer": trainer,
        "code": str(TRAINING),
        "resident": resident,
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": parameters,
    }
    return _write(folder / f"{trainer.replace(':', '-')}-{count}.yaml", data)


def put(server: Server, file: Path) -> str:
    """Enqueue a sweep file as the command does; return the sweep's id."""
    prepared = prepare(load(file, limit=None), file)
    return enqueue_sweep(server.session(), prepared, allow_duplicate=True).sid


def wait_over(server: Server, sid: str, patience_s: float = DEADLINE_S) -> None:
    """Wait until all trials of a sweep have finished.

    Raises:
        SystemExit: a trial failed, or DEADLINE_S has passed.
    """
    reader, until = server.session().reader, time.monotonic() + patience_s
    while (counts := (sweep := reader.sweeps.get(sid)).counts).finished < counts.planned:
        if counts.failed or time.monotonic() > until:
            refused = [w.refuses for w in reader.workers.live() if w.refuses]
            raise SystemExit(f"benchmarks: {sid} is {sweep.state}: {counts} {refused or ''}")
        time.sleep(0.1)


def _write(path: Path, data: dict[str, Json]) -> Path:
    path.write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")
    return path
