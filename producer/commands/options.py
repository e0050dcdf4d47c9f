"""The flags that several commands share. Imports nothing that would make readers slow to start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(help="The sweep file.", show_default=False)]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Change a key of the file: --set run_cap=8.")
]
Count = Annotated[int | None, typer.Option(help="How many trials at most (run_cap).")]
Seed = Annotated[int | None, typer.Option(help="The seed of the search.")]
Name = Annotated[str | None, typer.Option(help="The sweep's name.")]
Trainer = Annotated[str | None, typer.Option(help="The trainer, for a file that names none.")]
CodeDir = Annotated[
    str | None,
    typer.Option(
        "--code", help="The directory of the code; it is sent along and runs from a copy."
    ),
]
Canary = Annotated[
    int, typer.Option(min=0, help="So many trials must finish before the rest may start.")
]
New = Annotated[bool, typer.Option(help="A new sweep even where the same is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Force = Annotated[
    bool, typer.Option(help="Take more than 100,000 trials; --into also another owner's sweep.")
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
Context = Annotated[
    str | None,
    typer.Option(help="The cluster's name in the kubeconfig; without: the current."),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Where hpq is; without: hpq.")
]
WhereSweep = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Only those of which it is so: 'state == held'."),
]
WhereExpr = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Only those of which it is so: 'lr > 0.1'."),
]
