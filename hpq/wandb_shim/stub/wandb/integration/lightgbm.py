"""`wandb.lightgbm`: `wandb_callback` and `log_summary`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from . import keep_best, log_importances, log_model_file, running_wandb

_FALLING = ("l1", "l2", "rmse", "mape", "huber", "fair", "poisson", "gamma", "binary_logloss")
_RISING = ("map", "auc", "average_precision")


class _Callback:
    """Log each evaluation result, e.g. as `valid_0_l2`, and the iteration: one row an iteration."""

    def __init__(self, log_params: bool, define_metric: bool) -> None:
        self.order, self.before_iteration = 20, False  # as LightGBM's own callbacks have
        self._log_params, self._defines = log_params, define_metric

    def __call__(self, env: Any) -> None:
        wandb, found = sys.modules["wandb"], {}
        is_first = env.iteration == env.begin_iteration
        if is_first and self._log_params:
            wandb.config.update(env.params)
        for result in env.evaluation_result_list:
            for name, metric, value in _values(result):
                found[name] = value
                if is_first and self._defines:
                    keep_best(name, metric, _FALLING, _RISING)
        wandb.log({**found, "iteration": env.iteration})


def _values(result: Any) -> list[tuple[str, str, float]]:
    """Return names, metrics and values of a result: for `lgb.cv` a mean and a deviation."""
    if len(result) == 4:
        data, metric, value = result[:3]
        return [(f"{data}_{metric}", metric, value)]
    data, metric = result[1].split() if " " in result[1] else result[:2]
    kinds = {f"{metric}-mean": result[2], f"{metric}-stdv": result[4]}
    return [(f"{data}_{kind}", kind, value) for kind, value in kinds.items()]


def wandb_callback(log_params: bool = True, define_metric: bool = True) -> _Callback:
    """Return a callback for `lgb.train`, `lgb.cv` and LightGBM's estimators."""
    return _Callback(log_params, define_metric)


def log_summary(
    model: Any, feature_importance: bool = True, save_model_checkpoint: bool = False
) -> None:
    """Set the best iteration and score, and log a chart of the features and the model."""
    wandb = running_wandb("log_summary")
    wandb.run.summary["best_iteration"] = model.best_iteration
    wandb.run.summary["best_score"] = model.best_score
    if feature_importance:
        importances = list(model.feature_importance())
        rows = [[name, importances[i]] for i, name in enumerate(model.feature_name())]
        log_importances(rows, commit=False)
    if save_model_checkpoint:
        path = Path(wandb.run.dir, f"model_ckpt_{model.best_iteration}.txt")
        model.save_model(path, num_iteration=model.best_iteration)
        log_model_file(f"model_{wandb.run.id}", path, ["best"])
