"""`WandbLogger` for Lightning Fabric: Lightning's own, which Fabric takes, too."""

from __future__ import annotations

from lightning.pytorch.loggers import WandbLogger

__all__ = ["WandbLogger"]
