"""`from hpq import wandb`: hpq's stand-in as `wandb`, also for libraries that import it later."""

import importlib
import sys
from pathlib import Path

_STAND_IN = str(Path(__file__).parent / "wandb_shim" / "stub")
if not (getattr(sys.modules.get("wandb"), "__file__", None) or _STAND_IN).startswith(_STAND_IN):
    raise ImportError("another wandb is imported already; import hpq's first, in a new process")
sys.path.insert(0, _STAND_IN)
sys.modules[__name__] = importlib.import_module("wandb")
