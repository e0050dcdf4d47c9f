"""The flags that several commands share. Imports nothing that would make readers slow to start."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
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
