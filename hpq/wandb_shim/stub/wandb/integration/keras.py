"""`wandb.keras`: callbacks for Keras 3 and for TensorFlow's Keras."""

from __future__ import annotations

import importlib
import operator
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import log_model_file, running_wandb


def _base() -> Any:
    try:
        return importlib.import_module("keras").callbacks
    except ImportError:
        return importlib.import_module("tensorflow").keras.callbacks


def _log(values: Any, **more: Any) -> None:
    sys.modules["wandb"].log({**(values or {}), **more})


class WandbMetricsLogger(_base().Callback):  # type: ignore[misc]
    """Log each epoch's metrics as `epoch/NAME`, or every `log_freq` batches' as `batch/NAME`, too.

    Each row has the learning rate.
    """

    def __init__(self, log_freq: Any = "epoch", initial_global_step: int = 0, **kw: Any) -> None:
        """Create a callback.

        Raises:
            Error: no run is active.
        """
        super().__init__()
        run = running_wandb("WandbMetricsLogger").run
        self._every = 1 if log_freq == "batch" else 0 if log_freq == "epoch" else int(log_freq)
        self._batch, self._step = 0, initial_global_step
        kind, counter = ("batch", "batch_step") if self._every else ("epoch", "epoch")
        run.define_metric(f"{kind}/*", step_metric=f"{kind}/{counter}")

    def _log(self, kind: str, logs: Any, counter: str, count: int) -> None:
        found = {f"{kind}/{name}": value for name, value in (logs or {}).items()}
        found[f"{kind}/{counter}"] = count
        rate = self.model.optimizer.learning_rate
        with suppress(Exception):  # of another kind, of any library
            rate = rate(self._step) if callable(rate) else rate
            found[f"{kind}/learning_rate"] = float(rate)
        sys.modules["wandb"].log(found)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log one row."""
        self._log("epoch", logs, "epoch", epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Log one row every `log_freq` batches."""
        self._step += 1
        if self._every and batch % self._every == 0:
            self._log("batch", logs, "batch_step", self._batch)
            self._batch += self._every


class WandbModelCheckpoint(_base().ModelCheckpoint):  # type: ignore[misc]
    """Keras's own class; each file that it saves is logged as an artifact, too."""

    _logged: tuple[Path, float] | None = None  # the last file, and when it was written

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Log the file if one was saved."""
        super().on_train_batch_end(batch, logs)
        if self.save_freq != "epoch":
            epoch = self._epoch
            self._log(
                {"epoch": epoch + 1, "batch": batch + 1}, logs, f"epoch_{epoch}_batch_{batch}"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch, which names the files of its batches."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log the file if one was saved."""
        super().on_epoch_end(epoch, logs)
        if self.save_freq == "epoch":
            self._log({"epoch": epoch + 1}, logs, f"epoch_{epoch}")

    def _log(self, at: dict[str, int], logs: Any, alias: str) -> None:
        path = Path(self.filepath.format(**at, **(logs or {})))
        if path.exists() and self._logged != (path, path.stat().st_mtime):
            self._logged = (path, path.stat().st_mtime)
            run = running_wandb("WandbModelCheckpoint").run
            log_model_file(f"run_{run.id}_model", path, ["latest", alias])


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
