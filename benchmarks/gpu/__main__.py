"""`python -m benchmarks.gpu [--data DIR] [--out DIR]`: G1 to G9 and parity, in nine minutes.

Rows as they are measured, a table after each section; gpu.md and gpu.json in `--out` are written
anew with each row, so that whatever ends the run leaves what was measured. Exits with 1 where a
section or a check failed, with 2 where it cannot begin.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import platform
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu import graph, sections, steps, sweep
from benchmarks.gpu.arguments import Given, arguments
from benchmarks.gpu.report import Report
from benchmarks.gpu.trials import FAILED, Clock, Lab, OutOfTime, Rows, random_data, reason
from benchmarks.upstream import Upstream, load
from hpq.errors import TOLD_TO_GO, ExitCode, HpqError, UserError
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.step import forget

FULL = {"width": 64, "epochs": 24, "train_images": 50_000, "test_images": 10_000}
SMALL = {"width": 4, "epochs": 3, "train_images": 100, "test_images": 20}
SHRINK = 16  # batches of a small run
# Sections leave the later ones their `least_s`; these more, to come to an end worth having:
# the sixteen sets; one trial of the peer, 24 epochs long, with the seeds of hpq beside it.
_KEPT_S = {"G3": 130.0, "parity": 120.0}
_GRACE_S = 25.0  # for what cannot be cut short; then the run is ended, and shows where it stood


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What is measured, in how many seconds at most; with fewer than `least_s` it is skipped."""

    what: str
    least_s: float
    most_s: float
    measure: Callable[[Lab, Clock], Rows]
    by_name: bool = False  # measured only where it is asked for


def plan(seen: dict[str, list[float]]) -> dict[str, Section]:
    """All sections, by value."""

    def section(
        what: str, least_s: float, most_s: float, measure: object, by_name: bool = False
    ) -> Section:
        assert callable(measure)
        return Section(what=what, least_s=least_s, most_s=most_s, measure=measure, by_name=by_name)

    return {
        "graph": section("the captured step: right, and clean", 30, 75, graph.captured_step),
        "G1": section("a trial at batch 512", 30, 60, partial(_whole, "G1", 512, 12, 6)),
        "G2": section("a trial at batch 128", 35, 80, partial(_whole, "G2", 128, 15, None)),
        "G7": section("a trial that diverges", 8, 15, sections.diverge),
        "G3": section("sixteen sets in a runner, gaps, starts", 40, 225, sweep.in_a_runner),
        "G8": section("each technique on top of the last", 20, 60, partial(_ablation, 512)),
        "G8b": section("the same at batch 128", 20, 80, partial(_ablation, 128)),
        "G8d": section("the step taken apart", 8, 30, steps.taken_apart),
        "G6": section("trials that share the GPU", 40, 80, sweep.sharing),
        "G8c": section("torch.compile on top of it", 100, 240, sections.compiled, by_name=True),
        "G9": section("cifar10-fast, another recipe", 15, 40, sections.fast),
        "parity": section(
            "accuracy", 30, 600, lambda lab, clock: sections.parity(lab, clock, seen)
        ),
    }


def chosen(every: Mapping[str, Section], only: Sequence[str]) -> list[str]:
    """The names of the sections to measure, in order: those asked for, else all but a few."""
    return list(only) or [name for name, section in every.items() if not section.by_name]


def kept_s(every: Mapping[str, Section], later: Iterable[str]) -> float:
    """What those before these sections leave for them."""
    return sum(_KEPT_S.get(name, every[name].least_s) for name in later)


def _whole(
    name: str, size: int, target: float, times: float | None, lab: Lab, clock: Clock
) -> Rows:
    return sections.whole(lab, clock, name, size, target, times)


def _ablation(size: int, lab: Lab, clock: Clock) -> Rows:
    return sections.ablation(lab, clock, size)


def main() -> None:
    """Measure; a section that fails, or for which there is no time, says so and the next begins."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TOLD_TO_GO))  # what stands open is closed
    try:
        fine = _run(arguments(list(plan({}))))
    except HpqError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        sys.exit(int(ExitCode.USER))
    sys.exit(0 if fine else 1)


def _run(given: Given) -> bool:
    ends = time.perf_counter() + 60 * given.minutes
    faulthandler.dump_traceback_later(60 * given.minutes + _GRACE_S, exit=True)
    place = _place(given)
    code = _published(given, place)
    _make(given.out)
    with tempfile.TemporaryDirectory(prefix="hpq-gpu-") as name:
        # The first optimizer of torch imports this, seconds that would be the peer's.
        importlib.import_module("torch._dynamo")
        lab = replace(_lab(given, place, Path(name)), upstream=code)
        about = _conditions(lab, given)  # data are decoded here, before anything is timed
        seen: dict[str, list[float]] = {}
        if given.earlier is not None:
            given.earlier.check(about)
            seen = dict(given.earlier.parity)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{name}/inductor")
        report, every = Report(about=about, parity=seen, out=given.out), plan(seen)
        names, fine = chosen(every, given.only), []
        for i, key in enumerate(names):
            later_s = kept_s(every, names[i + 1 :]) / lab.shrink
            fine.append(_measure(key, every[key], lab, ends, report, later_s))
    faulthandler.cancel_dump_traceback_later()
    return all(fine)


def _measure(
    name: str, section: Section, lab: Lab, ends: float, report: Report, later_s: float = 0.0
) -> bool:
    """False where it failed, or says that something did; to be cut short is none.

    It leaves `later_s` for those after it, as long as it has the least that it takes.
    """
    began, fine = time.perf_counter(), True
    least_s = section.least_s / lab.shrink
    until = min(ends, began + section.most_s, max(began + least_s, ends - later_s))
    report.begin(name, section.what)
    if ends - began < least_s:
        report.note(f"skipped: {max(0, ends - began):.0f} s left, it takes {section.least_s:g}")
    else:
        try:
            for row in section.measure(lab, Clock(until=until)):
                report.note(row) if isinstance(row, str) else report.row(row)
                fine &= not (isinstance(row, str) and row.startswith(FAILED))
        except OutOfTime as error:
            report.note(f"cut short: {str(error) or 'out of time'}")
        except Exception as error:
            report.note(f"{FAILED}{reason(error)}")
            fine = False
        forget()
    report.end(time.perf_counter() - began)
    return fine


def _place(given: Given) -> torch.device:
    place = device.pick()
    if place.type != "cuda" and not given.small:
        raise UserError(f"no GPU: {device.why_no_gpu()}; --small tries it on a CPU")
    return place


def _published(given: Given, place: torch.device) -> Upstream | None:
    try:
        return load(given.published, device.plan(place).dtype) if given.published else None
    except UserError as error:
        raise UserError(f"--published {error}") from None


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()  # may be written to, and nothing is left
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from None


def _lab(given: Given, place: torch.device, folder: Path) -> Lab:
    size = dict(SMALL if given.small else FULL)
    counts = int(size["train_images"]), int(size["test_images"])
    if given.data:
        where = Path(given.data)
    else:
        where = random_data(folder / "cifar-10-batches-py", *counts)
        print("no --data: the images are noise; accuracies mean nothing", flush=True)
    return Lab(
        data=where.resolve(),
        cache=folder / "cache",
        place=place,
        size=size,
        shrink=SHRINK if given.small else 1,
    )


def _conditions(lab: Lab, given: Given) -> dict[str, str | int]:
    gpu = lab.place.type == "cuda"
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "device": torch.cuda.get_device_name() if gpu else "no GPU: the figures mean nothing",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {_cudnn(gpu)}",
        "python": platform.python_version(),
        "cores": f"{len(os.sched_getaffinity(0))}, load {os.getloadavg()[0]:.1f}",
        "plan": str(device.plan(lab.place)),
        "peer": lab.peer + (f", CRC-32 {lab.upstream.crc}" if lab.upstream else ""),
        "data": given.data or "noise",
        "images": _images(lab),
        "size": ", ".join(f"{name} {value}" for name, value in lab.size.items()),
        "MPS": "on" if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") else "off",
    }


def _images(lab: Lab) -> str:
    """What the images and labels are known by, wherever they lie."""
    crc = 0
    for _, array in sorted(lab.arrays().items()):
        crc = zlib.crc32(array.tobytes(), crc)
    return f"CRC-32 {crc:08x}"


def _cudnn(gpu: bool) -> str:
    return str(torch.backends.cudnn.version()) if gpu else "none"


if __name__ == "__main__":
    main()
