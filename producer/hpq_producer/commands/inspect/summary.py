"""`hpq summary`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from hpq.errors import UserError
from hpq_producer.commands.common_flags import Output
from hpq_producer.reports.summary_page import (
    print_comparison,
    print_summary,
    print_summary_data,
)
from hpq_producer.session import open_session
from hpq_producer.targets import complete_sweep_ids
from hpq_producer.terminal.output import Format


def summary(
    sweep: Annotated[
        list[str] | None,
        Argument(
            help="Id of a sweep, or its first characters; several: compare. Default: your last.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    n: Annotated[int, Option("-n", min=1, help="Rank the best N trials.")] = 20,
    output: Output = Format.TABLE,
) -> None:
    """Rank a sweep's trials; show if the winner is real, what mattered and what failed.

    Examples:
      hpq summary
      hpq summary digits-3f2a1 digits-9c0de
    """
    with open_session() as session:
        found = [session.verifiable(one) for one in (sweep or (None,))]
        if output.is_data and len(found) > 1:
            raise UserError("-o takes one sweep; run `hpq summary` once for each")
        if len(found) > 1:
            return print_comparison(session, found)
        if output.is_data:
            return print_summary_data(session, found[0], output, top=n)
        print_summary(session, found[0], top=n)
