"""`wandb.tensorboard.patch`: what `sync_tensorboard=True` does, before or after `init`."""

from __future__ import annotations

import sys
from typing import Any

from .._transport import follow_tensorboard


def patch(*args: Any, **kwargs: Any) -> None:
    """Report the scalars of SummaryWriters in this run and the next ones."""
    wandb = sys.modules["wandb"]
    wandb.patched["tensorboard"].append("SummaryWriter")
    if wandb.run is not None:
        follow_tensorboard(wandb.run)


def unpatch() -> None:
    """Report none in the next runs."""
    sys.modules["wandb"].patched["tensorboard"].clear()
