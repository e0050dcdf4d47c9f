"""`wandb.Run`: one trial of hpq under W&B's names."""

from __future__ import annotations

import glob as globbing
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from . import _files
from ._artifacts import find
from ._config import AlertLevel, Config, Settings, generate_id, plain, to_dict
from ._files import Artifact
from ._history import PLAIN, Defined, Rows, drop, drop_others, number_of, split
from ._media import KeptMedia
from ._summary import Summary
from ._transport import (
    checks,
    describe_run,
    log_once,
    metric_name,
    missing,
    send,
    set_trial_exit_code,
)
from .errors import Error, UsageError, check_word

_PROJECT = "hpq"  # of a script that names none
_MOST_ALERTS = 10  # the last ones, which a trial keeps


class Run:
    """The result of `wandb.init`. For a name that the shim lacks it raises an AttributeError."""

    def __init__(self, config: Config, settings: Settings, *, why_disabled: str = "") -> None:
        trial = os.environ.get("HPQ_TRIAL_ID", "trial/0")
        self.id = os.environ.get("WANDB_RUN_ID") or settings.run_id or generate_id()
        self.settings = settings
        settings.update(run_id=self.id)
        self.name = settings.run_name or self.id
        self.project = settings.project or _PROJECT
        self.entity = settings.entity or "hpq"
        self.notes, self.tags = settings.run_notes, tuple(settings.run_tags or ())
        self.group = settings.run_group or ""
        self.job_type = settings.run_job_type or ""
        self.sweep_id = os.environ.get("WANDB_SWEEP_ID")
        self.start_time = time.time()
        self.disabled, self.offline = bool(why_disabled), False
        self.resumed, self.starting_step = False, 0
        self.url = self.sweep_url = self.project_url = f"hpq://{trial}"
        self.path = f"{self.entity}/{self.project}/{self.id}"
        self.config = config
        self.exit_code = 0
        self.summary = Summary(self._set)
        self._rows = Rows(partial(_drop, why_disabled) if why_disabled else send)
        self._media = KeptMedia()
        self._saved: list[tuple[str, str]] = []  # files to be copied again at the end
        self._texts: dict[str, str] = {}  # of the summary
        self._alerts: list[str] = []
        self._described: dict[str, Any] = {}
        self._seen: tuple[Any, ...] = ()  # what `_described` was made of
        self._is_over = False
        self._at_end: Callable[[], None] | None = None

    def follow(self, older: Run) -> None:
        """Report after an ended run of the same trial, or in turn with one that is active."""
        self._rows = Rows(send, older._rows) if older._is_over else older._rows
        self._media = older._media
        self._alerts = older._alerts

    def _describe(self) -> None:
        """Send what the script has set beside numbers, if that has changed."""
        own = (self.name, self.group, self.job_type, self.project, self.notes, self.tags)
        groups = sorted(map(metric_name, self.summary._groups))
        others = (self._rows.axes, self._texts, self._alerts, self.config._items)
        seen = (*map(plain, own), groups, *others)
        if seen == self._seen:  # as in most calls
            return
        self._seen = deepcopy(seen)
        info = {
            "name": self.name if self.name != self.id else "",
            "group": self.group,
            "job_type": self.job_type,
            "project": self.project if self.project != _PROJECT else "",
            "notes": self.notes,
            "tags": list(self.tags or ()),
            "axes": self._rows.axes,
            "groups": groups,
            "alerts": self._alerts[-_MOST_ALERTS:],
            "summary": self._texts,
            "config": self.config._own(),
        }
        info = {key: plain(value) for key, value in info.items() if value}
        if info != self._described and not self.disabled:
            self._described = info
            describe_run(info)

    # --- metrics ------------------------------------------------------------------------------

    def log(
        self,
        data: Mapping[str, Any],
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
    ) -> None:
        """Report the numbers of `data`, and keep other values if a file can hold them."""
        if self._is_over:
            raise UsageError(f"Run ({self.id}) is finished. The call to `log` will be ignored.")
        if not isinstance(data, Mapping):
            raise TypeError("wandb.log must be passed a dictionary")
        for check in checks:
            check()
        if not all(issubclass(kind, str) for kind in {*map(type, data)}):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        numbers, rest = split(data)
        at = self._rows.step if step is None else int(step)
        if not self._rows.log(numbers, None if step is None else int(step), commit):
            return
        summary, kinds = self.summary, {*map(type, data.values())}
        given = data if kinds <= PLAIN else summary._unboxed(data, rest)
        self._rows.add_to_summary(summary._items, given)
        summary._items["_step"] = at
        summary._items["_runtime"] = time.time() - self.start_time
        summary._groups.update(self._rows.groups)
        if rest:
            self._note_texts(rest)
            drop_others(rest)
        if type(None) in kinds:
            drop_others({name: value for name, value in data.items() if value is None})
        self._describe()
        if not self.disabled:
            for key, value in rest.items():
                summary._items[key] = self._media.keep(key, value, at)

    def log_at(self, tag: str, value: Any, step: Any) -> None:
        """Report one value at its own step, as TensorBoard does."""
        numbers, _ = split({tag: value})
        self.summary._items.update(numbers)
        self._rows.put(numbers, self._rows.last_step if step is None else int(step))

    def define_metric(
        self,
        name: str,
        step_metric: Any = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        goal: str | None = None,
        overwrite: bool | None = None,
    ) -> Any:
        """Set the axis of all metrics, or report its minimum as `name.min`, and so on.

        Raises:
            Error: W&B has no such summary, or the name is empty or has a * before its end.
        """
        if not name or "*" in name[:-1]:
            raise Error(f"define_metric: {name!r} is no name, which may end with *")
        axis = getattr(step_metric, "name", step_metric)
        self._rows.define(name, axis, Defined.of(summary, goal))
        return _Metric(name)

    def _set(self, values: Mapping[str, Any]) -> None:
        """Report values that the script sets in the summary and never logs."""
        numbers, rest = split(values)
        self._note_texts(rest)
        drop_others(rest)
        if not self._is_over:
            self._rows.set(numbers)

    def _note_texts(self, values: Mapping[str, Any]) -> None:
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        self.summary._items.update(texts)
        self._texts.update(texts)

    @property
    def step(self) -> int:
        """The step of the row that is not sent yet."""
        return self._rows.step

    # --- the end ------------------------------------------------------------------------------

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run. A value set in the summary is the metric's last value, as in W&B."""
        if self._is_over:
            return
        found = {name: number_of(value) for name, value in self.summary._items.items()}
        self._rows.end({name: value for name, value in found.items() if value is not None})
        for source, name in self._saved:
            if os.path.exists(source):
                _files.keep(source, name)
        self._describe()
        self._is_over, self.exit_code = True, exit_code or 0
        if not self.disabled:  # of several runs the last one sets the trial's exit code
            set_trial_exit_code(self.exit_code)
        if self._at_end is not None:
            self._at_end()

    join = finish

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # An exception that the script does not handle sets the process's exit code.
        self.finish()

    # --- files --------------------------------------------------------------------------------

    @property
    def dir(self) -> str:
        """The folder whose files become artifacts: HPQ_OUT."""
        return str(_files.out())

    @property
    def sync_dir(self) -> str:
        return self.dir

    def save(
        self,
        glob_str: Any = None,
        base_path: Any = None,
        policy: str = "live",
        glob: Any = None,
    ) -> list[str] | bool:
        """Copy files now and, unless `policy` is "now", again when the run ends.

        Raises:
            ValueError: W&B has no such `policy`, or `base_path` is not above the files.
        """
        check_word("policy", policy, ("live", "end", "now"))
        wanted = glob_str if glob is None else glob
        if wanted is None:
            return True
        pattern, base = os.fspath(wanted), base_path and os.fspath(base_path)
        found = sorted(globbing.glob(pattern)) if not os.path.exists(pattern) else [pattern]
        kept = []
        for path in found:
            inside = os.path.relpath(path, base) if base else _relative(path)
            if inside.startswith(".."):
                raise ValueError(f"save: {path} is not below the base path {base}")
            target = _files.keep(path, inside)
            if target is not None:
                kept.append(str(target))
            if policy != "now":
                self._saved.append((os.path.abspath(path), inside))
        return kept

    def log_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,
        aliases: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        distributed_id: str | None = None,
    ) -> Artifact:
        """Copy an artifact's files to HPQ_OUT."""
        artifact = artifact_or_path
        if isinstance(artifact, (str, os.PathLike)):
            path = os.fspath(artifact)
            usual = re.sub(
                r"[^\w.-]", "", f"run-{self.id}-{os.path.basename(path)}", flags=re.ASCII
            )
            artifact = Artifact((name or usual).partition(":")[0], type or "")
            (artifact.add_dir if os.path.isdir(path) else artifact.add_file)(path)
        artifact.aliases = list(aliases or ["latest"])
        artifact._log()
        return artifact  # type: ignore[no-any-return]

    upsert_artifact = finish_artifact = log_artifact

    def log_model(
        self, path: Any, name: str | None = None, aliases: Sequence[str] | None = None
    ) -> Artifact:
        return self.log_artifact(path, name=name or f"run-{self.id}-model", aliases=aliases)

    def use_artifact(self, artifact_or_name: Any, *args: Any, **kwargs: Any) -> Artifact:
        """Return an artifact that this process, or a trial of a sweep, logged.

        Raises:
            CommError: hpq has no such artifact.
        """
        is_one = isinstance(artifact_or_name, Artifact)
        return artifact_or_name if is_one else find(str(artifact_or_name))

    def use_model(self, name: str) -> str:
        """Return the path of a logged model: its file, or the folder of its files."""
        artifact = find(name)
        return artifact.file() if len(artifact.files()) == 1 else artifact.download()

    def restore(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Open a file that this trial has kept."""
        path = _files.place(name)
        if not path.exists():
            raise ValueError(f"{name}: this trial has saved no such file; hpq has no W&B server")
        return path.open()

    # --- accepted, without effect -------------------------------------------------------------

    def watch(
        self,
        models: Any = None,
        criterion: Any = None,
        log: Any = "gradients",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        check_word("log", log, ("gradients", "parameters", "all", None))
        log_once("watch: ignored; hpq keeps no gradients and graphs")

    def unwatch(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `watch` watches nothing."""

    def alert(
        self, title: str = "", text: str = "", level: Any = None, wait_duration: Any = None
    ) -> None:
        found = getattr(level, "value", level) or "INFO"
        check_word("level", found, [one.value for one in AlertLevel])
        log_once(f"alert: {title}: {text}")
        self._alerts.append(f"{found} {title}: {text}")
        self._describe()

    def log_code(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: hpq keeps the code with the sweep (`hpq show --code`)."""

    def mark_preempting(self) -> None:
        """Do nothing: hpq requeues the trial of a stopped worker."""

    def link_artifact(self, *args: Any, **kwargs: Any) -> None:
        log_once("link_artifact: ignored; hpq has no registry")

    link_model = link_artifact

    def get_url(self) -> str:
        return self.url

    get_sweep_url = get_project_url = get_url

    def project_name(self) -> str:
        return str(self.project)

    def status(self) -> None:
        return None

    def _label(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: W&B counts features with it."""

    def display(self, *args: Any, **kwargs: Any) -> bool:
        return False

    def to_html(self, *args: Any, **kwargs: Any) -> str:
        return f"<p>{self.url}</p>"

    def __deepcopy__(self, memo: Any) -> Run:
        return self

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"run.{name}"))


def _drop(why: str, values: Mapping[str, float], step: int) -> None:
    drop(values, why, of_process=True)


class _Metric:
    def __init__(self, name: str) -> None:
        self.name = name


def _relative(path: str) -> str:
    inside = os.path.relpath(path)
    return os.path.basename(path) if inside.startswith("..") else inside


def _module() -> Any:
    """Return the `wandb` module."""
    return sys.modules[__name__.rpartition(".")[0]]


def start(sweep: Mapping[str, Any], given: Any, settings: Settings, about: Any) -> Run:
    """Create a run whose config is the script's, overridden by the sweep's parameters."""
    why_disabled = "the run's mode is disabled" if settings.mode == "disabled" else ""
    if "HPQ_TRIAL_ID" in os.environ and "WANDB_RUN_ID" not in os.environ:
        # a fold of a cross-validation, as W&B's own example runs them
        why_disabled = "this process lacks WANDB_RUN_ID, so its run is not the trial's"
    if why_disabled:
        log_once(f"nothing is reported to hpq: {why_disabled}")
    config = Config(sweep)
    exclude = about.get("config_exclude_keys") or ()
    include = about.get("config_include_keys")
    if exclude and include:
        raise UsageError("Expected at most only one of exclude or include")
    allow_val_change = about.get("allow_val_change")
    for key, value in to_dict(given).items():
        # The sweep's parameters override the script's defaults; W&B does not log that.
        is_free = str(key).strip("-") not in sweep
        if is_free and key not in exclude and (not include or key in include):
            config._put(key, value, allow_val_change is not False)
    run = Run(config, settings, why_disabled=why_disabled)
    run._describe()
    return run
