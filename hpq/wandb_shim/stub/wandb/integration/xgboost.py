"""`wandb.xgboost`: `WandbCallback`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import xgboost

from . import keep_best, log_importances, log_model_file, running_wandb

_FALLING = ("rmse", "rmsle", "mae", "mape", "mphe", "logloss", "error", "error@t", "merror")
_RISING = ("auc", "aucpr", "ndcg", "map", "ndcg@n", "map@n")


class WandbCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Log each evaluation result, e.g. as `validation_0-logloss`, and what training found."""

    def __init__(
        self,
        log_model: bool = False,
        log_feature_importance: bool = True,
        importance_type: str = "gain",
        define_metric: bool = True,
    ) -> None:
        """Create a callback.

        Raises:
            Error: no run is active.
        """
        super().__init__()
        running_wandb("WandbCallback")
        self.log_model, self.log_feature_importance = log_model, log_feature_importance
        self.importance_type, self.define_metric = importance_type, define_metric

    def before_training(self, model: Any) -> Any:
        """Put the booster's configuration into the run's."""
        sys.modules["wandb"].config.update(json.loads(model.save_config()))
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Log one row, and let the training go on."""
        found: dict[str, Any] = {}
        for data, metrics in evals_log.items():
            for metric, values in metrics.items():
                name = f"{data}-{metric}"
                found[name] = values[-1]
                if self.define_metric:
                    keep_best(name, metric, _FALLING, _RISING)
        sys.modules["wandb"].log({**found, "epoch": epoch})
        self.define_metric = False
        return False

    def after_training(self, model: Any) -> Any:
        """Log the model, a chart of the features, and the best score of an early stop."""
        wandb = sys.modules["wandb"]
        if self.log_model:
            path = Path(wandb.run.dir, f"{wandb.run.id}_model.json")
            model.save_model(str(path))
            log_model_file(path.name, path)
        if self.log_feature_importance:
            scores = model.get_score(importance_type=self.importance_type)
            log_importances([list(item) for item in scores.items()])
        if model.attr("best_score") is not None:
            best = float(model.attr("best_score"))
            wandb.log({"best_score": best, "best_iteration": int(model.attr("best_iteration"))})
        return model


def wandb_callback() -> WandbCallback:
    """Return W&B's former callback, which logs the results alone."""
    return WandbCallback(log_feature_importance=False, define_metric=False)
