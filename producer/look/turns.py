"""Which sweeps keep another waiting since they go before it, and what changes that. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from hpq.codes import Notice
from hpq.snapshot import Worker
from hpq.sweep import Sweep, SweepState
from producer.look.takers import can_take
from producer.look.text import clean
from producer.sweepfile.schema import MOST_PRIORITY

_COUNT = re.compile(r"\b\d+ queued\b")


def why_behind(
    sweep: Sweep, ahead: Iterable[Sweep], workers: Iterable[Worker], shipped: Collection[str]
) -> Notice | None:
    """One line with the remedy where whoever could take the sweep is busy, and goes on with others.

    `ahead` are the sweeps that go before it (`View.ahead_of`). None where a trial of it runs, where
    a worker is idle, or where one will come to it by itself.
    """
    if sweep.state is not SweepState.RUNNING or sweep.counts.running or not sweep.counts.waits:
        return None
    takers = [w for w in workers if w.state in ("busy", "idle") and can_take(w, sweep, shipped)]
    first = [one for one in ahead if one.state is SweepState.RUNNING and one.counts.waits]
    held = [[one for one in first if _goes_on(w, one, shipped)] for w in takers]
    if not held or any(w.state == "idle" for w in takers) or not all(held):
        return None
    return Notice(
        "behind", _words(sweep, [one for one in first if any(one in those for those in held)])
    )


def gist(why: str) -> str:
    """A reason without its counts: what is told once is not told anew at each trial that starts."""
    return _COUNT.sub("queued", why)


def _goes_on(worker: Worker, sweep: Sweep, shipped: Collection[str]) -> bool:
    """True where a worker that is done takes a trial of this sweep next, if it may."""
    if not can_take(worker, sweep, shipped):
        return False
    return worker.trial.startswith(f"{sweep.id}/") or _has_room(sweep)


def _has_room(sweep: Sweep) -> bool:
    """True where one more trial of a sweep may run now."""
    counts, cap = sweep.counts, sweep.max_parallel
    if cap and counts.running >= cap:
        return False
    return not sweep.canary or counts.finished + counts.pruned + counts.running < sweep.canary


def _words(sweep: Sweep, first: Sequence[Sweep]) -> str:
    """Names one of them: what has no end, or the first; `ls` says it once of all that wait so."""
    one = next((s for s in first if s.counts.is_open_ended), first[0])
    is_mine = one.owner == sweep.owner
    left = "open-ended" if one.counts.is_open_ended else f"{_left(one)} queued"
    whose = "" if is_mine else f"{clean(one.owner)}'s, "
    line = f"waits behind {one.id} ({whose}{left})"
    above = max(s.priority for s in first) + 1
    sooner = f"`hpq set {sweep.id} priority={above}`" if above <= MOST_PRIORITY else ""
    if one.counts.is_open_ended and is_mine:
        return f"{line}: " + ", or ".join(filter(None, (f"`hpq stop {one.id}`", sooner)))
    return f"{line}; {sooner} lets it go first" if sooner else line


def _left(sweep: Sweep) -> int:
    return sweep.counts.queued + int(sweep.counts.to_come)
