"""`hpq summary`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hpq.access.session import open_session
from hpq.errors import UserError
from hpq_producer.commands.common_flags import Output
from hpq_views.analysis.selection import refuse_incomparable
from hpq_views.command_output.comparison import print_comparison
from hpq_views.command_output.narrowed import print_narrowed
from hpq_views.command_output.summary_page import print_summary, print_summary_data
from hpq_views.targets import SweepRefs
from hpq_views.text.output import Format


def summary(
    sweep: SweepRefs = None,
    n: Annotated[int, Option("-n", min=1, help="Rank the best N trials.")] = 20,
    narrow: Annotated[
        bool,
        Option(
            "--narrow",
            help="Print `parameters:` for the next sweep file, each with its reason.",
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Rank a sweep's trials; show if the winner is real, what mattered and what failed.

    Several sweeps are shown side by side, and their trials in one ranking, if their metric, its
    goal and its value are the same.

    --narrow prints the parameters of a next sweep: those that matter get the range of the best
    quarter of the settings, the others do not change.

    Examples:
      hpq summary
      hpq summary digits-3f2a1 digits-9c0de
      hpq summary digits-3f2a1 --narrow
    """
    with open_session() as session:
        found = session.several(sweep)
        if narrow:
            if len(found) > 1:
                text = f"--narrow takes one sweep; hpq summary {found[0].id} --narrow"
                raise UserError(text, code="one-sweep-only")
            return print_narrowed(session, found[0], output)
        refuse_incomparable(found)
        if output.is_data and len(found) > 1:
            ids = " ".join(one.id for one in found)
            text = f"-o takes one sweep; hpq best {ids} -n {n} -o {output} has the ranking"
            raise UserError(text)
        if len(found) > 1 and found[0].objectives:
            ids = " ".join(one.id for one in found)
            text = f"sweeps with several metrics are summarized one at a time; hpq best {ids}"
            raise UserError(f"{text} prints the front of all", code="metrics-several")
        if len(found) > 1:
            return print_comparison(session, found, top=n)
        if output.is_data:
            return print_summary_data(session, found[0], output, top=n)
        print_summary(session, found[0], top=n)
