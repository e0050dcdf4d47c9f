"""Names that libraries look for under `wandb.sdk.lib`."""

from . import config_util


class RunDisabled:
    """What W&B once answered in disabled mode."""


__all__ = ["RunDisabled", "config_util"]
