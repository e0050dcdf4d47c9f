"""`wandb.xgboost.WandbCallback`."""

from __future__ import annotations

import sys
from typing import Any

import xgboost


class WandbCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Log each evaluation result, e.g. as `validation_0-logloss`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        found = {
            f"{data}-{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        sys.modules["wandb"].log({**found, "epoch": epoch})
        return False


def wandb_callback(*args: Any, **kwargs: Any) -> WandbCallback:
    return WandbCallback()
