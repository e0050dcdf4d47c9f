"""`wandb.catboost.WandbCallback` and `log_summary`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


class WandbCallback:
    """Log each metric, e.g. as `validation-RMSE`, every `metric_period` iterations."""

    def __init__(self, metric_period: int = 1) -> None:
        self._period = metric_period

    def after_iteration(self, info: Any) -> bool:
        if info.iteration % self._period == 0:
            found = {
                f"{data}-{metric}": values[-1]
                for data, metrics in info.metrics.items()
                for metric, values in metrics.items()
            }
            step = {f"iteration@metric-period-{self._period}": info.iteration}
            sys.modules["wandb"].log({**found, **step})
        return True


def log_summary(
    model: Any,
    log_all_params: bool = True,
    save_model_checkpoint: bool = False,
    log_feature_importance: bool = True,
) -> None:
    """Log the parameters, the best iteration and score, the model and a chart of the features."""
    wandb = sys.modules["wandb"]
    if log_all_params:
        wandb.config.update(model.get_all_params())
    wandb.run.summary["best_iteration"] = model.get_best_iteration()
    wandb.run.summary["best_score"] = model.get_best_score()
    if save_model_checkpoint:
        path = Path(wandb.run.dir) / "model"
        model.save_model(path)
        wandb.run.log_model(str(path), name=f"model_{wandb.run.id}")
    if log_feature_importance:
        rows = model.get_feature_importance(prettified=True).values.tolist()
        table = wandb.Table(data=rows, columns=["Feature", "Importance"])
        wandb.log({"Feature Importance": wandb.plot.bar(table, "Feature", "Importance")})
