"""Names of `wandb.sdk`, `wandb.sdk.lib`, `wandb.util` and `wandb.env` that scripts import."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .. import _config as wandb_config
from .. import _files as artifacts
from .. import _run as wandb_run
from .. import _summary as wandb_summary
from .. import errors as config_util
from .._config import generate_id, plain, to_dict
from .._transport import log_once, missing
from ..errors import UsageError

lib = sys.modules[__name__]
generate_fast_id = generate_id

# Of wandb.env. Setting these variables has no effect.
PROJECT, ENTITY = "WANDB_PROJECT", "WANDB_ENTITY"
RUN_ID, SWEEP_ID = "WANDB_RUN_ID", "WANDB_SWEEP_ID"
MODE = "WANDB_MODE"
DIR = "WANDB_DIR"
API_KEY = "WANDB_API_KEY"


def set_entity(value: str, env: object = None) -> None:
    os.environ[ENTITY] = value


def set_project(value: str, env: object = None) -> None:
    os.environ[PROJECT] = value


def json_friendly(value: Any) -> tuple[Any, bool]:
    """Return a value that JSON can hold, and whether it differs from the given one."""
    found = plain(value)
    return found, found is not value


def json_friendly_val(value: Any) -> Any:
    return plain(value)


def parse_config(params: Any, exclude: Any = None, include: Any = None) -> dict[str, Any]:
    """Return a config as a dict, without the names of `exclude`, or only those of `include`.

    Raises:
        UsageError: both are given.
    """
    if exclude and include:
        raise UsageError("Expected at most only one of exclude or include")
    found = to_dict(params)
    return {
        k: v for k, v in found.items() if k not in (exclude or ()) and (not include or k in include)
    }


class RunDisabled:
    """The class of W&B's former result of `init` in disabled mode. Each attribute is None."""

    def __getattr__(self, name: str) -> Any:
        log_once("RunDisabled: does nothing; wandb.init(mode='disabled') returns a Run")


class SummaryDisabled(dict[str, Any]):
    """The class of its summary."""

    __setattr__ = dict.__setitem__
    __getattr__ = dict.__getitem__


def __getattr__(name: str) -> Any:
    if name in ("Api", "PublicApi", "public"):  # of wandb.apis
        public = importlib.import_module("wandb.apis.public")
        return public if name == "public" else public.Api
    raise AttributeError(missing(f"wandb.sdk, wandb.util or wandb.env: {name}"))
