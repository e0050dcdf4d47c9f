"""`wandb.integration.sb3.WandbCallback`; `sync_tensorboard` reports the metrics."""

from __future__ import annotations

import os
import sys

from stable_baselines3.common.callbacks import BaseCallback

from . import running_wandb


class WandbCallback(BaseCallback):  # type: ignore[misc]
    """Put the algorithm's settings into the config, and save the model if it has a path."""

    def __init__(
        self,
        verbose: int = 0,
        model_save_path: str | None = None,
        model_save_freq: int = 0,
        gradient_save_freq: int = 0,
        log: str | None = "all",
    ) -> None:
        """Create a callback.

        Raises:
            Error: no run is active.
        """
        super().__init__(verbose)
        running_wandb("WandbCallback")
        self.model_save_path, self.model_save_freq = model_save_path, model_save_freq
        self.gradient_save_freq, self.log = gradient_save_freq, log

    def _init_callback(self) -> None:
        wandb = sys.modules["wandb"]
        of_model = {
            name: value if type(value) in (float, int, str) else str(value)
            for name, value in vars(self.model).items()
        }
        wandb.config.setdefaults({"algo": type(self.model).__name__, **of_model})
        if self.gradient_save_freq > 0:
            wandb.watch(self.model.policy)

    def _on_step(self) -> bool:
        if self.model_save_freq > 0 and self.n_calls % self.model_save_freq == 0:
            self._save()
        return True

    def _on_training_end(self) -> None:
        self._save()

    def _save(self) -> None:
        if self.model_save_path is not None:
            os.makedirs(self.model_save_path, exist_ok=True)
            file = os.path.join(self.model_save_path, "model.zip")
            self.model.save(file)
            sys.modules["wandb"].save(file, base_path=self.model_save_path)
