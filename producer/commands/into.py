"""The flags of enqueue and run that add to a sweep which is there."""

from __future__ import annotations

from typing import Annotated

import typer

from hpq.errors import UserError
from producer.completion import sweep_ids

Into = Annotated[
    str | None,
    typer.Option(
        metavar="SWEEP",
        help="Add what is new in the file to a sweep.",
        autocompletion=sweep_ids,
    ),
]


def check_into(into: str | None, makes_new: object) -> None:
    """Check that no option of a new sweep stands beside --into.

    Raises:
        UserError: one does.
    """
    if into is not None and makes_new:
        raise UserError("--into: --new, --canary, --tag, --reuse and --name are a new sweep's")
