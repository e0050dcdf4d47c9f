"""The functions of `wandb`: `init`, `finish`, `agent`, `sweep`, `Api` and others."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any, NoReturn

from ._agent import create, run_program, run_trials
from ._config import Settings
from ._run import Run, _module, start
from ._transport import (
    begin_again,
    follow_tensorboard,
    ignore_printed,
    join_trial,
    log_once,
    missing,
    set_trial_exit_code,
)
from .errors import Error, UsageError, check_word

METHODS = (
    "log define_metric watch unwatch save alert log_artifact use_artifact log_model use_model"
    " link_model mark_preempting"
).split()
_REINIT = (None, True, False, "default", "return_previous", "finish_previous", "create_new")
_RESUME = (None, True, False, "allow", "must", "never", "auto")


class PreInit:
    """A name of `wandb` that fails until `init` replaces it."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _fail(self, more: str = "") -> NoReturn:
        raise Error(f"You must call wandb.init() before wandb.{self._name}{more}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._fail("()")

    def __getattr__(self, key: str) -> NoReturn:
        if key.startswith("__"):
            raise AttributeError(key)
        self._fail(f".{key}")

    def __getitem__(self, key: str) -> NoReturn:
        self._fail(f"[{key!r}]")

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        self._fail(f"[{key!r}]")

    def __setattr__(self, key: str, value: Any) -> NoReturn:
        self._fail(f".{key}")


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
    """Return the trial as a run. A second call returns the first run, with the first config.

    Raises:
        ValidationError: W&B has no such `mode`, `reinit` or `resume`, or a name is no text.
        UsageError: W&B allows no such project or run id.
    """
    about = {key: value for key, value in locals().items() if key not in ("older", "config")}
    check_word("reinit", reinit, _REINIT)
    check_word("resume", resume, _RESUME)
    join_trial()
    settings = Settings.of(about)
    module = _module()
    if reinit in (True, "finish_previous"):
        finish()
    if module.run is not None and reinit != "create_new":
        return module.run  # type: ignore[no-any-return]
    if "HPQ_TRIAL_ID" in os.environ:
        log_real_package()
    run = start(_sweep_parameters(), config, settings, about)
    if not run.disabled:
        _begin(run)
    if tensorboard or sync_tensorboard or module.patched["tensorboard"]:
        follow_tensorboard(run)
    if reinit == "create_new":  # beside `wandb.run` and `wandb.log`, as in W&B
        atexit.register(_at_exit, os.getpid(), run)
        return run
    module.run = run
    run._at_end = _forget
    module.config, module.summary = run.config, run.summary
    for method in METHODS:
        setattr(module, method, getattr(run, method))
    return run


def _begin(run: Run) -> None:
    """Let a run report for the trial: as its first one, or after an earlier one."""
    module = _module()
    older_run = module.__dict__.get("_last_run")
    if older_run is None:
        atexit.register(_at_exit, os.getpid())
        ignore_printed()
    else:  # W&B would begin another run; a trial is one run
        log_once("a second run in the same trial: its steps follow those of the first")
        run.follow(older_run)
    module._last_run = run


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run. An exit code becomes the trial's."""
    if (run := _module().run) is not None:
        run.finish(exit_code)


def _forget() -> None:
    """Remove the run that ended from the module."""
    module = _module()
    module.run = None
    module.config, module.summary = PreInit("config"), PreInit("summary")
    for method in METHODS:
        setattr(module, method, PreInit(method))


def end_earlier_run() -> bool:
    """End the run before wandb.agent, which is no trial; return whether there was one."""
    finish()
    return _module().__dict__.pop("_last_run", None) is not None


def _at_exit(pid: int, run: Run | None = None) -> None:
    """Send the rows that are not sent yet, but not from a forked child."""
    if os.getpid() == pid:
        run.finish() if run else finish()


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
    """Call the function for trials of a sweep; inside a trial, once with its parameters.

    Without a function, a worker runs the sweep's program.

    Raises:
        UsageError: the sweep cannot run here, is held, or a trial exceeded its time limit.
    """
    sid = sweep_id.rpartition("/")[2]
    if not callable(function) and function is not None:
        raise TypeError("wandb.agent: the function is not callable")
    if project:
        os.environ["WANDB_PROJECT"] = project
    if function is None:
        end_earlier_run()
        return run_program(sid, int(count or 0))
    if "HPQ_TRIAL_ID" not in os.environ:
        end_earlier_run()
        return run_trials(sid, function, finish, int(count or 0), max_consecutive_failed_runs)
    if count not in (None, 1):
        log_once(
            f"wandb.agent: count={count} is ignored: the function runs once a trial; see `run_cap`"
        )
    if end_earlier_run():
        begin_again()
    try:
        function()
    finally:
        finish()


def sweep(
    sweep: Any, entity: str | None = None, project: str | None = None, prior_runs: Any = None
) -> str:
    """Queue a sweep and return its id; inside a trial, return the id of the trial's sweep.

    Raises:
        TypeError: JSON cannot hold a value.
        UsageError: hpq rejects the configuration.
    """
    if "HPQ_TRIAL_ID" not in os.environ:
        if prior_runs:
            raise UsageError("wandb.sweep has no prior_runs; run `hpq enqueue FILE --reuse`")
        return create(sweep, project)
    log_once("wandb.sweep: ignored; hpq searches what its sweep file names")
    return os.environ.get("HPQ_SWEEP_ID", "sweep")


def _sweep_parameters() -> dict[str, Any]:
    path = os.environ.get("HPQ_PARAMS")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))


def login(*args: Any, **kwargs: Any) -> bool:
    """Return True: hpq has no accounts."""
    return True


class AccountApi:
    """`wandb.api`, which is about an account of W&B."""

    @property
    def api_key(self) -> str:
        """WANDB_API_KEY, or a text that is no key, so that scripts that look for one go on."""
        log_once("wandb.api.api_key: hpq has no accounts and needs no key")
        return os.environ.get("WANDB_API_KEY") or "none"

    @property
    def default_entity(self) -> str:
        """The entity of each run."""
        return "hpq"

    def viewer(self) -> dict[str, Any]:
        """Return an account that has only the entity's name."""
        log_once("wandb.api.viewer: hpq has no accounts")
        return {"entity": self.default_entity}

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(missing(f"wandb.api.{name}"))


def ensure_configured() -> None:
    """Do nothing: hpq has no accounts."""
    log_once("wandb.ensure_configured: hpq has no accounts")


def setup(*args: Any, **kwargs: Any) -> Any:
    """Return the module: there is nothing to set up."""
    return _module()


def teardown(exit_code: int | None = None) -> None:
    """End the run, or set the trial's exit code after its end."""
    if _module().run is None and exit_code and "_last_run" in _module().__dict__:
        set_trial_exit_code(exit_code)
    finish(exit_code)


def require(*args: Any, **kwargs: Any) -> None:
    """Accept all arguments, without effect."""


def restore(name: str, *args: Any, **kwargs: Any) -> Any:
    """Open a file that this trial has kept.

    Raises:
        UsageError: no run is active.
    """
    if _module().run is None:
        raise UsageError("You must call `wandb.init` before calling `wandb.restore`")
    return _module().run.restore(name)


def controller(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UsageError: hpq has no controller."""
    raise UsageError(missing("wandb.controller"))


def termlog(string: str = "", newline: bool = True, repeat: bool = True, **kwargs: Any) -> None:
    """Print a line to the trial's log."""
    print(f"wandb: {string}", file=sys.stderr, end="\n" if newline else "")


termwarn = termerror = termlog


def termsetup(*args: Any, **kwargs: Any) -> None:
    """Do nothing: lines have one style."""


def log_real_package() -> None:
    """Log a line if this interpreter has the real wandb, too."""
    ours = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
    others = [path for path in sys.path if os.path.realpath(path or ".") != ours]
    found = PathFinder.find_spec("wandb", others)
    if found is not None and found.origin is not None:  # without an origin: W&B's folder of runs
        log_once(
            "the real wandb is installed, but receives nothing: write `wandb: tee` into the sweep"
            " file to report to both, or `wandb: real` to report only there"
        )
