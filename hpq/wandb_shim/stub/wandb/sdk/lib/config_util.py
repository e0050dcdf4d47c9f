"""`from wandb.sdk.lib.config_util import ConfigError`."""

from ...errors import ConfigError

__all__ = ["ConfigError"]
