"""The captured step on the device itself: as right as steps launched singly, and clean.

It is right if it gives what plain steps give, whatever numbers a trial sets. It is clean if a
capture that breaks off, or is forgotten, leaves neither memory nor a generator that cannot draw.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from functools import partial

import torch

from benchmarks.figures import Figure
from benchmarks.gpu import alike
from benchmarks.gpu.alike import SETS, STEPS, USUAL
from benchmarks.gpu.elsewhere import elsewhere
from benchmarks.gpu.trials import FAILED, Clock, Lab, OutOfTime, Rows, reason
from hpq_worker.trainers.networks import mnist_net
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.device import Plan, placed
from hpq_worker.trainers.training.step import bench, forget, is_captured

# A replay and single steps compute the same function: they may differ by the order in which sums
# are added up, no more. In float64 that is nothing, while a number that a replay took from its
# capture comes to several percent. In half precision it is not: roundings grow within a few steps,
# by what pools choose, to tens of percent of what the smaller weights change. So kernels that
# repeat are asked for, by which replays should come out bit for bit; and twice the difference that
# another order of a batch's images makes is allowed.
_MOST = {torch.float64: 1e-4, torch.half: 5.0}  # % of what the steps changed, or twice the order's
_OF_SUMS = {torch.float64: 1e-4, torch.half: 2.0}  # % of the loss; of the images, for hits
_APART_S = 45.0  # of a process of its own, which starts torch and CUDA anew
_KEPT_MIB = 32.0  # what may stay reserved: a block of the allocator's, not the memory of a step


def captured_step(lab: Lab, clock: Clock) -> Rows:
    """Whether a capture is right and clean here; a line that begins `failed: ` where it is not."""
    if lab.place.type != "cuda":
        yield "nothing is captured here: this section needs CUDA"
        return
    plan = device.plan(lab.place)
    yield from checked(lab, clock, plan)
    if clock.left_s < _APART_S / 2:
        raise OutOfTime("no time for a capture that breaks off")
    # Its clean-up goes below torch's documented calls: should it fail, then not in the process
    # that measures all that follows.
    alone = replace(lab, upstream=None)
    limit_s = min(_APART_S, clock.left_s)
    yield from elsewhere("a capture that breaks off", broken_off, alone, plan, limit_s=limit_s)


def checked(lab: Lab, clock: Clock, plan: Plan) -> Rows:
    """All but a capture that breaks off. What fails does not keep the rest from a look."""
    with _repeating():
        used = _use(lab, plan)
        wide = replace(plan, dtype=torch.float64, channels_last=False)  # as CUDA has it for float64
        for check in (
            partial(_right, "in float64", replace(lab, shrink=8 * lab.shrink), wide),
            partial(_right, "as trials compute", lab, plan),
            partial(_given_back, lab, plan, used),
        ):
            if clock.left_s < 0:
                raise OutOfTime
            try:
                yield from check()
            except Exception as error:
                yield f"{FAILED}{reason(error)}"
            forget()


@contextmanager
def _repeating() -> Iterator[None]:
    was = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = was


def _use(lab: Lab, plan: Plan) -> float:
    # What libraries keep once they have been used is no capture's.
    with redirect_stderr(io.StringIO()):  # it is said where it is looked at
        alike.few(lab, plan, USUAL, "first")
    alike.few(lab, plan, USUAL, None)
    forget()
    return _memory()


def _right(how: str, lab: Lab, plan: Plan) -> Rows:
    plain = {name: alike.few(lab, plan, numbers, None) for name, numbers in SETS.items()}
    said = io.StringIO()
    with redirect_stderr(said):
        replayed = {name: alike.few(lab, plan, numbers, "right") for name, numbers in SETS.items()}
    if not is_captured():
        yield f"failed: no capture {how}: {said.getvalue().strip()}"
        return
    if len({id(ran.own) for ran in replayed.values()}) > 1:
        yield f"failed: other numbers made another capture, {how}"
    most = _most(lab, plan, plain["the usual ones"])
    found = {name: alike.apart(replayed[name], plain[name]) for name in SETS}
    yield Figure(
        what=f"{how}: {STEPS} steps replayed beside the same launched singly, {len(SETS)} sets of"
        " numbers in one capture: largest difference of a weight, of what they changed",
        unit="%",
        values=list(found.values()),
        target=most,
    )
    twice = alike.apart(plain["the usual ones again"], plain["the usual ones"])
    yield Figure(what=f"{how}: the same, launched singly twice", unit="%", values=[twice])
    least, name = alike.told_apart(plain)
    what = f"{how}: the same, between two sets, at least: {name}"
    yield Figure(what=what, unit="%", values=[least])
    sums = {name: alike.sums_apart(replayed[name], plain[name]) for name in SETS}
    yield Figure(
        what=f"{how}: the same as first, of the summed loss, and of hits in % of the images",
        unit="%",
        values=list(sums.values()),
        target=_OF_SUMS[plan.dtype],
    )
    yield from _failed(f"{how}, weights with {{}}: {{:.3g}} % apart", found, most)
    yield from _failed(f"{how}, sums with {{}}: {{:.3g}} % apart", sums, _OF_SUMS[plan.dtype])
    if plan.dtype == torch.float64 and not least > most:
        yield f"failed: {how}, {name} changes {least:.3g} %: a stale number would not be seen"


def _most(lab: Lab, plan: Plan, plain: alike.Ran) -> float:
    mixed = alike.few(lab, plan, USUAL, None, mixed=True)
    return max(_MOST[plan.dtype], 2 * alike.apart(mixed, plain))


def broken_off(lab: Lab, plan: Plan) -> Rows:
    """A capture that breaks off, and what comes after it."""
    with _repeating():
        yield from _broken_off(lab, plan, _use(lab, plan))


def _broken_off(lab: Lab, plan: Plan, used: float) -> Rows:
    plain = alike.few(lab, plan, USUAL, None)
    most = _most(lab, plan, plain)
    said = io.StringIO()
    with redirect_stderr(said):
        broken = alike.few(lab, plan, USUAL, "reads back", alike.Peeks)
    lines = [line for line in said.getvalue().splitlines() if line.startswith("hpq: no CUDA graph")]
    if is_captured():
        yield "failed: a step that reads a value back was captured"
    if len(lines) != 1:
        yield f"failed: a capture that breaks off says {len(lines)} lines: {' / '.join(lines)}"
    if not _draws(lab):
        yield "failed: after a capture that broke off the default generator does not draw anew"
    with redirect_stderr(said):
        after = alike.few(lab, plan, USUAL, "after")
        captured = is_captured()
        drawn = _dropped(lab, plan)
    if not captured or not is_captured():
        yield f"failed: no capture after one that broke off: {said.getvalue().strip()}"
    found = {
        "the steps launched singly": alike.apart(broken, plain),
        "the next capture": alike.apart(after, plain),
    }
    yield Figure(
        what="where a capture broke off, its steps launched singly, and the next capture: largest"
        " difference from plain steps",
        unit="%",
        values=list(found.values()),
        target=most,
    )
    yield from _failed("where a capture broke off, {}: {:.3g} % apart", found, most)
    yield from drawn
    del plain, broken, after
    yield from _kept("a capture that broke off, with the next one,", used)


def _given_back(lab: Lab, plan: Plan, used: float) -> Rows:
    alike.few(lab, plan, USUAL, "given back")
    holds = _memory() - used
    yield Figure(what="memory reserved for a captured step, kept", unit="MiB", values=[holds])
    yield from _kept("a captured step", used)


def _kept(what: str, used: float) -> Rows:
    forget()
    more = _memory() - used
    yield Figure(
        what=f"still reserved once {what} is forgotten", unit="MiB", values=[more], target=_KEPT_MIB
    )
    yield from _failed("once {} is forgotten {:.3g} MiB stay reserved", {what: more}, _KEPT_MIB)


def _failed(line: str, found: dict[str, float], most: float) -> Iterator[str]:
    for name, value in found.items():
        if not value <= most:  # nor is it a number
            yield f"failed: {line.format(name, value)}, at most {most:g}"


def _draws(lab: Lab) -> bool:
    """Whether the device's own generator goes on drawing, and again the same from a seed."""

    def drawn() -> list[torch.Tensor]:
        torch.manual_seed(1)
        return [torch.rand(8, device=lab.place) for _ in range(2)]

    first, again = drawn(), drawn()
    return not torch.equal(*first) and all(map(torch.equal, first, again))


def _dropped(lab: Lab, plan: Plan) -> list[str]:
    """What is wrong with the replays of a network that draws: anew at each, the same by a seed."""
    images = torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    batch = images.to(lab.place, plan.dtype), torch.arange(8, device=lab.place)
    own = bench(placed(mnist_net(8, 0.5), lab.place, plan), batch, "dropout", plan)
    own.update.reset(momentum=0.0, decay=0.0)
    own.model.train()
    still = torch.zeros((), dtype=torch.float64, device=lab.place)  # no weight changes

    def losses() -> list[float]:
        torch.manual_seed(2)
        sums = [torch.zeros(3, dtype=torch.float64, device=lab.place) for _ in range(3)]
        for each in sums:
            own.take(batch, still, each)
        return [round(float(each[0]), 3) for each in sums]

    first, again = losses(), losses()
    if len(set(first)) == len(first) and first == again:
        return []
    return [f"failed: a captured dropout gave losses of {first}, from the same seed then {again}"]


def _memory() -> float:
    """What torch has reserved of the device and cannot give back, in MiB."""
    if not torch.cuda.is_available():
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what it keeps for later is no step's
    return torch.cuda.memory_reserved() / 2**20
