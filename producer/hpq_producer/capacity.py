"""Check that a sweep fits into the server's memory, before the first write."""

from __future__ import annotations

from hpq.domain.status import FULL, ServerMemory
from hpq.errors import OutOfReach
from hpq_views.text.text import size, trials_of

TRIAL_BYTES = 450  # per queued trial, measured; excludes parameters beyond 200 bytes


def check_capacity(
    memory: ServerMemory | None, trials: int, *, weight: int = 0, code: int = 0
) -> list[str]:
    """Return warnings about the server's memory before `trials` trials and their code are written.

    `memory` is None if these credentials may not ask for it. `weight` is the estimated size of the
    trials in bytes (0: that of queued trials); `code` is the size of their code in bytes.

    Raises:
        OutOfReach: the trials do not fit below 80 % of maxmemory.
    """
    more = (weight or trials * TRIAL_BYTES) + code
    if memory is None:
        return []
    if not memory.has_room(more):
        raise OutOfReach(
            f"Redis is full: {size(memory.used)} of maxmemory {size(memory.limit)} are used,"
            f" {trials_of(trials)} need about {size(more)}, and hpq fills at most {FULL:.0%}."
            " `hpq ls --all` shows large sweeps; `hpq archive` and then `hpq rm` them, or"
            f" raise maxmemory to at least {size((memory.used + more) / FULL * 1.01)}",
            code="redis-memory",
        )
    if not (memory.limit and memory.evicts):
        return []
    what = f"maxmemory-policy is {memory.policy}: a full server would delete trials;"
    return [f"{what} run: redis-cli CONFIG SET maxmemory-policy noeviction"]
