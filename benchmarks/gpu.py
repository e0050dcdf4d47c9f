"""The trainer on a GPU: `python -m benchmarks.gpu OUT --data DIR --published DIR`.

One plan of 15 minutes, whose parts run in the order of PLAN; `--only` chooses some. Each row is a
line of OUT/gpu.jsonl once it is measured, and a later call appends. DIR holds CIFAR10 as for
HPQ_DATA; the other is a checkout of the article's code, without which three parts are left out.
OUT/home keeps decoded images and compiled kernels. Needs torch with CUDA, NumPy, Pillow and PyYAML;
the part `sweep` needs hpq with its server. `--small` runs all of it on a CPU within two minutes;
its figures mean nothing. Exits with 1 if a part failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from benchmarks.desk import Desk
from benchmarks.upstream import REPOSITORY, Row, Upstream, load
from hpq.errors import UserError
from hpq_worker.trainers import cifar10, device
from hpq_worker.trainers.cifar10 import Augmented, ResNet9, normalize
from hpq_worker.trainers.data import DataSet, Split, load_data
from hpq_worker.trainers.loop import rates
from hpq_worker.trainers.step import Batch, Plan, Step, measure

ROOT = Path(__file__).resolve().parent.parent
FULL = {"width": 64, "epochs": 24, "train_images": 50_000, "test_images": 10_000}
SMALL = {"width": 4, "epochs": 2, "train_images": 50, "test_images": 10}
CUTOUT, RATE, MOMENTUM, DECAY = 5, 0.4, 0.9, 5e-4  # of the article's best set
PAIRS = 21  # of which each mean has a standard error of 0.04 points, if a run's deviation is 0.18
MARGIN = 0.1  # points of accuracy: closer is equal
TESTED = 2_000  # images at a time
SMALL_SWEEP = """
trainer: cifar10
method: grid
parameters:
  max_learning_rate: {values: [0.4, 0.6]}
  width: {value: 4}
  epochs: {value: 1}
  batch_size: {value: 8}
  train_images: {value: 50}
  test_images: {value: 10}
"""


class _Enough(Exception):
    """Raised out of the published loop when its time is over."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What is measured, on which images, and where rows are written."""

    out: Path
    data: Path
    published: Upstream | None
    is_small: bool
    began: float

    @property
    def size(self) -> dict[str, int]:
        """Width, epochs and images of a trial."""
        return SMALL if self.is_small else FULL

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes."""
        return (8,) if self.is_small else (512, 128)

    @property
    def plan(self) -> Plan:
        """How the trainer computes here."""
        return cifar10.usual_plan()

    @property
    def cache(self) -> Path:
        """Where decoded images stay, and where the sweep finds them."""
        return self.out / "home" / "cache"

    def say(self, part: str, **row: Any) -> None:
        """Print a row, and append it to the file."""
        line = json.dumps({"part": part, **row, "at": round(time.monotonic() - self.began, 1)})
        print(line, flush=True)
        with (self.out / "gpu.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def images(self) -> DataSet:
        """Return the images and labels on the device."""
        desk: Any = Desk(data=self.data, cache=self.cache)
        return load_data("cifar10", desk, self.size["train_images"], self.size["test_images"])

    def epoch(self, size: int, plan: Plan) -> list[Batch]:
        """Return the batches of an epoch."""
        return list(Augmented(self.images().train, size, CUTOUT, 0, plan))

    def step(self, size: int, plan: Plan, seed: int = 0) -> Step:
        """Return a step of the trainer's network with the weights of a seed."""
        torch.manual_seed(seed)
        with device.pick():
            model = device.placed(ResNet9(self.size["width"]), plan).train()
        return Step(model, plan, size, MOMENTUM, DECAY)

    def theirs(self, size: int, seed: int) -> tuple[Any, Any]:
        """Return the published network and optimizer."""
        assert self.published is not None
        utils = self.published.utils
        torch.manual_seed(seed)
        model = self.published.model(self.size["width"], True, device.pick())
        model.train(True)
        weights = utils.trainable_params(model)
        return model, utils.nesterov(weights, momentum=MOMENTUM, weight_decay=DECAY * size)


def wait() -> float:
    """Wait for the device; return the time."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


def step_us(step: Step, batches: list[Batch]) -> float:
    """Return the microseconds of a step, in the fastest of three rounds."""
    rate = torch.full_like(step.lr, 1e-3)
    for batch in batches[:5]:
        step(batch, rate)
    found = []
    for _ in range(3):
        began = wait()
        for batch in batches:
            step(batch, rate)
        found.append(1e6 * (wait() - began) / len(batches))
    return round(min(found), 1)


def data(lab: Lab, until: float) -> None:
    """Decode the images into the cache, and time it."""
    began = time.monotonic()
    lab.images()
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    about = {"device": name, "torch": torch.__version__, "plan": str(lab.plan), "size": lab.size}
    lab.say("data", seconds=round(time.monotonic() - began, 2), **about)


def kernels(lab: Lab, until: float) -> None:
    """Write the kernels of ten eager steps, by their time, to a file for each batch size."""
    gpu = torch.cuda.is_available()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    for size in lab.batches:
        step = lab.step(size, replace(lab.plan, graph=False))
        batches = lab.epoch(size, lab.plan)
        step_us(step, batches[:10])
        with torch.profiler.profile(activities=activities) as profile:
            for batch in batches[:10]:
                step(batch, step.lr)
            wait()
        by = "self_cuda_time_total" if gpu else "self_cpu_time_total"
        table = profile.key_averages().table(sort_by=by, row_limit=60, max_name_column_width=110)
        path = lab.out / f"kernels_{size}.txt"
        path.write_text(table, "utf-8")
        lab.say("kernels", batch=size, file=path.name)


def half(lab: Lab, until: float) -> None:
    """Compare hpq's and the published gradient of a batch with that in float64."""
    size = lab.batches[0]
    plan = replace(lab.plan, graph=False, channels=3)
    images, labels = lab.epoch(size, plan)[0]
    step = lab.step(size, plan)
    model, _ = lab.theirs(size, 0)
    exact = ResNet9(lab.size["width"]).double().to(device.pick()).train()
    every = (step.model.parameters(), model.parameters(), exact.parameters())
    with torch.no_grad():
        for ours, theirs, weight in zip(*every, strict=True):
            ours.copy_(theirs)
            weight.copy_(theirs)
    for network, kind in ((exact, torch.float64), (step.model, plan.dtype)):
        measure(network, (images.to(kind), labels), torch.zeros_like(step.sums), plan).backward()
    model({"input": images.contiguous(), "target": labels})["loss"].backward()
    right = gradient(exact)
    for name, network in (("hpq", step.model), ("published", model)):
        found = gradient(network)
        apart = float((found - right).norm() / right.norm())
        along = float(found @ right / (right @ right))
        lab.say("half", of=name, batch=size, apart=apart, along=along)


def gradient(model: torch.nn.Module) -> torch.Tensor:
    """Return all gradients of a network in one float64 vector."""
    return torch.cat([weight.grad.double().flatten() for weight in model.parameters()])


def steps(lab: Lab, until: float) -> None:
    """Compare captured steps with eager ones; time steps as shipped, and with one thing changed."""
    size = lab.batches[0]
    exact = replace(lab.plan, dtype=torch.float64)
    if exact.graph:
        torch.backends.cudnn.deterministic = True
        captured, eager = (weights_after(lab, replace(exact, graph=on)) for on in (True, False))
        torch.backends.cudnn.deterministic = False
        found = float(torch.dist(captured, eager) / eager.norm())
        lab.say("steps", what="4 captured steps beside eager ones, float64", apart=found)
        if not found < 1e-6:
            raise ValueError("captured steps do not compute what eager ones do")
    for size in lab.batches:
        batches = lab.epoch(size, lab.plan)
        lab.say("steps", what="shipped", batch=size, us=step_us(lab.step(size, lab.plan), batches))
        torch.backends.cudnn.benchmark_limit = 0
        us = step_us(lab.step(size, lab.plan), batches)
        torch.backends.cudnn.benchmark_limit = 10
        lab.say("steps", what="cudnn.benchmark_limit = 0", batch=size, us=us)
        if torch.cuda.is_available():
            # The second process finds what the first one has compiled on the disk.
            for process in ("first", "second"):
                context = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(1, context) as pool:
                    first_s, us = pool.submit(compiled, lab.data, lab.out, size).result()
                lab.say("steps", what=f"compiled, {process}", batch=size, us=us, first_s=first_s)


def weights_after(lab: Lab, plan: Plan) -> torch.Tensor:
    """Return all weights after four steps at different rates."""
    size = lab.batches[0]
    step = lab.step(size, plan)
    for number, batch in zip(range(4), lab.epoch(size, plan), strict=False):
        step(batch, torch.full_like(step.lr, size * 0.02 * (number + 1) / 1024))
    return torch.cat([weight.detach().flatten() for weight in step.model.parameters()])


def compiled(data: Path, out: Path, size: int) -> tuple[float, float]:
    """Return seconds of the first step through torch.compile, and microseconds of later ones."""
    lab = Lab(out=out, data=data, published=None, is_small=False, began=0.0)
    plan = replace(lab.plan, compile=True)
    batches = lab.epoch(size, plan)
    step = lab.step(size, plan)
    began = wait()
    step(batches[0], step.lr)
    first_s = round(wait() - began, 1)
    return first_s, step_us(step, batches)


def parity(lab: Lab, until: float) -> None:
    """Train pairs on half of the training images, and test on all others; compare by TOST.

    The published network, loss and optimizer get their batches from hpq's loader.
    """
    every = lab.images()
    order = torch.randperm(len(every.train), generator=torch.Generator().manual_seed(0))
    order = order.to(device.pick())
    first, rest = order[: len(order) // 2], order[len(order) // 2 :]
    train = Split(images=every.train.images[first], labels=every.train.labels[first])
    images = torch.cat([every.train.images[rest], every.test.images])
    labels = torch.cat([every.train.labels[rest], every.test.labels])
    test = Split(images=images, labels=labels)
    differences: list[float] = []
    took_s = 0.0
    for pair in range(3 if lab.is_small else PAIRS):
        began = wait()
        if began + took_s > until:
            break
        ours = trained(lab, train, test, pair)
        theirs = published_trained(lab, train, test, 1000 + pair)
        took_s = wait() - began
        differences.append(ours - theirs)
        lab.say("parity", pair=pair, hpq=ours, published=theirs, seconds=round(took_s, 2))
        if len(differences) > 2:
            low, high = interval(differences)
            equal = low > -MARGIN and high < MARGIN
            row = {"points": fmean(differences), "low": low, "high": high, "is_equal": equal}
            lab.say("parity", pairs=len(differences), margin=MARGIN, **row)


def trained(lab: Lab, train: Split, test: Split, seed: int) -> float:
    """Return the accuracy in percent of hpq's trainer after all epochs."""
    size, plan, epochs = lab.batches[0], lab.plan, lab.size["epochs"]
    step = lab.step(size, plan, seed)
    batches = Augmented(train, size, CUTOUT, seed, plan)
    every = rates(len(batches), epochs, RATE).to(step.lr)
    for epoch in range(epochs):
        for rate, batch in zip(every[epoch], batches, strict=True):
            step(batch, rate)
    step.model.eval()
    return accuracy(test, lambda images: step.model(normalize(images, plan)))


def published_trained(lab: Lab, train: Split, test: Split, seed: int) -> float:
    """Return the accuracy in percent of the published network, loss and optimizer."""
    assert lab.published is not None
    size, epochs, utils = lab.batches[0], lab.size["epochs"], lab.published.utils
    plan = replace(lab.plan, channels=3)
    model, optimizer = lab.theirs(size, seed)
    batches = Augmented(train, size, CUTOUT, seed, plan)
    rate = utils.PiecewiseLinear([0, 5 * epochs / 24, epochs], [0, RATE, 0])
    for epoch in range(epochs):
        for number, (images, labels) in enumerate(batches):
            model({"input": images.contiguous(), "target": labels})
            at = epoch + number / len(batches)
            utils.update(model, utils.set_opt_params(optimizer, {"lr": rate(at) / size}))
    model.train(False)

    def see(images: torch.Tensor) -> torch.Tensor:
        none = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        seen = model({"input": normalize(images, plan).contiguous(), "target": none})
        logits: torch.Tensor = seen["classifier_logits"]
        return logits

    return accuracy(test, see)


def accuracy(test: Split, see: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """Return the accuracy in percent of what `see` makes of images."""
    hits = 0
    with torch.no_grad():
        parts = zip(test.images.split(TESTED), test.labels.split(TESTED), strict=True)
        hits = sum(int((see(images).argmax(1) == labels).sum()) for images, labels in parts)
    return 100 * hits / len(test)


def interval(values: list[float]) -> tuple[float, float]:
    """Return the 90 % confidence interval of a mean: within ±m, TOST finds it equal at 5 %."""
    n, z = len(values) - 1, 1.6448536
    # Student's t by its expansion: 1.2 % too small of three values, exact of 21.
    t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    error = t * stdev(values) / math.sqrt(len(values))
    return fmean(values) - error, fmean(values) + error


def sweep(lab: Lab, until: float) -> None:
    """Run the article's 16 trials by `hpq run`, from the command to the ranking."""
    file = ROOT / "configs" / "cifar10-16.yaml"
    if lab.is_small:
        file = lab.out / "small.yaml"
        file.write_text(SMALL_SWEEP, "utf-8")
    environ = {**os.environ, "HPQ_HOME": str(lab.out / "home"), "HPQ_DATA": str(lab.data)}
    began = time.monotonic()
    words = [sys.executable, "-m", "hpq_producer", "run", str(file)]
    path = lab.out / "sweep.txt"
    with (
        path.open("w", encoding="utf-8") as said,
        subprocess.Popen(words, env=environ, stdout=said, stderr=subprocess.STDOUT) as process,
    ):
        try:
            code = process.wait(until - began)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it stops its workers
            raise
    seconds = round(time.monotonic() - began, 1)
    lab.say("sweep", seconds=seconds, exit_code=code, file=path.name)
    if code:
        raise ValueError(path.read_text("utf-8")[-300:])


def published(lab: Lab, until: float) -> None:
    """Run the published code as it is, with its loader, for all epochs at batch 512."""
    assert lab.published is not None
    rows: list[Row] = []

    def hear(row: Row) -> None:
        rows.append(row)
        if time.monotonic() > until:
            raise _Enough

    every = lab.images()
    arrays = {
        f"{name}_{kind}": getattr(getattr(every, name), kind).cpu().numpy()
        for name in ("train", "test")
        for kind in ("images", "labels")
    }
    params: dict[str, Any] = {
        **lab.size,
        "batch_size": lab.batches[0],
        "data_aug_cutout_size": CUTOUT,
    }
    params |= {"max_learning_rate": RATE, "momentum": MOMENTUM, "batch_norm": "on"}
    with suppress(_Enough):
        lab.published.trial(arrays, params, device.pick(), hear)
    seconds = round(sum(row["epoch/time"] for row in rows), 2)
    epochs = len(rows)
    lab.say("published", epochs=epochs, seconds=seconds, accuracy=100 * rows[-1]["test/acc"])


Part = Callable[[Lab, float], None]  # takes the time.monotonic() at which it should end
PLAN: Mapping[str, tuple[int, Part, bool]] = {  # seconds, the part, whether it needs their code
    "data": (60, data, False),
    "kernels": (45, kernels, False),
    "half": (20, half, True),
    "steps": (120, steps, False),
    "parity": (350, parity, True),
    "sweep": (220, sweep, False),
    "published": (70, published, True),
}
MINUTES = 15


def run(lab: Lab, names: list[str], minutes: float) -> bool:
    """Run parts in their order; False if one failed, after which the next ones run."""
    ends = lab.began + 60 * minutes
    is_fine = True
    for name in names:
        seconds, part, needs_published = PLAN[name]
        if needs_published and lab.published is None:
            lab.say(name, left_out="no --published")
            continue
        if time.monotonic() > ends:
            lab.say(name, left_out="no time")
            continue
        try:
            part(lab, min(ends, time.monotonic() + seconds))
        except Exception as error:  # the next part is measured all the same
            is_fine = False
            lab.say(name, failed=" ".join(f"{type(error).__name__}: {error}".split())[:300])
    return is_fine


def main() -> None:
    """Run the plan."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("out", type=Path, help="directory of all files; a later call appends")
    parser.add_argument("--data", type=Path, required=True, help="where CIFAR10 lies")
    parser.add_argument("--published", type=Path, help=f"a checkout of {REPOSITORY}")
    parser.add_argument("--only", nargs="+", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="default: %(default)s")
    parser.add_argument("--small", action="store_true", help="tiny sizes, also without a GPU")
    given = parser.parse_args()
    began = time.monotonic()
    # What cannot be cut short ends here; the rows before it are in the file.
    faulthandler.dump_traceback_later(60 * given.minutes + 25, exit=True)
    try:
        if device.pick().type != "cuda" and not given.small:
            raise UserError(f"no GPU: {device.why_no_gpu()}; --small tries it on a CPU")
        kind = torch.half if torch.cuda.is_available() else torch.float32
        theirs = load(given.published, kind) if given.published else None
    except UserError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        sys.exit(2)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(out / "home" / "cache" / "inductor"))
    lab = Lab(
        out=out,
        data=given.data.resolve(),
        published=theirs,
        is_small=given.small,
        began=began,
    )
    names = [name for name in PLAN if name in given.only]
    is_fine = run(lab, names, given.minutes)
    faulthandler.cancel_dump_traceback_later()
    sys.exit(not is_fine)


if __name__ == "__main__":
    main()
