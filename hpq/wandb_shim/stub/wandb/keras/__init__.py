"""The older place of wandb.integration.keras."""

from ..integration.keras import *  # noqa: F403
