"""The functions of the module: a run is begun, ended, and asked for by an agent."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import _tensorboard
from ._installed import tell_of_real
from ._lazy import PreInit
from ._run import Run, start
from ._say import missing, say
from ._transport import reports_alone, tell_exit_code
from .errors import UsageError

_METHODS = (
    "log define_metric watch unwatch save alert log_artifact use_artifact log_model use_model"
    " link_model mark_preempting"
).split()


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: Any = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Any = None,
    config: Any = None,
    config_exclude_keys: Any = None,
    config_include_keys: Any = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: Any = None,
    resume: Any = None,
    resume_from: str | None = None,
    fork_from: str | None = None,
    save_code: bool | None = None,
    tensorboard: bool | None = None,
    sync_tensorboard: bool | None = None,
    monitor_gym: bool | None = None,
    settings: Any = None,
    **older: Any,
) -> Run:
    """The trial as a run. A second call in the same trial answers the same run."""
    about = {key: value for key, value in locals().items() if key not in ("older", "config")}
    module = _module()
    if module.run is not None and reinit in (True, "finish_previous", "create_new"):
        finish()
    if module.run is not None:
        module.run.config.update(config or {}, allow_val_change=True)
        return module.run  # type: ignore[no-any-return]
    if "HPQ_TRIAL_ID" in os.environ:
        tell_of_real()
    run = start(_sweep_set(), config, about.pop("allow_val_change"), about)
    older_run = module.__dict__.get("_last_run")
    if older_run is not None and not run.disabled:
        # W&B would begin another run; of a trial there is one.
        say("another run begins in the same trial; its steps go on after those of the first")
        run._rows = older_run._rows
    elif not run.disabled:
        atexit.register(_at_exit, os.getpid())
        module._last_run = run
        reports_alone()
    module.run = run
    module.config, module.summary = run.config, run.summary
    for method in _METHODS:
        setattr(module, method, getattr(run, method))
    if tensorboard or sync_tensorboard:
        _tensorboard.follow(run)
    return run


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run; with an exit code, the trial ends with it, too."""
    module = _module()
    run = module.run
    if run is None:
        return
    run.finish(exit_code)
    module.run = None
    for method in _METHODS:
        setattr(module, method, PreInit(method))


def _at_exit(pid: int) -> None:
    """What is still held goes out. A child that was forked has nothing of its own to end."""
    if os.getpid() == pid:
        finish()


def agent(
    sweep_id: str,
    function: Callable[[], Any] | None = None,
    entity: str | None = None,
    project: str | None = None,
    count: int | None = None,
    forward_signals: bool = False,
    term_timeout: int | None = None,
    max_consecutive_failed_runs: int | None = None,
) -> None:
    """Call the function once, with this trial's set: hpq's workers are the agents."""
    if function is None:
        raise UsageError("wandb.agent without a function: `hpq worker` starts programs, not this")
    if count not in (None, 1):
        say(f"wandb.agent: the function runs once a trial; count={count} is not used: see --count")
    try:
        function()
    finally:
        finish()


def sweep(
    sweep: Any, entity: str | None = None, project: str | None = None, prior_runs: Any = None
) -> str:
    """The id of hpq's sweep, whose file decides; the configuration given is not used."""
    say("wandb.sweep: hpq's sweep file decides what is searched; the script's own is not used")
    return os.environ.get("HPQ_SWEEP_ID", "sweep")


def _sweep_set() -> dict[str, Any]:
    path = os.environ.get("HPQ_PARAMS")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))


def login(*args: Any, **kwargs: Any) -> bool:
    """Nobody needs to."""
    return True


def setup(*args: Any, **kwargs: Any) -> Any:
    """Nothing to set up."""
    return _module()


def teardown(exit_code: int | None = None) -> None:
    """End the run, or say after its end how it went."""
    if _module().run is None and exit_code and "_last_run" in _module().__dict__:
        tell_exit_code(exit_code)
    finish(exit_code)


def require(*args: Any, **kwargs: Any) -> None:
    """Taken, and without effect."""


def restore(name: str, *args: Any, **kwargs: Any) -> Any:
    """A file that this trial has kept, opened."""
    if _module().run is None:
        raise UsageError("You must call `wandb.init` before calling `wandb.restore`")
    return _module().run.restore(name)


def controller(*args: Any, **kwargs: Any) -> NoReturn:
    """There is none."""
    raise UsageError(missing("wandb.controller"))


class Api:
    """W&B's server; there is none, so every question to it fails, and says what to ask instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.default_entity = "hpq"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"Api().{name}: no W&B server; see `hpq results --json`"))


def termlog(string: str = "", newline: bool = True, repeat: bool = True, **kwargs: Any) -> None:
    """A line in the trial's log."""
    print(f"wandb: {string}", file=sys.stderr, end="\n" if newline else "")


termwarn = termerror = termlog


def _module() -> Any:
    return sys.modules[__name__.rpartition(".")[0]]
