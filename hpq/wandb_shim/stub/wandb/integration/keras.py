"""`wandb.keras`: callbacks for Keras 3 and for TensorFlow's Keras."""

from __future__ import annotations

import importlib
import operator
import os
import sys
from typing import Any


def _base() -> Any:
    try:
        return importlib.import_module("keras").callbacks
    except ImportError:
        return importlib.import_module("tensorflow").keras.callbacks


def _log(values: Any, **more: Any) -> None:
    sys.modules["wandb"].log({**(values or {}), **more})


class WandbMetricsLogger(_base().Callback):  # type: ignore[misc]
    """Log each epoch's metrics as `epoch/NAME`, and every `log_freq` batches' as `batch/NAME`."""

    def __init__(self, log_freq: Any = "epoch", initial_global_step: int = 0, **kw: Any) -> None:
        super().__init__()
        self._every = 1 if log_freq == "batch" else 0 if log_freq == "epoch" else int(log_freq)
        self._batch = initial_global_step
        run = sys.modules["wandb"].run
        run.define_metric("epoch/*", step_metric="epoch/epoch")
        run.define_metric("batch/*", step_metric="batch/batch_step")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        _log({f"epoch/{k}": v for k, v in (logs or {}).items()}, **{"epoch/epoch": epoch})

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batch += 1
        if self._every and self._batch % self._every == 0:
            found = {f"batch/{k}": v for k, v in (logs or {}).items()}
            _log(found, **{"batch/batch_step": self._batch})


class WandbModelCheckpoint(_base().ModelCheckpoint):  # type: ignore[misc]
    """Keras's own class. The files stay in the script's folder."""


class WandbEvalCallback(_base().Callback):  # type: ignore[misc]
    """The base of callbacks that log tables of predictions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


class WandbCallback(_base().Callback):  # type: ignore[misc]
    """Log each epoch's metrics and `best_<monitor>`, and save the best model."""

    def __init__(
        self, monitor: str = "val_loss", mode: str = "auto", save_model: bool = True, **kw: Any
    ) -> None:
        super().__init__()
        self._monitor, self._saves = monitor, save_model
        is_max = mode == "max" or (mode == "auto" and "acc" in monitor)
        self._is_better = operator.gt if is_max else operator.lt
        self._best: float | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        _log(logs, epoch=epoch)
        value = (logs or {}).get(self._monitor)
        if value is None or (self._best is not None and not self._is_better(value, self._best)):
            return
        self._best, run = value, sys.modules["wandb"].run
        run.summary.update({f"best_{self._monitor}": value, "best_epoch": epoch})
        if self._saves:
            self.model.save(os.path.join(run.dir, "model-best.keras"))
