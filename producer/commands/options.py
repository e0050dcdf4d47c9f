"""The flags that several commands share, and how a sweep file is read with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpq.errors import UserError
from producer.limits import TAG
from producer.reuse import Reuse
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
Tags = Annotated[
    list[str] | None, typer.Option("--tag", help="A word to find it by in ls; may come again.")
]
ReuseFlag = Annotated[
    bool,
    typer.Option("--reuse", help="Take results of older sweeps of the same code; train the rest."),
]
AnyCode = Annotated[
    bool, typer.Option("--any-code", help="With --reuse: of the same program, edited or not.")
]
Where_ = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Only those of which it is so: 'lr > 0.1'."),
]
Force = Annotated[bool, typer.Option(help="Take more than 100,000 trials.")]


def reuse_of(reuse: bool, any_code: bool) -> Reuse | None:
    """What --reuse and --any-code come to.

    Raises:
        UserError: --any-code stands alone.
    """
    if any_code and not reuse:
        raise UserError("--any-code goes with --reuse")
    if not reuse:
        return None
    return Reuse.ANY_CODE if any_code else Reuse.SAME_CODE


def tags_of(words: list[str] | None) -> tuple[str, ...]:
    """The tags, each once.

    Raises:
        UserError: one is no word of 1 to 40 of A-Z a-z 0-9 _ . : -.
    """
    for word in words or []:
        if not TAG.fullmatch(word):
            raise UserError(f"--tag {word}: use 1 to 40 of A-Z a-z 0-9 _ . : -")
    return tuple(dict.fromkeys(words or []))


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
