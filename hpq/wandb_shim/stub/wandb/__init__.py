"""hpq's stand-in for wandb: scripts written for W&B's sweeps run unchanged as trials of hpq.

Standard library and `hpq.report` only, for any Python since 3.9. What is logged goes to hpq, what
is saved becomes an artifact of the trial; nothing leaves the machine. In the sweep file, `wandb:
real` uses the package that is installed, `wandb: tee` feeds both.
"""

from __future__ import annotations

from . import env, errors, plot, util
from ._api import (
    Api,
    agent,
    controller,
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
from ._artifact import Artifact
from ._config import Config
from ._lazy import PreInit, integration
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
from ._run import Run
from ._settings import AlertLevel, Settings
from .errors import CommError, Error, UsageError

__version__ = "0.31.0+hpq"

run: Run | None = None
config = PreInit("config")
summary = PreInit("summary")
join = finish
patched: dict[str, list[object]] = {"tensorboard": [], "keras": [], "gym": []}

# What is a method of the run is a function here, too, once there is a run.
log = PreInit("log")
define_metric = PreInit("define_metric")
watch = PreInit("watch")
unwatch = PreInit("unwatch")
save = PreInit("save")
alert = PreInit("alert")
log_artifact = PreInit("log_artifact")
use_artifact = PreInit("use_artifact")
log_model = PreInit("log_model")
use_model = PreInit("use_model")
link_model = PreInit("link_model")
mark_preempting = PreInit("mark_preempting")

from . import sdk, wandb_run  # noqa: E402 - they name what is above

wandb_sdk, plot_table, visualize = sdk, plot.plot_table, plot.visualize


def __getattr__(name: str) -> object:
    return integration(name)


__all__ = [
    "AlertLevel",
    "Api",
    "Artifact",
    "Audio",
    "Classes",
    "CommError",
    "Config",
    "Error",
    "Graph",
    "Histogram",
    "Html",
    "Image",
    "Molecule",
    "Object3D",
    "Plotly",
    "Run",
    "Settings",
    "Table",
    "UsageError",
    "Video",
    "agent",
    "controller",
    "env",
    "errors",
    "finish",
    "init",
    "login",
    "plot",
    "require",
    "restore",
    "sdk",
    "setup",
    "sweep",
    "teardown",
    "termerror",
    "termlog",
    "termwarn",
    "util",
    "wandb_run",
]
