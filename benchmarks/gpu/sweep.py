"""G3 to G6: the article's sixteen sets in a warm runner, gaps and starts; sharing a GPU.

Gaps and starts end where the first epoch begins, which is before its images are augmented.
"""

from __future__ import annotations

from itertools import pairwise, product
from statistics import median

import torch

from benchmarks.figures import Figure
from benchmarks.gpu.runners import Ran, Warm, runners, together
from benchmarks.gpu.sections import utilisation
from benchmarks.gpu.trials import FAILED, Clock, Lab, OutOfTime, Rows, reason
from hpq.domain.trial import Json

_SETS_S = 200.0  # the target of G3; its share has to be longer
_START_S = 20.0  # of a section, that a start of a runner takes at most
_SHARED_EPOCHS = 6


def sixteen(lab: Lab) -> list[dict[str, Json]]:
    """The article's sets, in the order of its file."""
    axes = product((0.4, 0.6), (5, 12), (128, 512), (0.9, 0.99))
    return [
        lab.params(size, max_learning_rate=rate, data_aug_cutout_size=cutout, momentum=momentum)
        for rate, cutout, size, momentum in axes
    ]


def in_a_runner(lab: Lab, clock: Clock) -> Rows:
    """G3, G4, G5: a runner from its start to the last result; it says how many sets there were."""
    sets, ran = sixteen(lab), list[Ran]()
    most = Clock(until=clock.until - _START_S / lab.shrink)  # the rest is for the second start
    with runners(lab, 1) as (runner,):
        try:
            for params in sets:
                ran += together([runner], params, most)
        except (OutOfTime, RuntimeError) as error:
            if not ran:
                raise
            late = isinstance(error, OutOfTime)
            after = f"after {len(ran)} sets"
            yield f"cut short {after}" if late else f"{FAILED}{after}: {reason(error)}"
    yield from _sets(lab, len(sets), ran, ran[-1].ended - runner.started)
    yield from _gaps(sets, ran)
    what, unit = "G5 process start to first epoch", "s"
    if ran[0].at:
        first_s = ran[0].first_epoch - runner.started
        yield Figure(what=f"{what}, the first of this run", unit=unit, values=[first_s])
    with runners(lab, 1) as (runner,):
        (second,) = together([runner], lab.params(512, epochs=2), clock)
    if second.at:
        again_s = second.first_epoch - runner.started
        yield Figure(what=f"{what}, data decoded", unit=unit, values=[again_s], target=10)


def _sets(lab: Lab, count: int, ran: list[Ran], whole_s: float) -> Rows:
    """G3 of the sets that ran; where some did not, they are held to the target scaled up."""
    if early := sum(len(r.at) < lab.epochs for r in ran):
        yield f"{early} of these sets diverged and took less time"
    # With the start, the captures and the gaps; an epoch that diverged is one too.
    mfu = utilisation(lab, whole_s / sum(len(r.at) or 1 for r in ran))
    best = max(r.accuracy for r in ran)
    yield Figure(
        what=f"G3 {len(ran)} of the {count} sets, from a runner's start, {mfu}; best {best:.2%}",
        unit="s",
        values=[whole_s],
        target=_SETS_S if len(ran) == count else None,
    )
    if len(ran) < count:
        what = f"G3 {count} sets, scaled up from these {len(ran)}"
        yield Figure(what=what, unit="s", values=[whole_s * count / len(ran)], target=_SETS_S)


def _gaps(sets: list[dict[str, Json]], ran: list[Ran]) -> Rows:
    """G4, from a trial's last report to the first epoch of the next; both have to have one."""
    seen = {sets[0]["batch_size"]}
    same, new = list[float](), list[float]()
    for params, (one, other) in zip(sets[1:], pairwise(ran), strict=False):
        found = same if params["batch_size"] in seen else new
        seen.add(params["batch_size"])
        if one.at and other.at:  # else it diverged in its first epoch
            found.append(1000 * (other.first_epoch - one.at[-1]))
    for what, values, target in (("a shape that is kept", same, 20), ("a new shape", new, 1000)):
        if values:
            what = f"G4 gap to the first epoch, {what}"
            yield Figure(what=what, unit="ms", values=values, target=target)


def sharing(lab: Lab, clock: Clock) -> Rows:
    """G6: trials an hour of 1, 2 and 4 processes on one GPU, each bounded to its part of it.

    All are new for each count, so that the GPU's memory is theirs alone.
    """
    alone: dict[int, float] = {}  # by batch size
    before = _used(lab)
    for count in (1, 2, 4):
        with runners(lab, count) as some:
            also = ""
            for size in (128, 512):
                what = f"batch {size}, {count} at once"
                try:
                    rate = _rate(lab, clock, some, size)
                except RuntimeError as error:
                    yield f"{FAILED}{what}: {reason(error)}"
                    continue
                if count == 1:
                    alone[size] = rate
                ratio = f"{rate / alone[size]:.2f} × one alone, " if size in alone else ""
                mfu = utilisation(lab, 3600 / (lab.epochs * rate))  # of the GPU, by all of them
                yield Figure(
                    what=f"G6 {what}: {ratio}{mfu}",
                    unit="trials/h",
                    values=[rate],
                    more_is_better=True,
                )
                now = _used(lab)  # a process keeps what it has reserved, and its captured steps
                if before is not None and now is not None:
                    what = f"G6 {what}: memory they hold{also}"
                    yield Figure(what=what, unit="GiB", values=[now - before])
                also = f", with batch {size}'s"


def _rate(lab: Lab, clock: Clock, some: list[Warm], batch_size: int) -> float:
    """Trials an hour of all of them; they are warm before it counts."""
    params = lab.params(batch_size, epochs=_SHARED_EPOCHS)
    together(some, {**params, "epochs": 1}, clock)
    ran = together(some, params, clock)
    if any(len(r.at) < 2 for r in ran):
        raise RuntimeError("it diverged")
    # The last to begin and the first to end leave epochs that all of them shared.
    since, until = max(r.at[0] for r in ran), min(r.ended for r in ran)
    return sum(3600 / (lab.epochs * _usual(r, since, until)) for r in ran)


def _used(lab: Lab) -> float | None:
    """GiB of the GPU that all processes have taken, contexts and all; None where there is none."""
    if lab.place.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 2**30


def _usual(ran: Ran, since: float, until: float) -> float:
    between = [b - a for a, b in pairwise(ran.at) if a >= since and b <= until]
    return median(between) if between else ran.epoch_s
