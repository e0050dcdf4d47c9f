"""G3 to G6: the article's sixteen sets in a warm runner, gaps and starts; sharing a GPU.

Gaps and starts end where the first epoch begins, which is before its images are augmented.
"""

from __future__ import annotations

from itertools import pairwise, product
from statistics import median

from benchmarks.figures import Figure
from benchmarks.gpu.runners import Ran, runners, together
from benchmarks.gpu.sections import utilisation
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, Rows, reason
from hpq.trial import Json

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
    sets, ran = sixteen(lab), []
    with runners(lab, 1) as (runner,):
        try:
            for params in sets:
                ran += together([runner], params, clock)
        except (OutOfTime, RuntimeError) as error:
            if len(ran) < 2:
                raise
            yield f"ended after {len(ran)} sets: {reason(error)}"
        whole_s = ran[-1].ended - runner.started
        start_s = ran[0].first_epoch - runner.started
    best, epochs = max(r.accuracy for r in ran), sum(len(r.at) for r in ran)
    mfu = utilisation(lab, whole_s / epochs)  # with the start, the captures and the gaps
    yield Figure(
        what=f"G3 {len(ran)} of the 16 sets, from a runner's start, {mfu}; best {best:.2%}",
        unit="s",
        values=[whole_s],
        target=200,
    )
    gaps = _gaps(sets, ran)
    if gaps["same"]:
        values = gaps["same"]
        yield Figure(
            what="G4 gap to the first epoch, a shape that is kept",
            unit="ms",
            values=values,
            target=20,
        )
    if gaps["new"]:
        values = gaps["new"]
        yield Figure(
            what="G4 gap to the first epoch, a new shape", unit="ms", values=values, target=1000
        )
    with runners(lab, 1) as (runner,):
        (second,) = together([runner], lab.params(512, epochs=2), clock)
        again_s = second.first_epoch - runner.started
    ours = Figure(
        what="G5 process start to first epoch, data decoded", unit="s", values=[again_s], target=10
    )
    yield ours
    yield ours.peer("G5 the first such start of this run", [start_s])


def _gaps(sets: list[dict[str, Json]], ran: list[Ran]) -> dict[str, list[float]]:
    """From a trial's last report to the first epoch of the next, in ms."""
    seen = {sets[0]["batch_size"]}
    found: dict[str, list[float]] = {"same": [], "new": []}
    for params, (one, other) in zip(sets[1:], pairwise(ran), strict=False):
        kind = "same" if params["batch_size"] in seen else "new"
        seen.add(params["batch_size"])
        found[kind].append(1000 * (other.first_epoch - one.last))
    return found


def sharing(lab: Lab, clock: Clock) -> Rows:
    """G6: trials an hour of 1, 2 and 4 processes on one GPU, each bounded to a quarter of it."""
    with runners(lab, 4) as four:
        together(four, lab.params(512, epochs=1), clock)  # all have torch and the data
        for size in (128, 512):
            params = lab.params(size, epochs=_SHARED_EPOCHS)
            together(four, {**params, "epochs": 1}, clock)  # and the shape
            alone = 0.0
            for count in (1, 2, 4):
                try:
                    ran = together(four[:count], params, clock)
                except RuntimeError as error:
                    yield f"batch {size}, {count} at once: failed: {reason(error)}"
                    continue
                # The last to begin and the first to end leave epochs that all of them shared.
                since, until = max(r.at[0] for r in ran), min(r.ended for r in ran)
                each = [_usual(r, since, until) for r in ran]
                rate = sum(3600 / (lab.epochs * s) for s in each)
                alone = alone or rate
                mfu = utilisation(lab, 3600 / (lab.epochs * rate))  # of the GPU, by all of them
                yield Figure(
                    what=f"G6 batch {size}, {count} at once: {rate / alone:.2f} × one alone, {mfu}",
                    unit="trials/h",
                    values=[rate],
                    more_is_better=True,
                )


def _usual(ran: Ran, since: float, until: float) -> float:
    between = [b - a for a, b in pairwise(ran.at) if a >= since and b <= until]
    return median(between) if between else ran.epoch_s
