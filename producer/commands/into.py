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
Leave = Annotated[
    bool, typer.Option("--leave", help="With --into: what the file leaves out goes on waiting.")
]
YesInto = Annotated[bool, typer.Option("--yes", "-y", help="With --into: do not ask.")]


def check_into(into: str | None, makes_new: object, goes_with_it: bool) -> None:
    """Whether flags go with --into: those of a new sweep do not, --leave and --yes only so.

    Raises:
        UserError: they do not.
    """
    if into is not None and makes_new:
        raise UserError("--into: --new, --canary, --tag, --reuse and --name are a new sweep's")
    if into is None and goes_with_it:
        raise UserError("--leave and --yes go with --into")
