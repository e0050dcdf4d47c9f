"""`hpq summary`."""

from __future__ import annotations

from typing import Annotated

import typer

from hpq_producer.commands.common_flags import AsJson
from hpq_producer.reports.summary_page import print_summary, print_summary_json
from hpq_producer.session import open_session
from hpq_producer.targets import complete_sweep_ids


def summary(
    sweep: Annotated[
        str | None,
        typer.Argument(help="A sweep's id or its beginning.", autocompletion=complete_sweep_ids),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many trials in the ranking.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Ranking and bars of a sweep, what the parameters did to it, and what failed."""
    with open_session() as session:
        found = session.reader.sweeps.get(
            session.reader.sweeps.resolve(sweep, session.settings.user)
        )
        page = print_summary_json if as_json else print_summary
        page(session.reader, found, top=n)
