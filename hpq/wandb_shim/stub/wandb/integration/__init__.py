"""Callbacks for libraries that have no logger for W&B of their own, with W&B's names and steps."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def running_wandb(caller: str) -> Any:
    """Return the `wandb` module, which has an active run.

    Raises:
        Error: no run is active.
    """
    wandb = sys.modules["wandb"]
    if wandb.run is None:
        raise wandb.Error(f"You must call wandb.init() before {caller}()")
    return wandb


def keep_best(name: str, metric: str, falling: Iterable[str], rising: Iterable[str]) -> None:
    """Report the best value of a metric beside its values if W&B knows which values are good."""
    run = sys.modules["wandb"].run
    word = metric.lower()
    if "loss" in word or word in falling:
        run.define_metric(name, summary="min")
    elif word in rising:
        run.define_metric(name, summary="max")


def log_importances(rows: list[list[Any]], *, commit: bool | None = None) -> None:
    """Log features and their importances as a chart."""
    wandb = sys.modules["wandb"]
    table = wandb.Table(data=rows, columns=["Feature", "Importance"])
    chart = wandb.plot.bar(table, "Feature", "Importance", title="Feature Importance")
    wandb.log({"Feature Importance": chart}, commit=commit)


def log_model_file(name: str, path: Path, aliases: list[str] | None = None) -> None:
    """Log a file, or a folder, that holds a model as an artifact."""
    wandb = sys.modules["wandb"]
    artifact = wandb.Artifact(name, type="model")
    add = artifact.add_dir if path.is_dir() else artifact.add_file
    add(str(path))
    wandb.log_artifact(artifact, aliases=aliases)
