"""`wandb.integration.sb3.WandbCallback`; `sync_tensorboard` reports the metrics."""

from __future__ import annotations

import os
import sys
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback


class WandbCallback(BaseCallback):  # type: ignore[misc]
    """Save the model when training ends, if `model_save_path` is given."""

    def __init__(self, verbose: int = 0, model_save_path: str | None = None, **kw: Any) -> None:
        super().__init__(verbose)
        self._path = model_save_path

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._path:
            os.makedirs(self._path, exist_ok=True)
            file = os.path.join(self._path, "model.zip")
            self.model.save(file)
            sys.modules["wandb"].save(file, base_path=self._path)
