"""G1, G2, G7, G8, G9 and parity: trials in this process, beside the article's.

Each section yields its figures as it has them and raises OutOfTime where its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median

import torch

from benchmarks.figures import Figure
from benchmarks.gpu.arithmetic import interval, peak, training_flop
from benchmarks.gpu.trials import FAILED, Clock, Lab, OutOfTime, Rows, Timed, reason
from hpq_worker.trainers import cifar10_fast
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.step import why_not_captured
from hpq_worker.trainers.training.trial_context import Diverged

ROUNDS = 3
_SEEDS = 25  # of the article's, at most
_FEW = 3  # epochs of what is not run whole: one to warm up, the rest counts
_PEERS_S = 20.0  # of a section, that such epochs of the article's take at most on a GPU


def utilisation(lab: Lab, epoch_s: float) -> str:
    """Model FLOP utilisation of epochs of this length, their evaluation's time included."""
    most = peak(torch.cuda.get_device_name()) if lab.place.type == "cuda" else None
    if most is None:
        return "MFU unknown"
    images = int(lab.size["train_images"])
    return f"MFU {training_flop(int(lab.size['width'])) * images / epoch_s / most:.1%}"


def whole(
    lab: Lab, clock: Clock, name: str, batch_size: int, target: float, times: float | None = None
) -> Rows:
    """The best set at a batch size, all epochs, an evaluation after each; the article's beside.

    `target` is in seconds, `times` what the article's are to be of them.
    """
    params, gpu = lab.params(batch_size), lab.place.type == "cuda"
    cold = lab.ours({**params, "epochs": 1}, clock)
    if gpu and (why := why_not_captured()):
        yield f"{FAILED}hpq's step is no CUDA graph here, its kernels are launched singly: {why}"
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    found: list[Timed] = []
    most = Clock(until=clock.until - _PEERS_S / lab.shrink)  # else there is nothing to stand beside
    for _ in range(ROUNDS):
        try:
            found.append(lab.ours(params, most if found else clock))
        except OutOfTime:
            if not found:
                raise
            break
    epoch_s = median(timed.epoch_s for timed in found)
    ours = Figure(
        what=f"{name} hpq, batch {batch_size}, {lab.epochs} epochs, {utilisation(lab, epoch_s)}",
        unit="s",
        values=[timed.whole_s for timed in found],
        target=target,
    )
    yield ours
    yield Figure(
        what=f"{name} hpq, what the first trial of its shape pays before it",
        unit="s",
        values=[cold.whole_s - epoch_s],
    )
    yield Figure(
        what=f"{name} hpq, test accuracy of these trials",
        unit="%",
        values=[100 * timed.accuracy for timed in found],
    )
    if gpu:
        reserved = torch.cuda.max_memory_reserved() / 2**30
        yield Figure(what=f"{name} hpq, memory at most", unit="GiB", values=[reserved])
    theirs = lab.articles(params, clock, most=_FEW)
    seconds = [lab.epochs * s for s in theirs.epochs_s]
    mfu = utilisation(lab, theirs.epoch_s)
    yield ours.peer(f"{name} {lab.peer}, {len(seconds)} epochs scaled up, {mfu}", seconds)
    yield Figure(
        what=f"{name} hpq, times as fast as {lab.peer}",
        unit="×",
        values=[s / ours.median for s in seconds],
        target=times,
        more_is_better=True,
    )


def diverge(lab: Lab, clock: Clock) -> Rows:
    """G7: from the start of a trial that diverges to its verdict; the article trains to its end."""
    params = lab.params(512, batch_norm="off", max_learning_rate=0.6)
    lab.ours({**params, "max_learning_rate": 1e-6, "epochs": 1}, clock)  # the capture
    usual = lab.ours({**params, "max_learning_rate": 1e-6}, clock, most=_FEW)
    desk_epochs, seconds = _until_diverged(lab, params, clock)
    said = f"verdict in epoch {desk_epochs}" if desk_epochs else f"no verdict in {_FEW} epochs"
    mfu = utilisation(lab, seconds / (desk_epochs or _FEW))
    what = f"G7 hpq, no batch norm, rate 0.6: {said}, {mfu}"
    ours = Figure(what=what, unit="s", values=[seconds])
    yield ours
    all_s, mfu = lab.epochs * usual.epoch_s, utilisation(lab, usual.epoch_s)
    yield ours.peer(f"G7 the same to its last epoch, scaled up, {mfu}", [all_s])


def _until_diverged(lab: Lab, params: dict[str, object], clock: Clock) -> tuple[int, float]:
    began = time.perf_counter()
    try:
        lab.ours(params, clock, most=_FEW)
    except Diverged as verdict:
        return int(str(verdict).split()[1].rstrip(":")), time.perf_counter() - began
    return 0, time.perf_counter() - began


def ladder(lab: Lab) -> list[tuple[str, Plan]]:
    """One technique after another, on top of those before."""
    full = device.plan(lab.place)
    plan = Plan(channels_last=False)
    steps = [("plain float32, convolutions in TF32, batch by batch", plan)]
    for what, changes in (
        ("half precision", {"dtype": full.dtype}),
        ("channels_last", {"channels_last": True}),
        ("an epoch augmented at once", {"whole_epoch": True}),
        ("3 channels filled up to 8", {"fill": 8}),
        ("the step as a CUDA graph", {"graph": True}),
    ):
        plan = replace(plan, **changes)
        steps.append((f"+ {what}", plan))
    return steps


def ablation(lab: Lab, clock: Clock, batch_size: int) -> Rows:
    """G8: whole trials' seconds from a few epochs, each technique on top of the last."""
    last = 0.0
    for what, plan in ladder(lab):
        try:
            timed = _few(lab, clock, batch_size, plan)
        except OutOfTime:
            raise
        except Exception as error:
            yield f"{FAILED}batch {batch_size}, {what}: {reason(error)}"
            last = 0.0  # there is no one before
            continue
        if plan.graph and lab.place.type == "cuda" and (why := why_not_captured()):
            yield f"{FAILED}batch {batch_size}, {what}: it is none: {why}"
        gain = f", {last / timed.epoch_s:.2f} × as fast as the one before" if last else ""
        last = timed.epoch_s
        yield Figure(
            what=f"G8 batch {batch_size}: {what}, {utilisation(lab, timed.epoch_s)}{gain}",
            unit="s",
            values=[lab.epochs * s for s in timed.epochs_s],
        )


def compiled(lab: Lab, clock: Clock) -> Rows:
    """G8: the network through torch.compile, on top of all that is shipped; what compiling takes.

    A compilation cannot be cut short, so it begins only where there is time for one.
    """
    for batch_size in (512, 128):
        if clock.left_s < 90 and lab.shrink == 1:
            raise OutOfTime
        usual = _few(lab, clock, batch_size, device.plan(lab.place))
        began = time.perf_counter()
        timed = _few(lab, clock, batch_size, replace(device.plan(lab.place), compiled=True))
        took = time.perf_counter() - began - _FEW * timed.epoch_s
        gain = f"{usual.epoch_s / timed.epoch_s:.2f} × as fast as without"
        mfu = utilisation(lab, timed.epoch_s)
        yield Figure(
            what=f"G8 batch {batch_size}: + torch.compile, {mfu}, {gain}; {took:.0f} s to compile",
            unit="s",
            values=[lab.epochs * s for s in timed.epochs_s],
        )


def _few(lab: Lab, clock: Clock, batch_size: int, plan: Plan) -> Timed:
    params = lab.params(batch_size)
    lab.ours({**params, "epochs": 1}, clock, plan)
    return lab.ours(params, clock, plan, most=_FEW)


def fast(lab: Lab, clock: Clock) -> Rows:
    """G9: the trainer cifar10-fast by its defaults, seed after seed; it stands beside nothing."""
    sizes = {name: lab.size[name] for name in ("width", "train_images", "test_images")}
    params = {**sizes, "epochs": min(10, lab.epochs), "batch_size": 1024 // lab.shrink}
    lab.ours({**params, "epochs": 1}, clock, train=cifar10_fast.train)
    found: list[Timed] = []
    while len(found) < (_SEEDS if lab.shrink == 1 else 2):
        try:
            found.append(lab.ours({**params, "seed": len(found)}, clock, train=cifar10_fast.train))
        except OutOfTime:
            if not found:
                raise
            break
    what = f"G9 cifar10-fast, {params['epochs']} epochs, {len(found)} seeds"
    yield Figure(what=what, unit="s", values=[timed.whole_s for timed in found])
    middle = mean(timed.accuracy for timed in found)
    accuracies = [100 * timed.accuracy for timed in found]
    yield Figure(what=f"{what}, test accuracy, mean {middle:.2%}", unit="%", values=accuracies)


def parity(lab: Lab, clock: Clock, seen: dict[str, list[float]]) -> Rows:
    """Accuracies of seeds in turn, as many as there is time for; `seen` has those of earlier runs.

    hpq trains until it has 2.5 times as many as the article: that is where its time is worth most;
    and it has all the time that is left where the article would not come to its end in it, as
    far as an earlier trial of the peer tells.
    """
    ours, theirs = seen.setdefault("ours", []), seen.setdefault("theirs", [])
    size = int(lab.params(512)["batch_size"])
    try:
        while len(theirs) < (_SEEDS if lab.shrink == 1 else 2):
            takes_s = lab.paces[size].takes_s(lab.epochs) if size in lab.paces else 0.0
            while len(ours) < 2.5 * (len(theirs) + 1) or clock.left_s < takes_s:
                params = lab.params(512, seed=len(ours))
                ours.append(100 * lab.ours(params, clock).accuracy)
            params = lab.params(512, seed=1000 + len(theirs))
            theirs.append(100 * lab.articles(params, clock).accuracy)
    except OutOfTime:
        pass
    if not ours:
        raise OutOfTime
    own = Figure(what=f"parity: hpq, {len(ours)} seeds", unit="%", values=ours, more_is_better=True)
    yield own
    if theirs:
        yield own.peer(f"parity: {lab.peer}, {len(theirs)} seeds", theirs)
    yield _difference(ours, theirs)


def _difference(ours: Sequence[float], theirs: Sequence[float]) -> Figure | str:
    if min(len(ours), len(theirs)) < 2:
        counts = f"{len(ours)} and {len(theirs)} seeds"
        return f"parity: no interval of {counts}, it takes two of each: --parity-from goes on"
    middle, half = interval(ours, theirs)
    return Figure(
        what=f"parity: difference of means {middle:+.3f}, 90 % interval ± {half:.3f}: the end that"
        " is farther from 0",
        unit="points",
        values=[abs(middle) + half],
        target=0.15,
    )
