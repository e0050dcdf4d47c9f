"""`hpq summary`."""

from __future__ import annotations

from typing import Annotated

import typer

from hpq.errors import UserError
from hpq_producer.commands.common_flags import AsJson
from hpq_producer.reports.summary_page import (
    print_comparison,
    print_summary,
    print_summary_json,
)
from hpq_producer.session import open_session
from hpq_producer.targets import complete_sweep_ids


def summary(
    sweep: Annotated[
        list[str] | None,
        typer.Argument(
            help="Id of a sweep or its beginning [default: your newest sweep]; compare several.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many trials in the ranking.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Rank a sweep's trials; say whether the winner is real, what matters and what failed."""
    with open_session() as session:
        found = [session.sweep(one) for one in (sweep or (None,))]
        if as_json and len(found) > 1:
            raise UserError("--json takes one sweep; ask for each in turn", code="usage")
        if len(found) > 1:
            return print_comparison(session.reader, found)
        page = print_summary_json if as_json else print_summary
        page(session.reader, found[0], top=n)
