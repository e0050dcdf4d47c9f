"""Names that libraries look for under `wandb.sdk`."""

from .. import _artifact as artifacts
from .. import _config as wandb_config
from .. import _run as wandb_run
from .. import _summary as wandb_summary
from . import lib

__all__ = ["artifacts", "lib", "wandb_config", "wandb_run", "wandb_summary"]
