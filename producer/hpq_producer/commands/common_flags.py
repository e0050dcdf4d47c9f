"""The options that several commands share."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hpq.errors import UserError
from hpq.settings import parse_name
from hpq_views.text.output import Format


def checked_name(option: str, text: str) -> str:
    """Return the value of an option that is a name for keys of Redis and of Kubernetes.

    Raises:
        UserError: it is none.
    """
    try:
        return parse_name(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}") from None


def set_gpus(gpus_per_trial: int | None, trials_per_gpu: int | None) -> None:
    """Set these options as settings of this process, which its workers inherit."""
    if gpus_per_trial is not None:
        os.environ["HPQ_GPUS_PER_TRIAL"] = str(gpus_per_trial)
    if trials_per_gpu is not None:
        os.environ["HPQ_TRIALS_PER_GPU"] = str(trials_per_gpu)


def _no_parquet(output: Format) -> Format:
    """Refuse Parquet before a command has changed anything."""
    if output is Format.PARQUET:
        raise UserError("-o parquet: only `hpq results` writes it; use -o csv", code="usage")
    return output


Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="Print table, json, jsonl, yaml or csv; --json is short for -o json.",
        callback=_no_parquet,
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
GpusPerTrial = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        min=1,
        max=64,
        metavar="N",
        help="GPUs of each trial. Default: HPQ_GPUS_PER_TRIAL.",
    ),
]
TrialsPerGpu = Annotated[
    int | None,
    typer.Option(
        min=1, max=64, metavar="N", help="Trials that share a GPU. Default: HPQ_TRIALS_PER_GPU."
    ),
]
Other = Annotated[bool, typer.Option("--force", help="Allow another user's sweep.")]
