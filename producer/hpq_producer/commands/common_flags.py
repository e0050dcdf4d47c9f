"""The options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from hpq_producer.terminal.output import Format

Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="Print table, json, jsonl, yaml or csv; --json is short for -o json.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context in the kubeconfig. Default: the current one."),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of hpq. Default: hpq."),
]
WhereSweep = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="EXPR", help="List only sweeps that match EXPR, e.g. 'state == held'."
    ),
]
WhereExpr = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Only trials that match EXPR, e.g. 'lr > 0.1'."),
]
