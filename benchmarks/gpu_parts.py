"""The parts of the plan for a GPU, which `python -m benchmarks.gpu` runs in a process each."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.desk import Desk
from benchmarks.equivalence import PAIRS, compare
from benchmarks.gpu import KERNELS, WHOLE, Rows, options, rows_of
from benchmarks.processes import HPQ, ROOT
from benchmarks.upstream import Row, Upstream, load
from hpq.errors import UserError
from hpq_worker.trainers import cifar10, device
from hpq_worker.trainers.cifar10 import Augmented, ResNet9, normalize
from hpq_worker.trainers.data import DataSet, Split, load_data
from hpq_worker.trainers.loop import rates
from hpq_worker.trainers.step import Batch, Plan, Step, measure

STOP_S = 15  # so long before its end a part interrupts `hpq run`, which stops its workers
CUTOUT, RATE, MOMENTUM, DECAY = 5, 0.4, 0.9, 5e-4  # of the article's best set
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


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What a part measures, on which images, and until which time.monotonic()."""

    out: Path
    home: Path
    data: Path
    published: Upstream | None
    rows: Rows
    is_small: bool
    until: float

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes."""
        return (8,) if self.is_small else (512, 128)

    @property
    def size(self) -> dict[str, int]:
        """Width, epochs and images of a trial."""
        if self.is_small:
            return {"width": 4, "epochs": 2, "train_images": 50, "test_images": 10}
        return {"width": 64, "epochs": 24, "train_images": 50_000, "test_images": 10_000}

    @property
    def plan(self) -> Plan:
        """How the trainer computes here."""
        return cifar10.usual_plan()

    def images(self) -> DataSet:
        """Return the images and labels on the device."""
        desk: Any = Desk(data=self.data, cache=self.home / "cache")
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

    def theirs(self, size: int, seed: int) -> tuple[Upstream, Any, Any]:
        """Return the published code, its network and its optimizer."""
        assert self.published is not None
        utils = self.published.utils
        torch.manual_seed(seed)
        model = self.published.model(self.size["width"], True, device.pick())
        model.train(True)
        weights = utils.trainable_params(model)
        optimizer = utils.nesterov(weights, momentum=MOMENTUM, weight_decay=DECAY * size)
        return self.published, model, optimizer


def wait() -> float:
    """Wait for the device; return the time."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


def data(lab: Lab) -> None:
    """Decode the images into HOME, and time it."""
    began = time.monotonic()
    lab.images()
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    about = {"device": name, "torch": torch.__version__, "plan": str(lab.plan), "size": lab.size}
    lab.rows.say("data", seconds=round(time.monotonic() - began, 2), **about)


def kernels(lab: Lab) -> None:
    """Write the kernels of ten eager steps, by their time, to a file for each batch size."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    by = "self_cpu_time_total"
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        by = "self_device_time_total"
    for size in lab.batches:
        step = lab.step(size, replace(lab.plan, graph=False))
        batches = lab.epoch(size, lab.plan)[:10]
        time_steps(step, batches)
        with torch.profiler.profile(activities=activities) as profile:
            for batch in batches:
                step(batch, step.lr)
            wait()
        table = profile.key_averages().table(sort_by=by, row_limit=60, max_name_column_width=110)
        path = lab.out / f"kernels_{size}.txt"
        path.write_text(table, "utf-8")
        lab.rows.say("kernels", batch=size, file=path.name)


def half(lab: Lab) -> None:
    """Compare hpq's and the published gradient of a batch with that in float64."""
    size = lab.batches[0]
    plan = replace(lab.plan, graph=False)
    images, labels = lab.epoch(size, plan)[0]
    step = lab.step(size, plan)
    _, model, _ = lab.theirs(size, 0)
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
        lab.rows.say("half", of=name, batch=size, apart=apart, along=along)


def gradient(model: torch.nn.Module) -> torch.Tensor:
    """Return all gradients of a network in one float64 vector."""
    return torch.cat([weight.grad.double().flatten() for weight in model.parameters()])


def captured(lab: Lab) -> None:
    """Compare captured steps with eager ones in float64."""
    torch.backends.cudnn.deterministic = True
    exact = replace(lab.plan, dtype=torch.float64)
    eager = weights_after(lab, replace(exact, graph=False))
    apart = float(torch.dist(weights_after(lab, exact), eager) / eager.norm())
    lab.rows.say("captured", steps=4, graph=exact.graph, apart=apart)
    if not apart < 1e-6:
        raise ValueError("captured steps do not compute what eager ones do")


def weights_after(lab: Lab, plan: Plan) -> torch.Tensor:
    """Return all weights after four steps at different rates."""
    size = lab.batches[0]
    step = lab.step(size, plan)
    for number, batch in enumerate(lab.epoch(size, plan)[:4]):
        step(batch, torch.full_like(step.lr, size * 0.02 * (number + 1) / 1024))
    return torch.cat([weight.detach().flatten() for weight in step.model.parameters()])


def shipped(lab: Lab) -> None:
    """Time a step as shipped."""
    say_steps(lab, "shipped")


def unlimited(lab: Lab) -> None:
    """Time a step for which cuDNN tries all of its algorithms, instead of ten."""
    torch.backends.cudnn.benchmark_limit = 0
    say_steps(lab, "unlimited")


def compile_cold(lab: Lab) -> None:
    """Time a step through torch.compile, which finds nothing on the disk."""
    shutil.rmtree(lab.home / KERNELS, ignore_errors=True)
    say_steps(lab, "compile-cold", compiled=True)
    (lab.home / KERNELS).mkdir(parents=True, exist_ok=True)
    (lab.home / WHOLE).touch()


def compile_warm(lab: Lab) -> None:
    """Time a step through torch.compile, which finds on the disk what compile-cold left."""
    if not (lab.home / WHOLE).exists():
        raise FileNotFoundError("--home has no compiled kernels; run compile-cold first")
    say_steps(lab, "compile-warm", compiled=True)


def say_steps(lab: Lab, part: str, *, compiled: bool = False) -> None:
    """Report the first step, which captures or compiles, and the later ones, by batch size."""
    if compiled and not torch.cuda.is_available():
        lab.rows.say(part, left_out="no GPU")  # on a CPU it takes minutes
        return
    for size in lab.batches:
        batches = lab.epoch(size, lab.plan)
        step = lab.step(size, lab.plan)
        if compiled:
            step.model = torch.compile(step.model, dynamic=False)
        began = wait()
        step(batches[0], step.lr)
        first_s = round(wait() - began, 2)
        lab.rows.say(part, batch=size, us=time_steps(step, batches), first_s=first_s)


def time_steps(step: Step, batches: list[Batch]) -> float:
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


def parity(lab: Lab) -> None:
    """Train pairs on half of the training images, and test on all others; compare by TOST.

    The published network, loss and optimizer get their batches from hpq's loader. Both runs of a
    pair have one seed, so the same images in the same order.

    Raises:
        TimeoutError: there is no time for the next pair.
    """
    every = lab.images()
    order = torch.randperm(len(every.train), generator=torch.Generator().manual_seed(0))
    order = order.to(device.pick())
    first, rest = order[: len(order) // 2], order[len(order) // 2 :]
    train = Split(images=every.train.images[first], labels=every.train.labels[first])
    images = torch.cat([every.train.images[rest], every.test.images])
    labels = torch.cat([every.train.labels[rest], every.test.labels])
    test = Split(images=images, labels=labels)
    pairs = 3 if lab.is_small else PAIRS
    known = {row["pair"]: row for row in lab.rows.of("parity") if "pair" in row}
    for pair in range(pairs):
        if pair in known:
            continue
        began = wait()
        longest_s = max((row["seconds"] for row in known.values()), default=0.0)
        if began + longest_s > lab.until:
            raise TimeoutError(f"{len(known)} of {pairs} pairs, so there is no verdict")
        ours = trained(lab, train, test, pair)
        theirs = published_trained(lab, train, test, pair)
        seconds = round(wait() - began, 2)
        known[pair] = {"hpq": ours, "published": theirs, "seconds": seconds}
        lab.rows.say("parity", pair=pair, **known[pair])
    arms = [[known[pair][arm] for pair in range(pairs)] for arm in ("hpq", "published")]
    lab.rows.say("parity", **compare(*arms))


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
    size, epochs = lab.batches[0], lab.size["epochs"]
    plan = lab.plan
    code, model, optimizer = lab.theirs(size, seed)
    batches = Augmented(train, size, CUTOUT, seed, plan)
    rate = code.utils.PiecewiseLinear([0, 5 * epochs / 24, epochs], [0, RATE, 0])
    for epoch in range(epochs):
        for number, (images, labels) in enumerate(batches):
            model({"input": images.contiguous(), "target": labels})
            lr = rate(epoch + number / len(batches)) / size
            code.utils.update(model, code.utils.set_opt_params(optimizer, {"lr": lr}))
    model.train(False)

    def see(images: torch.Tensor) -> torch.Tensor:
        none = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        seen = model({"input": normalize(images, plan).contiguous(), "target": none})
        logits: torch.Tensor = seen["classifier_logits"]
        return logits

    return accuracy(test, see)


def accuracy(test: Split, see: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """Return the accuracy in percent of what `see` makes of images."""
    with torch.no_grad():
        parts = zip(test.images.split(TESTED), test.labels.split(TESTED), strict=True)
        hits = sum(int((see(images).argmax(1) == labels).sum()) for images, labels in parts)
    return 100 * hits / len(test)


def sweep(lab: Lab) -> None:
    """Time the article's 16 trials by `hpq run`, from the command to the ranking, and each trial.

    The first trial of a batch size is cold: later ones of the process find its kernels.

    Raises:
        TimeoutError: it had not ended in time; trials that have ended are reported.
    """
    file = ROOT / "configs" / "cifar10-16.yaml"
    if lab.is_small:
        file = lab.out / "small.yaml"
        file.write_text(SMALL_SWEEP, "utf-8")
    began = time.monotonic()
    since = datetime.now(UTC).isoformat()
    path = lab.out / "sweep.txt"
    with path.open("w", encoding="utf-8") as said:
        words = [*HPQ, "run", "--new", str(file)]
        process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(lab.until - STOP_S - began)
    seconds = round(time.monotonic() - began, 1)
    is_late = process.poll() is None
    if is_late:
        process.send_signal(signal.SIGINT)
    code = process.wait()
    done = subprocess.run([*HPQ, "results", "-o", "json"], capture_output=True, check=False)
    # If this sweep could not begin, they are of an older one, or there are none.
    every = json.loads(done.stdout) if done.returncode == 0 else []
    finished = [row for row in every if row["state"] == "finished" and row["started"] > since]
    for row in sorted(finished, key=lambda row: row["started"]):
        figures = {"seconds": row["duration_s"], "training_s": row["last"]["total/time"]}
        lab.rows.say("sweep", trial=row["trial"], batch=row["param"]["batch_size"], **figures)
    if is_late:
        raise TimeoutError(f"hpq run was interrupted after {seconds} s")
    lab.rows.say("sweep", seconds=seconds, exit_code=code, file=path.name)
    if code:
        raise ValueError(path.read_text("utf-8")[-300:])


def published(lab: Lab) -> None:
    """Run the published code as it is, with its loader, for all epochs at batch 512."""
    assert lab.published is not None
    rows: list[Row] = []
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
        "max_learning_rate": RATE,
        "momentum": MOMENTUM,
        "batch_norm": "on",
    }
    lab.published.trial(arrays, params, device.pick(), rows.append)
    seconds = round(sum(row["epoch/time"] for row in rows), 2)
    lab.rows.say(
        "published", epochs=len(rows), seconds=seconds, accuracy=100 * rows[-1]["test/acc"]
    )


PARTS: Mapping[str, Callable[[Lab], None]] = {
    "data": data,
    "kernels": kernels,
    "half": half,
    "captured": captured,
    "shipped": shipped,
    "unlimited": unlimited,
    "compile-cold": compile_cold,
    "compile-warm": compile_warm,
    "parity": parity,
    "sweep": sweep,
    "published": published,
}


def main() -> None:
    """Run the part NAME until UNTIL, of these options; exit with 2 if it cannot begin."""
    name, until = sys.argv[1], float(sys.argv[2])
    given = options().parse_args(sys.argv[3:])
    rows = rows_of(given)
    try:
        if device.pick().type != "cuda" and not given.small:
            raise UserError(f"no GPU: {device.why_no_gpu()}; --small tries it on a CPU")
        kind = torch.half if torch.cuda.is_available() else torch.float32
        code = load(given.published, kind) if given.published else None
    except UserError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        sys.exit(2)
    lab = Lab(
        out=given.out,
        home=given.home,
        data=given.data,
        published=code,
        rows=rows,
        is_small=given.small,
        until=until,
    )
    try:
        PARTS[name](lab)
    except Exception as error:  # the next part is measured all the same
        rows.say(name, failed=" ".join(f"{type(error).__name__}: {error}".split())[:300])
        sys.exit(1)


if __name__ == "__main__":
    main()
