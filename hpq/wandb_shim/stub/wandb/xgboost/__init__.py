"""The older place of wandb.integration.xgboost."""

from ..integration.xgboost import *  # noqa: F403
