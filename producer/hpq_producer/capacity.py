"""How full the server is, and whether a sweep still goes in. Refuses before anything is written."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.domain.snapshot import FULL
from hpq.errors import OutOfReach
from hpq_producer.session import Session
from hpq_producer.terminal.text import size, trials_of

TRIAL_BYTES = 450  # of a queued trial, measured; more than 200 bytes of parameters come on top


def check_capacity(
    session: Session, trials: int, *, weight: int = 0, code: int = 0
) -> Iterator[str]:
    """Warnings about the server's memory, before `trials` more, and their code, are written.

    `weight` is about how many bytes the trials take, where that is known (0: as waiting trials
    do); `code` is how many their code takes.

    Raises:
        OutOfReach: they do not fit below 80 % of maxmemory (says what helps).
    """
    memory, more = session.reader.server_memory(), (weight or trials * TRIAL_BYTES) + code
    if memory is None:  # these credentials may not ask
        return
    if not memory.has_room(more):
        raise OutOfReach(
            f"{size(memory.used)} of the server's maxmemory of {size(memory.limit)} are used, and"
            f" {trials_of(trials)} would take about {size(more)} more; hpq fills {FULL:.0%} of it."
            f" {_remedy(session, memory.used + more, memory.limit)}",
            code="redis-memory",
        )
    if memory.limit and memory.evicts:
        yield (
            f"maxmemory-policy is {memory.policy}: under pressure the server would throw away"
            " trials; CONFIG SET maxmemory-policy noeviction"
        )


def _remedy(session: Session, needed: int, limit: int) -> str:
    """What makes room for so many bytes in all: sweeps where they hold enough, or more memory."""
    raise_limit = f"raise maxmemory to at least {size(needed / FULL * 1.01)}"
    sweeps = [
        s
        for s in session.reader.sweeps.get_many(session.reader.sweeps.ids(200))
        if not s.counts.running
    ]
    sizes = session.reader.sweeps.approximate_bytes(sweeps)
    if needed - sum(sizes) > FULL * limit:
        held = f"sweeps that can go hold only {size(sum(sizes))}: " if sweeps else ""
        return held + raise_limit
    largest = sorted(zip(sizes, sweeps, strict=True), key=lambda pair: -pair[0])[:3]
    some = ", ".join(f"{s.id} (about {size(n)}, {s.state})" for n, s in largest)
    return f"Largest: {some}; `hpq archive` and then `hpq rm {largest[0][1].id}`, or {raise_limit}"
