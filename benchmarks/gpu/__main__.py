"""`python -m benchmarks.gpu [--data DIR] [--json FILE]`: G1 to G8 and parity, in ten minutes.

The tables as they are measured, then all of it as JSON, or in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.figures import Figure
from benchmarks.gpu import sections, sweep
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, random_data
from benchmarks.table import as_json, text
from hpq.errors import HpqError
from worker.trainers import device
from worker.trainers.step import forget

FULL = {"width": 64, "epochs": 24, "train_images": 50_000, "test_images": 10_000}
SMALL = {"width": 4, "epochs": 3, "train_images": 100, "test_images": 20}
SHRINK = 16  # batches of a small run
Section = tuple[str, float, Callable[[Lab, Clock], Iterator[Figure]]]


def plan(seen: dict[str, list[float]]) -> dict[str, Section]:
    """Name: what it is, the most seconds it may take, and how it is measured; by value."""
    return {
        "G1": ("a trial at batch 512", 60, partial(_whole, "G1", 512, 12)),
        "G2": ("a trial at batch 128", 80, partial(_whole, "G2", 128, 15)),
        "G7": ("a trial that diverges", 15, sections.diverge),
        "G3": ("sixteen sets in a runner, gaps, starts", 190, sweep.in_a_runner),
        "G8": ("each technique on top of the last", 60, partial(_ablation, 512)),
        "G8b": ("the same at batch 128", 80, partial(_ablation, 128)),
        "G8c": ("torch.compile on top of it", 150, sections.compiled),
        "G6": ("trials that share the GPU", 80, sweep.sharing),
        "parity": ("accuracy", 600, lambda lab, clock: sections.parity(lab, clock, seen)),
    }


def _whole(name: str, size: int, target: float, lab: Lab, clock: Clock) -> Iterator[Figure]:
    return sections.whole(lab, clock, name, size, target)


def _ablation(size: int, lab: Lab, clock: Clock) -> Iterator[Figure]:
    return sections.ablation(lab, clock, size)


def main() -> None:
    """Measure; a section that fails or runs out of time says so and the next one begins."""
    given = _arguments()
    ends = time.perf_counter() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="hpq-gpu-") as name:
        try:
            lab = _lab(given, Path(name))
            lab.arrays()  # decoded once, before anything is timed
        except HpqError as error:
            sys.exit(f"benchmarks.gpu: {error}")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{name}/inductor")
        about = _conditions(lab, given)
        print("\n".join(f"{key}: {value}" for key, value in about.items()), end="\n\n", flush=True)
        seen = _seen(given.parity_from)
        every = plan(seen)
        groups: dict[str, Sequence[Figure]] = {
            key: _measured(key, every[key], lab, ends)
            for key in given.only or every
            if key in every
        }
    whole = {**json.loads(as_json(about, groups)), "parity": seen}
    if given.json:
        Path(given.json).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    else:
        print(json.dumps(whole))


def _measured(name: str, section: Section, lab: Lab, ends: float) -> list[Figure]:
    what, most_s, measure = section
    print(f"{name} …", file=sys.stderr, flush=True)
    began, found = time.perf_counter(), []
    try:
        for figure in measure(lab, Clock(until=min(ends, began + most_s))):
            found.append(figure)
    except OutOfTime as error:
        print(f"{name}: cut short: {error or 'out of time'}", flush=True)
    except Exception as error:
        traceback.print_exc()
        print(f"{name}: not measured: {type(error).__name__}: {error}", flush=True)
    forget()
    if found:
        print(text(f"{name}, {time.perf_counter() - began:.0f} s", what, found), flush=True)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--data", help="where CIFAR10 lies (default: HPQ_DATA; else noise)")
    parser.add_argument("--json", help="write the figures there too")
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--only", nargs="*", choices=list(plan({})), metavar="NAME")
    parser.add_argument("--parity-from", help="go on with the seeds in an earlier --json file")
    parser.add_argument("--small", action="store_true", help="tiny, also without a GPU")
    return parser.parse_args()


def _lab(given: argparse.Namespace, folder: Path) -> Lab:
    place, size = device.pick(), dict(SMALL if given.small else FULL)
    if place.type != "cuda" and not given.small:
        sys.exit("benchmarks.gpu: torch sees no GPU; --small tries it on a CPU")
    data = given.data or os.environ.get("HPQ_DATA")
    counts = int(size["train_images"]), int(size["test_images"])
    where = Path(data) if data else random_data(folder / "cifar-10-batches-py", *counts)
    if not data:
        print("no --data: the images are noise; accuracies mean nothing", flush=True)
    return Lab(
        data=where.resolve(),
        cache=folder / "cache",
        place=place,
        size=size,
        shrink=SHRINK if given.small else 1,
    )


def _conditions(lab: Lab, given: argparse.Namespace) -> dict[str, str | int]:
    gpu = lab.place.type == "cuda"
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "device": torch.cuda.get_device_name() if gpu else "no GPU: the figures mean nothing",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}",
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "plan": str(device.plan(lab.place)),
        "data": given.data or os.environ.get("HPQ_DATA") or "noise",
        "MPS": "on" if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") else "off",
    }


def _seen(path: str | None) -> dict[str, list[float]]:
    if path is None:
        return {}
    return dict(json.loads(Path(path).read_text("utf-8"))["parity"])


if __name__ == "__main__":
    main()
