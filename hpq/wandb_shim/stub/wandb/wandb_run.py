"""`from wandb.wandb_run import Run`."""

from ._run import Run

__all__ = ["Run"]
