"""The flags that several commands share, and how a sweep file is read with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpq.errors import UserError
from producer.sweepfile.load import load
from producer.sweepfile.spec import SweepSpec

File = Annotated[Path, typer.Argument(help="The sweep file.", show_default=False)]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Change a key of the file: --set run_cap=8.")
]
Count = Annotated[int | None, typer.Option(help="How many trials at most (run_cap).")]
Seed = Annotated[int | None, typer.Option(help="The seed of the search.")]
Name = Annotated[str | None, typer.Option(help="The sweep's name.")]
Trainer = Annotated[str | None, typer.Option(help="The trainer, for a file that names none.")]
CodeDir = Annotated[str | None, typer.Option("--code", help="Where the code lies.")]
Canary = Annotated[
    int, typer.Option(min=0, help="So many trials must finish before the rest may start.")
]
Where_ = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Only those of which it is so: 'lr > 0.1'."),
]
Force = Annotated[bool, typer.Option(help="Take more than 100,000 trials.")]


def read_file(
    file: Path,
    sets: list[str] | None,
    count: int | None,
    seed: int | None,
    name: str | None,
    trainer: str | None,
    force: bool = False,
) -> SweepSpec:
    """The sweep file with the flags over it.

    Raises:
        UserError: a --set has no '=', or what `load` finds.
    """
    overrides: dict[str, str] = {}
    for text in sets or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set {text}: write KEY=VALUE, such as --set run_cap=8")
        overrides[key] = value
    more = {"limit": None} if force else {}
    return load(
        file, overrides=overrides, count=count, seed=seed, name=name, trainer=trainer, **more
    )
