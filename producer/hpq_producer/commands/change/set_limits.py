"""`hpq set`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from hpq.access.session import open_session
from hpq_producer.actions import set_limits as action
from hpq_producer.commands.change.steer import print_changed
from hpq_producer.commands.common_flags import Other, Output
from hpq_views.analysis.limits import FIELDS
from hpq_views.targets import owned_sweep
from hpq_views.text.output import Format

_HELP = (
    f"KEY is {', '.join(tuple(FIELDS)[:-1])} or {tuple(FIELDS)[-1]}; times are in s, m, h or d;"
    " run_cap=0, max_parallel=0, budget.gpu_hours=0 and budget.until=none remove the limit."
)


def set_limits(
    changes: Annotated[list[str], Argument(metavar="[SWEEP] KEY=VALUE", help=_HELP)],
    force: Other = False,
    output: Output = Format.TABLE,
) -> None:
    """Change a sweep's limits, tags and note; running trials keep the old values.

    Examples:
      hpq set digits-3f2a1 run_cap=200 max_parallel=4
      hpq set priority=10
      hpq set budget.gpu_hours=60
      hpq set note='lr above 0.1 diverges'
    """
    ref = None if "=" in changes[0] else changes[0]
    fields = action.limits(changes if ref is None else changes[1:])
    with open_session() as session:
        found = owned_sweep(session, ref, force)
        print_changed(session, found.id, action.set_limits(session, found, fields), output)
