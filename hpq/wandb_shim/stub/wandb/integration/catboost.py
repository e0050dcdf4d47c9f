"""`wandb.catboost`: `WandbCallback` and `log_summary`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from . import log_importances, log_model_file, running_wandb


class WandbCallback:
    """Log each metric, e.g. as `validation-RMSE`, whenever CatBoost has evaluated it."""

    def __init__(self, metric_period: int = 1) -> None:
        """Create a callback.

        Raises:
            Error: no run is active.
        """
        running_wandb("WandbCallback")
        self.metric_period, self._values = metric_period, 0

    def after_iteration(self, info: Any) -> bool:
        """Log one row if there are new values, and let the training go on."""
        logs = {
            f"{data}-{metric}": values
            for data, metrics in info.metrics.items()
            for metric, values in metrics.items()
        }
        count = sum(map(len, logs.values()))
        if count > self._values:
            self._values = count
            found = {name: values[-1] for name, values in logs.items()}
            step = {f"iteration@metric-period-{self.metric_period}": info.iteration}
            sys.modules["wandb"].log({**found, **step})
        return True


def log_summary(
    model: Any,
    log_all_params: bool = True,
    save_model_checkpoint: bool = False,
    log_feature_importance: bool = True,
) -> None:
    """Log the parameters, the best iteration and score, the model and a chart of the features."""
    wandb = running_wandb("log_summary")
    parameters = model.get_all_params()
    if log_all_params:
        wandb.config.update(parameters)
    wandb.run.summary["best_iteration"] = model.get_best_iteration()
    wandb.run.summary["best_score"] = model.get_best_score()
    if save_model_checkpoint:
        path = Path(wandb.run.dir, "model")
        model.save_model(path)
        alias = "best" if parameters["use_best_model"] else "last"
        log_model_file(f"model_{wandb.run.id}", path, [alias])
    if log_feature_importance:
        rows = model.get_feature_importance(prettified=True).values.tolist()
        log_importances(rows, commit=False)
