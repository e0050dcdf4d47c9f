"""Names of W&B's variables; setting them changes nothing here."""

from __future__ import annotations

import os

PROJECT, ENTITY = "WANDB_PROJECT", "WANDB_ENTITY"
RUN_ID, SWEEP_ID = "WANDB_RUN_ID", "WANDB_SWEEP_ID"
MODE, DIR, API_KEY = "WANDB_MODE", "WANDB_DIR", "WANDB_API_KEY"


def set_entity(value: str, env: object = None) -> None:
    os.environ[ENTITY] = value


def set_project(value: str, env: object = None) -> None:
    os.environ[PROJECT] = value
