"""The older place of wandb.integration.lightgbm."""

from ..integration.lightgbm import *  # noqa: F403
