"""hpq's wandb shim: scripts written for W&B's sweeps run unchanged as trials of hpq.

It needs the standard library and `hpq.reporting` only, and works in any Python since 3.9. Logged
numbers go to hpq, saved files become artifacts of the trial, and nothing leaves the machine. In the
sweep file, `wandb: real` selects the installed package and `wandb: tee` reports to both.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from . import errors, sdk
from ._api import (
    METHODS,
    AccountApi,
    PreInit,
    agent,
    controller,
    ensure_configured,
    finish,
    init,
    login,
    require,
    restore,
    setup,
    sweep,
    teardown,
    termerror,
    termlog,
    termwarn,
)
from ._charts import plot_table, visualize
from ._config import AlertLevel, Config, Settings
from ._files import Artifact
from ._media import (
    Audio,
    Classes,
    Graph,
    Histogram,
    Html,
    Image,
    Molecule,
    Object3D,
    Plotly,
    Table,
    Video,
)
from ._public_api import Api
from ._run import Run
from ._transport import missing
from .errors import CommError, Error, UsageError

__version__ = "0.31.0+hpq"

# W&B's modules without a file here: `import wandb.NAME` gives the module on the right, which has
# what scripts and libraries import from it. A class keeps one home, so pickles of it load anywhere.
_ALIASES = {
    "agents": "_api",
    "apis": "sdk",
    "apis.public": "_public_api",
    "catboost": "integration.catboost",
    "data_types": "_media",
    "env": "sdk",
    "errors.errors": "errors",
    "errors.term": "_api",
    "helper": "sdk",
    "keras": "integration.keras",
    "lightgbm": "integration.lightgbm",
    "plot": "_charts",
    "sb3": "integration.sb3",
    "sdk.artifacts": "_files",
    "sdk.data_types": "_media",
    "sdk.lib": "sdk",
    "sdk.lib.config_util": "errors",
    "sdk.lib.disabled": "sdk",
    "sdk.lib.runid": "sdk",
    "sdk.wandb_config": "_config",
    "sdk.wandb_helper": "sdk",
    "sdk.wandb_init": "_api",
    "sdk.wandb_login": "_api",
    "sdk.wandb_sweep": "_api",
    "sdk.wandb_run": "_run",
    "sdk.wandb_settings": "_config",
    "sdk.wandb_summary": "_summary",
    "sklearn": "integration.sklearn",
    "tensorboard": "integration.tensorboard",
    "util": "sdk",
    "wandb_agent": "_api",
    "wandb_run": "_run",
    "wandb_sdk": "sdk",
    "xgboost": "integration.xgboost",
}
# Modules whose submodules have the same home: `wandb.sdk.data_types.image` is `_media`.
_WITH_PARTS = ("agents", "apis.public", "sdk.data_types")


class _AliasImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import the modules that `_ALIASES` names; explain why another one is missing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inner = fullname.partition(".")
        if package != __name__ or not inner:
            return None
        if _home(inner):
            return ModuleSpec(fullname, self)
        raise ModuleNotFoundError(missing(fullname), name=fullname)

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what sys.modules holds after this call.
        name = module.__name__.partition(".")[2]
        home = importlib.import_module(f"{__name__}.{_home(name)}")
        if name in _WITH_PARTS:
            home.__path__ = []  # makes it a package
        sys.modules[module.__name__] = home


def _home(name: str) -> str:
    """Return the module that has the names of another one; "" if there is none."""
    whole = next((part for part in _WITH_PARTS if name.startswith(f"{part}.")), name)
    return _ALIASES.get(whole, "")


sys.meta_path.append(_AliasImporter())

run: Run | None = None
api = AccountApi()
config = PreInit("config")
summary = PreInit("summary")
join = finish
patched: dict[str, list[object]] = {"tensorboard": [], "keras": [], "gym": []}

# `init` replaces these functions by methods of the run.
globals().update({name: PreInit(name) for name in METHODS})


def __getattr__(name: str) -> object:
    if name in _ALIASES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(missing(f"wandb.{name}"))
