"""The trainer on a GPU: `python -m benchmarks.gpu SECTION … [--data DIR] [--published DIR]`.

Four calls of at most nine minutes each measure everything: `graph G1 G2 G7`, `G3`,
`G8 G8b G8d G9`, `G6 parity`. They need torch with CUDA, NumPy and Pillow, and neither Redis nor rq.
Each row is in gpu.json (`--out`) once it is measured; a later call adds its sections, and its seeds
to those of parity. `--page FILE` writes the tables of gpu.json as Markdown.
`--small` tries all of it on a CPU; its figures mean nothing. Exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import math
import multiprocessing
import os
import platform
import runpy
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean, median, variance
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks import article
from benchmarks.figures import Figure
from benchmarks.table import text
from benchmarks.upstream import REPOSITORY, Row, Upstream, load
from hpq.errors import Diverged, UserError
from hpq_worker.trainers import cifar10, device
from hpq_worker.trainers.data import DataSet, load_data
from hpq_worker.trainers.step import Batch, Plan, Step, summed_cross_entropy

ROOT = Path(__file__).resolve().parent.parent
CALLS = ("graph G1 G2 G7", "G3", "G8 G8b G8d G9", "G6 parity")
MINUTES = 9.0
FULL = {"width": 64, "epochs": 24, "train_images": 50_000, "test_images": 10_000}
SMALL = {"width": 4, "epochs": 3, "train_images": 50, "test_images": 10}
BEST = {"max_learning_rate": 0.4, "data_aug_cutout_size": 5, "momentum": 0.9, "batch_norm": "on"}
SAME = ("device", "torch", "size", "images", "peer")  # conditions of all rows in one gpu.json
ROUNDS, FEW = 3, 3  # whole trials; epochs of what is not run whole: one to warm up, the rest counts
FAILED = "failed: "  # begins a line for which the run exits with 1
# Dense peak of half precision with float32 sums, FLOP/s; the vendor's figures.
PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "V100": 125e12}
ARTICLE = """\
To compare with: the best of the article's 16 sets had a test accuracy of 94.26 %; a trial
of it took 75 s of training. `hpq run configs/cifar10-16.yaml` trains the same sets."""
Reports = list[dict[str, float]]  # of a trial, each with the time.monotonic() at which it came
Rows = Iterator[Figure | str | None]  # of a section: figures, lines beside them, None to save
Section = Callable[["Lab", float], Rows]  # takes the time.monotonic() at which it has to end


class OutOfTime(Exception):
    """Raised when a section has used its time."""


class _Enough(Exception):
    """Raised out of the peer's loop when the wanted epochs are reported, or the time is over."""


def row(what: str, unit: str, values: list[float], target: float | None = None) -> Figure:
    """Return a figure of which less is better."""
    return Figure(what=what, unit=unit, values=values, target=target)


@dataclass(kw_only=True)
class Desk:
    """A trial as a trainer sees it; it keeps its reports and their times."""

    data: Path | None = None
    cache: Path = Path()
    until: float = math.inf
    most: int = 10_000  # epochs
    seed: int = 0
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0
    reports: Reports = field(default_factory=list)

    @property
    def should_stop(self) -> bool:
        """True when the time or the epochs are over."""
        return time.monotonic() > self.until or len(self.reports) >= self.most

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep a report."""
        self.reports.append({**metrics, "at": time.monotonic()})

    def phase(self, text: str) -> None:
        """Ignore it."""


class Timed(NamedTuple):
    """A trial: seconds from start to end, and of each epoch with its test; last test accuracy."""

    whole_s: float
    epochs_s: list[float]
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where everything is measured, and on what; `shrink` divides batch sizes of a small run."""

    data: Path
    cache: Path
    size: Mapping[str, Any]  # width, images, epochs of a whole trial
    shrink: int = 1
    upstream: Upstream | None = None  # the article's published code

    @property
    def peer(self) -> str:
        """The name of what stands beside hpq."""
        return "the article's way" if self.upstream is None else "the article's published code"

    def params(self, batch_size: int, **changes: Any) -> dict[str, Any]:
        """Return the best set at this batch size, changed."""
        return {**BEST, **self.size, "batch_size": batch_size // self.shrink, **changes}

    def ours(
        self,
        params: Mapping[str, Any],
        until: float = math.inf,
        most: int = 10_000,
        train: Callable[..., None] = cifar10.train,
    ) -> Timed:
        """Run one trial of hpq's trainer in this process; OutOfTime if it could not end."""
        seed = params.get("seed", 0)
        desk = Desk(data=self.data, cache=self.cache, until=until, most=most, seed=seed)
        began = time.monotonic()
        train(params, desk)
        whole_s = time.monotonic() - began
        if len(desk.reports) < min(most, params["epochs"]):
            raise OutOfTime
        between = [b["at"] - a["at"] for a, b in pairwise(desk.reports)] or [whole_s]
        return Timed(whole_s, between, desk.reports[-1]["test/acc"])

    def articles(
        self, params: Mapping[str, Any], until: float = math.inf, most: int = 10_000
    ) -> Timed:
        """Run one trial of the peer in this process, without its import and start; as `ours`."""
        arrays, rows, most = self.arrays(), list[Row](), min(most, params["epochs"])

        def hear(row: Row) -> None:
            rows.append(row)
            if len(rows) == most or time.monotonic() > until:
                raise _Enough

        began = time.monotonic()
        with suppress(_Enough):
            if self.upstream is None:
                model, dtype = article.network(params, device.pick())
                for row in article.train(model, arrays, params, dtype):
                    hear(row)
            else:
                self.upstream.trial(arrays, params, device.pick(), hear)
        whole_s = time.monotonic() - began
        gc.collect()  # a cycle of frames holds their network
        if len(rows) < most:
            raise OutOfTime
        seconds = [row["epoch/time"] for row in rows]
        return Timed(whole_s, seconds[1:] or seconds, rows[-1]["test/acc"])

    def images(self) -> DataSet:
        """Return the images and labels as the trainer has them, on the device."""
        desk: Any = Desk(data=self.data, cache=self.cache)
        return load_data("cifar10", desk, self.size["train_images"], self.size["test_images"])

    def arrays(self) -> dict[str, article.Array]:
        """Return the images and labels as the article's way takes them."""
        names, data = product(("train", "test"), ("images", "labels")), self.images()
        return {f"{x}_{y}": getattr(getattr(data, x), y).cpu().numpy() for x, y in names}

    def mfu(self, epoch_s: float) -> str:
        """Return the model FLOP utilization of epochs of this length, tests included."""
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        most = next((flops for gpu, flops in PEAKS.items() if gpu in name), math.nan)
        flop = training_flop(self.size["width"]) * self.size["train_images"]
        return f"MFU {flop / epoch_s / most:.1%}"


def training_flop(width: int) -> float:
    """Return the operations of one image forward and backward: 2.27e9 at width 64, convolutions."""
    w = width
    convs = [(3, w, 32), (w, 2 * w, 32), (2 * w, 2 * w, 16), (2 * w, 2 * w, 16)]
    convs += [(2 * w, 4 * w, 16), (4 * w, 8 * w, 8), (8 * w, 8 * w, 4), (8 * w, 8 * w, 4)]
    forward = sum(2 * 9 * c_in * c_out * side**2 for c_in, c_out, side in convs)
    first = 2 * 9 * 3 * w * 32**2  # the gradient of the images is not computed
    return 3 * (forward + 2 * 8 * w * 10) - first


def steps(
    lab: Lab, plan: Plan, size: int, wrap: Callable[[nn.Module], nn.Module] = nn.Sequential
) -> tuple[Step, list[Batch]]:
    """Return a step of the trainer's network with the weights of seed 0, and an epoch's batches."""
    torch.manual_seed(0)
    with device.pick():
        model = device.placed(wrap(cifar10.ResNet9(lab.size["width"])), plan).train()
    step = Step(model, plan, summed_cross_entropy, size=size, momentum=0.9, decay=5e-4)
    return step, list(cifar10.Augmented(lab.images().train, size, 5, 0, plan))


def wait() -> float:
    """Wait for the device; return the time."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


# --- graph: is the captured step right, what does a capture cost


class Peeks(nn.Sequential):
    """Reads a value back from the device, which no capture allows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the network returns."""
        logits: torch.Tensor = super().forward(x)
        return logits * (1.0 if logits.sum().item() < math.inf else 2.0)


def weights_after(
    lab: Lab, plan: Plan, wrap: Callable[[nn.Module], nn.Module] = nn.Sequential
) -> tuple[Step, list[torch.Tensor]]:
    """Return a step after four updates; its weights, statistics and sums in float64."""
    step, batches = steps(lab, plan, 256 // lab.shrink, wrap)
    for number, batch in zip(range(4), batches * 4, strict=False):
        step(batch, torch.full_like(step.lr, step.size * 0.02 * (number + 1) / 1024))
    state = [*step.model.state_dict().values(), step.sums]
    return step, [value.to(torch.float64, copy=True) for value in state]


def apart(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Return the largest difference of a tensor, in % of its norm; NaN if one has a NaN."""
    shares = [torch.dist(a, b) / (b.norm() + 1e-12) for a, b in zip(ours, theirs, strict=True)]
    return 100 * float(torch.stack(shares).max())  # Python's max would lose a NaN


def graph(lab: Lab, until: float) -> Rows:
    """Check what a capture computes; time captures."""
    if not cifar10.usual_plan().graph:
        yield "nothing is captured here: this section needs CUDA"
        return
    torch.backends.cudnn.deterministic = True
    try:
        yield from compared(lab)
    finally:
        torch.backends.cudnn.deterministic = False
    for size in (512, 128):
        seconds = []
        for _ in range(1 + ROUNDS):
            step, batches = steps(lab, cifar10.usual_plan(), size // lab.shrink)
            began = wait()
            step(batches[0], step.lr)
            seconds.append(wait() - began)
        yield row(f"a capture and a step, batch {size}", "s", seconds[1:])


def compared(lab: Lab) -> Rows:
    """Compare captured steps with eager ones, then break a capture."""
    # In half precision roundings grow within a few steps; float64 would show a stale number.
    for dtype, most in ((torch.float64, 1e-4), (cifar10.usual_plan().dtype, 5.0)):
        plan = replace(cifar10.usual_plan(), dtype=dtype)
        step, captured = weights_after(lab, plan)
        if step.graph is None:
            yield f"{FAILED}no capture in {dtype}: {step.why_eager}"
        plain = weights_after(lab, replace(plan, graph=False))[1]
        found = apart(captured, plain)
        if not found <= most:
            yield f"{FAILED}{dtype}: {found:.3g} % apart, at most {most:g}"
        what = f"4 captured steps beside eager ones, {str(dtype)[6:]}: largest difference"
        yield row(what, "%", [found], most)
    broken, eager = weights_after(lab, plan, Peeks)
    if broken.graph is not None or not apart(eager, plain) <= 5.0:
        yield f"{FAILED}a step that reads a value back: {apart(eager, plain):.3g} % apart"
    yield f"a network that reads a value back: {broken.why_eager}"
    torch.manual_seed(1)
    first = torch.rand(8, device=device.pick())
    torch.manual_seed(1)
    if not torch.equal(first, torch.rand_like(first)):
        yield f"{FAILED}after it the generator does not repeat from a seed"
    if weights_after(lab, plan)[0].graph is None:
        yield f"{FAILED}no capture after one that was refused"


# --- G1, G2, G7, parity: whole trials beside the peer


def whole(
    name: str, batch_size: int, target: float, times: float | None, lab: Lab, until: float
) -> Rows:
    """Time the best set at a batch size: all epochs with a test after each; the peer beside."""
    params = lab.params(batch_size)
    lab.ours({**params, "epochs": 1}, until)  # kernels are chosen
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    found = [lab.ours(params, until) for _ in range(ROUNDS)]
    epoch_s = median(median(timed.epochs_s) for timed in found)
    what = f"{name} hpq, batch {batch_size}, {params['epochs']} epochs, {lab.mfu(epoch_s)}"
    yield (ours := row(what, "s", [timed.whole_s for timed in found], target))
    yield row(f"{name} test accuracy", "%", [100 * timed.accuracy for timed in found])
    if torch.cuda.is_available():
        yield row(f"{name} memory at most", "GiB", [torch.cuda.max_memory_reserved() / 2**30])
    theirs = lab.articles(params, until, most=FEW).epochs_s
    seconds = [params["epochs"] * s for s in theirs]
    what = f"{name} {lab.peer}, {len(seconds)} epochs scaled up, {lab.mfu(median(theirs))}"
    yield ours.peer(what, seconds)
    ratio = row(f"{name} times as fast as {lab.peer}", "×", [s / ours.median for s in seconds])
    yield replace(ratio, target=times, more_is_better=True)


def diverge(lab: Lab, until: float) -> Rows:
    """Time a trial that diverges, from its start to the verdict."""
    params = lab.params(512, batch_norm="off", max_learning_rate=0.6)
    lab.ours({**params, "max_learning_rate": 1e-6, "epochs": 1}, until)  # kernels are chosen
    began, said = time.monotonic(), f"none in {FEW} epochs"
    try:
        lab.ours(params, until, most=FEW)
    except Diverged as verdict:
        said = str(verdict).partition(":")[0]
    yield row(f"G7 no batch norm, rate 0.6, verdict: {said}", "s", [time.monotonic() - began])


def parity(seen: dict[str, list[float]], lab: Lab, until: float) -> Rows:
    """Train seeds of hpq and the peer in turn, beside those of earlier calls."""
    ours, theirs = seen.setdefault("ours", []), seen.setdefault("theirs", [])
    with suppress(OutOfTime):
        while len(theirs) < (10 if lab.shrink == 1 else 2):
            if len(ours) == len(theirs):
                ours.append(100 * lab.ours(lab.params(512, seed=len(ours)), until).accuracy)
            params = lab.params(512, seed=1000 + len(theirs))
            theirs.append(100 * lab.articles(params, until).accuracy)
            yield None
    if ours:
        own = replace(row(f"parity: hpq, {len(ours)} seeds", "%", ours), more_is_better=True)
        yield own
    if theirs:
        yield own.peer(f"parity: {lab.peer}, {len(theirs)} seeds", theirs)
    if min(len(ours), len(theirs)) < 2:
        yield "parity: another call adds seeds; two of each make a difference"
        return
    error = math.sqrt(sum(variance(some) / len(some) for some in (ours, theirs)))
    difference = fmean(ours) - fmean(theirs)
    what = f"parity: difference of means {difference:+.3f}, standard error {error:.3f}"
    yield row(what, "points", [abs(difference)], 0.1)


# --- G3, G6: trials in processes of their own, one after another as in a runner


def runner(sharing: int = 1) -> ProcessPoolExecutor:
    """Return a process for trials, one of N that share the GPU; its first trial starts it."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, share_gpu, (sharing,))


def share_gpu(sharing: int) -> None:
    """Bound this process to its part of the GPU's memory."""
    os.environ["HPQ_TRIALS_PER_GPU"] = str(sharing)


def trial(data: Path, cache: Path, params: Mapping[str, Any], until: float) -> Reports:
    """Return the reports of a trial, up to the time's end or the epoch in which it diverged."""
    desk = Desk(data=data, cache=cache, until=until)
    with suppress(Diverged):
        cifar10.train(params, desk)  # type: ignore[arg-type]
    return desk.reports


def first_began(reports: Reports) -> float:
    """Return when the first epoch of these reports began."""
    return reports[0]["at"] - reports[0]["train/time"] - reports[0]["test/time"]


def sixteen(lab: Lab, until: float) -> Rows:
    """Run the article's sets in a runner, from its start to the last result; gaps and starts."""
    axes = product((0.4, 0.6), (5, 12), (128, 512), (0.9, 0.99))
    sets = [
        lab.params(size, max_learning_rate=rate, data_aug_cutout_size=cutout, momentum=momentum)
        for rate, cutout, size, momentum in axes
    ]
    gaps, accuracies, ended, early = list[float](), [0.0], 0.0, 0
    started = time.monotonic()
    with runner() as process:
        for number, params in enumerate(sets):
            reports = process.submit(trial, lab.data, lab.cache, params, until).result()
            if time.monotonic() > until:
                yield f"{number} sets in {time.monotonic() - started:.0f} s"
                raise OutOfTime
            if reports:  # else it diverged in its first epoch
                begun = first_began(reports)
                if number == 0:
                    yield row("G5 process start to first epoch, first", "s", [begun - started])
                elif ended:
                    gaps.append(1000 * (begun - ended))
                accuracies.append(reports[-1]["test/acc"])
            is_whole = len(reports) == params["epochs"]
            early += not is_whole
            # A trial that diverged went on training after its last report: no gap is known.
            ended = reports[-1]["at"] if is_whole else 0.0
        whole_s = time.monotonic() - started
    if early:
        yield f"{early} of these sets diverged and took less time"
    what = f"G3 {len(sets)} sets, from a runner's start; best {max(accuracies):.2%}"
    yield row(what, "s", [whole_s], 170)
    if gaps:
        yield row("G4 gap from the last report to the next first epoch", "ms", gaps, 100)
    started, params = time.monotonic(), lab.params(512, epochs=2)
    with runner() as process:
        reports = process.submit(trial, lab.data, lab.cache, params, until).result()
    if not reports:
        raise OutOfTime
    yield row("G5 process start to first epoch, again", "s", [first_began(reports) - started], 10)


def sharing(lab: Lab, until: float) -> Rows:
    """Measure trials an hour of 1, 2 and 4 processes on one GPU, each bounded to its part."""
    alone: dict[int, float] = {}
    for count in (1, 2, 4):
        with ExitStack() as stack:
            some = [stack.enter_context(runner(count)) for _ in range(count)]
            for size, epochs in product((128, 512), (1, 6)):  # they are warm before it counts
                params = lab.params(size, epochs=epochs)
                work = partial(trial, lab.data, lab.cache, params, until)
                running = [process.submit(work) for process in some]
                every = [[report["at"] for report in each.result()] for each in running]
                if time.monotonic() > until:
                    raise OutOfTime
                if epochs == 1:
                    continue
                # The last to begin and the first to end leave epochs that all of them shared.
                since, end = max(at[0] for at in every), min(at[-1] for at in every)
                rate = 0.0
                for at in every:
                    own = list(pairwise(at))
                    shared = [(a, b) for a, b in own if a >= since and b <= end] or own
                    rate += 3600 / (lab.size["epochs"] * median(b - a for a, b in shared))
                alone.setdefault(size, rate)
                what = f"G6 batch {size}, {count} at once: {rate / alone[size]:.2f} × one alone"
                yield replace(row(what, "trials/h", [rate]), more_is_better=True)


# --- G8, G9: what each technique gives, the step taken apart, the other recipe


def ablation(batch_size: int, lab: Lab, until: float) -> Rows:
    """Time a few epochs with each technique on top of the last, scaled up to a trial."""
    half = partial(device.plan, dtype=torch.half, autocast=None)
    ladder = {
        "float32, convolutions in TF32": device.plan(autocast=None),
        "bfloat16 autocast instead": device.plan(),
        "half precision instead": half(),
        "+ channels filled up to 8": half(channels=8),
        "+ the step as a CUDA graph": half(channels=8, graph=True),
        "+ torch.compile": half(channels=8, graph=True, compile=True),
    }
    last, params = math.nan, lab.params(batch_size)
    for what, plan in ladder.items():
        train = partial(cifar10.train, plan=plan)
        cold = lab.ours({**params, "epochs": 1}, until, train=train).whole_s
        epochs_s = lab.ours(params, until, most=FEW, train=train).epochs_s
        before, last = last, median(epochs_s)
        gain = "" if math.isnan(before) else f", {before / last:.2f} × the one before"
        what = f"G8 batch {batch_size}: {what}, {lab.mfu(last)}{gain}, first trial {cold:.0f} s"
        yield row(what, "s", [params["epochs"] * s for s in epochs_s])


def taken_apart(lab: Lab, until: float) -> Rows:
    """Time a step (µs), and the same step with one thing done as others do it."""
    for size in (512, 128):
        step, batches = steps(lab, cifar10.usual_plan(), size // lab.shrink)
        host = [part.cpu() for part in batches[0]]
        host = [part.pin_memory() for part in host] if torch.cuda.is_available() else host
        foreach, _ = steps(lab, cifar10.usual_plan(), size // lab.shrink)
        for group in foreach.sgd.param_groups:  # its rate is baked into a capture
            group.update(fused=False, foreach=True, lr=1e-3)

        def shipped(batch: Batch, step: Step = step) -> None:
            step(batch, step.lr)

        def read_back(batch: Batch, step: Step = step) -> None:
            step(batch, step.lr)
            step.sums.tolist()

        def copied(batch: Batch, step: Step = step, host: list[torch.Tensor] = host) -> None:
            place = step.lr.device
            step((host[0].to(place), host[1].to(place)), step.lr)

        works: dict[str, Callable[[Batch], object]] = {
            "as shipped": shipped,
            "SGD(foreach=True)": partial(shipped, step=foreach),
            "loss and hits read back each time": read_back,
            "images copied from the host each time": copied,
        }
        found: dict[str, list[float]] = {what: [] for what in works}
        for number, (what, work) in product(range(1 + ROUNDS), works.items()):
            if time.monotonic() > until:
                raise OutOfTime
            began = wait()
            for batch in batches:
                work(batch)
            if number:
                found[what].append(1e6 * (wait() - began) / len(batches))
        (name, values), *others = found.items()
        yield (ours := row(f"G8d batch {size}, a step {name}", "µs", values))
        yield from (ours.peer(f"G8d batch {size}, {what}", values) for what, values in others)
        augmented = cifar10.Augmented(
            lab.images().train, size // lab.shrink, 5, 0, cifar10.usual_plan()
        )
        began = wait()
        drawn = len(list(augmented))
        what = f"G8d batch {size}, beside a step: its share of an epoch's draws and augmentation"
        yield row(what, "µs", [1e6 * (wait() - began) / drawn])


def fast(lab: Lab, until: float) -> Rows:
    """Train examples/cifar10_fast by its defaults, seed after seed."""
    train = runpy.run_path(str(ROOT / "examples" / "cifar10_fast" / "train.py"))["train"]
    sizes = {name: lab.size[name] for name in ("width", "train_images", "test_images")}
    params = {**sizes, "epochs": min(10, lab.size["epochs"]), "batch_size": 1024 // lab.shrink}
    lab.ours({**params, "epochs": 1}, until, train=train)
    found: list[Timed] = []
    with suppress(OutOfTime):
        while len(found) < (10 if lab.shrink == 1 else 2):
            found.append(lab.ours({**params, "seed": len(found)}, until, train=train))
    if not found:
        raise OutOfTime
    what = f"G9 examples/cifar10_fast, {params['epochs']} epochs, {len(found)} seeds"
    yield row(what, "s", [timed.whole_s for timed in found])
    mean = fmean(100 * timed.accuracy for timed in found)
    yield row(f"{what}, mean test accuracy", "%", [mean])


# --- sections, their time, gpu.json and its page

SECTIONS: dict[str, tuple[str, float, Section | None]] = {  # what, seconds at most, how
    "graph": ("the captured step: right, and what it costs", 120, graph),
    "G1": ("a trial at batch 512", 150, partial(whole, "G1", 512, 10.0, 6.0)),
    "G2": ("a trial at batch 128", 200, partial(whole, "G2", 128, 12.0, None)),
    "G7": ("a trial that diverges", 40, diverge),
    "G3": ("sixteen sets in a runner, gaps, starts", 500, sixteen),
    "G8": ("each technique on top of the last, batch 512", 170, partial(ablation, 512)),
    "G8b": ("the same, batch 128", 200, partial(ablation, 128)),
    "G8d": ("the step taken apart", 60, taken_apart),
    "G9": ("another recipe", 90, fast),
    "G6": ("trials that share the GPU", 200, sharing),
    "parity": ("accuracy beside the peer", 600, None),  # which adds to earlier seeds
}


def page(found: Mapping[str, Any]) -> str:
    """Return gpu.json as Markdown."""
    lines = ["# On a GPU", "", "Written by `python -m benchmarks.gpu --page FILE`.", ARTICLE, ""]
    lines += [f"- {name}: {value}" for name, value in found["conditions"].items()]
    if not found["sections"]:
        lines.append("Nothing is measured yet: no GPU was available. Four calls measure all:\n")
        paths = "--data DIR --published DIR"
        lines += [f"    python -m benchmarks.gpu {call} {paths}" for call in CALLS]
    for name, section in found["sections"].items():
        own = {x["what"]: Figure(**{**x, "beside": None}) for x in section["rows"]}
        rows = [replace(own[x["what"]], beside=own.get(x["beside"])) for x in section["rows"]]
        table = text(name, section["what"], rows) if rows else f"**{name}**: {section['what']}\n"
        lines += ["", table, *(f"- {note}" for note in section["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def write(path: Path, content: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_suffix(".tmp")
    draft.write_text(content, "utf-8")
    draft.replace(path)


def conditions(lab: Lab) -> dict[str, str]:
    """Return what the figures are measured on."""
    crc, gpu = 0, torch.cuda.is_available()
    for _, array in sorted(lab.arrays().items()):
        crc = zlib.crc32(array.tobytes(), crc)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "device": torch.cuda.get_device_name() if gpu else "no GPU: the figures mean nothing",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}",
        "python": platform.python_version(),
        "plan": str(cifar10.usual_plan()),
        "peer": lab.peer + (f", CRC-32 {lab.upstream.crc}" if lab.upstream else ""),
        "images": f"CRC-32 {crc:08x}",
        "size": ", ".join(f"{name} {value}" for name, value in lab.size.items()),
    }


def measured(rows: Rows) -> Rows:
    """Return a section's rows; a failure or the end of its time is its last one."""
    try:
        yield from rows
    except OutOfTime:
        yield "cut short: out of time"
    except Exception as error:  # the next section is measured all the same
        yield FAILED + " ".join(f"{type(error).__name__}: {error}".split())[:300]


def measure(names: list[str], lab: Lab, ends: float, out: Path) -> bool:
    """Measure sections into gpu.json, each row as it comes; False if a check failed."""
    about, fine = conditions(lab), True
    found: dict[str, Any] = {"conditions": about, "sections": {}, "parity": {}}
    if out.exists():
        found = json.loads(out.read_text("utf-8"))
        for name in SAME:
            if (was := found["conditions"][name]) != about[name]:
                raise UserError(f"--out {out}: its {name}: {was}; here: {about[name]}")
    for name in names:
        what, most_s, rows_of = SECTIONS[name]
        section: dict[str, Any] = {"what": what, "rows": [], "notes": []}
        found["sections"][name] = section
        print(f"{name} …", file=sys.stderr, flush=True)
        rows_of = rows_of or partial(parity, found["parity"])
        for row in measured(rows_of(lab, min(ends, time.monotonic() + most_s))):
            if isinstance(row, str):
                fine &= not row.startswith(FAILED)
                section["notes"].append(row)
                print(f"  {row}", flush=True)
            elif row:
                kept = {n: getattr(row, n) for n in Figure.__slots__ if n != "beside"}
                section["rows"].append({**kept, "beside": row.beside and row.beside.what})
                print(f"  {row.what}: {row.median:.4g} {row.unit}", flush=True)
            write(out, json.dumps(found, indent=2) + "\n")
    return fine


def main() -> None:
    """Measure the sections named; a section that fails reports so, and the next begins."""
    calls = "calls: " + "; ".join(CALLS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", epilog=calls)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--data", type=Path, help="where CIFAR10 lies; default: HPQ_DATA")
    parser.add_argument("--published", type=Path, help=f"a checkout of {REPOSITORY}: the peer")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="default: %(default)s")
    parser.add_argument("--page", type=Path, help="write the tables of --out as Markdown")
    parser.add_argument("--small", action="store_true", help="tiny sizes, also without a GPU")
    given = parser.parse_args()
    if unknown := [name for name in given.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    try:
        fine = _measured(given) if given.sections else True
        if given.page:
            empty: dict[str, Any] = {"conditions": {}, "sections": {}}
            found = json.loads(given.out.read_text("utf-8")) if given.out.exists() else empty
            given.page.parent.mkdir(parents=True, exist_ok=True)
            write(given.page, page(found))
    except UserError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(not fine)


def _measured(given: argparse.Namespace) -> bool:
    ends = time.monotonic() + 60 * MINUTES
    # What cannot be cut short ends here; the rows before it are in gpu.json.
    faulthandler.dump_traceback_later(60 * MINUTES + 25, exit=True)
    if device.pick().type != "cuda" and not given.small:
        raise UserError(f"no GPU: {device.why_no_gpu()}; --small tries it on a CPU")
    # Errors are ignored since torch's compiler may still write there at the end.
    with tempfile.TemporaryDirectory(prefix="hpq-gpu-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
        lab = Lab(
            data=(given.data or Path(os.environ.get("HPQ_DATA") or "no-data")).resolve(),
            cache=Path(folder) / "cache",
            size=SMALL if given.small else FULL,
            shrink=32 if given.small else 1,
            upstream=load(given.published, cifar10.usual_plan().dtype) if given.published else None,
        )
        fine = measure(given.sections, lab, ends, given.out)
    faulthandler.cancel_dump_traceback_later()
    return fine


if __name__ == "__main__":
    main()
