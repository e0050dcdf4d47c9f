"""`from wandb.sdk.wandb_run import Run`."""

from .._run import Run

__all__ = ["Run"]
