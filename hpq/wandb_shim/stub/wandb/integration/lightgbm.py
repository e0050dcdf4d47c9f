"""`wandb.lightgbm.wandb_callback`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def wandb_callback(*args: Any, **kwargs: Any) -> Callable[[Any], None]:
    """Return a callback that logs each evaluation result, e.g. as `valid_0_l2`."""

    def callback(env: Any) -> None:
        found = {f"{result[0]}_{result[1]}": result[2] for result in env.evaluation_result_list}
        sys.modules["wandb"].log(found, step=env.iteration)

    return callback


def log_summary(model: Any, *args: Any, **kwargs: Any) -> None:
    """Set the best iteration in the summary."""
    sys.modules["wandb"].run.summary["best_iteration"] = model.best_iteration
