"""A run: one trial of hpq, seen through W&B's names."""

from __future__ import annotations

import glob as globbing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import _files
from ._accepted import Accepted
from ._artifact import Artifact
from ._config import Config, to_dict
from ._history import Defined, Rows
from ._media import keep_media
from ._say import missing, say
from ._summary import Summary
from ._transport import send, tell_exit_code
from ._values import generate_id, number_of, split
from .errors import UsageError


class Run(Accepted):
    """What `wandb.init` answers. Names that it lacks raise an AttributeError that says so."""

    def __init__(self, config: Config, *, is_disabled: bool = False, **about: Any) -> None:
        trial = os.environ.get("HPQ_TRIAL_ID", "trial/0")
        self.id = os.environ.get("WANDB_RUN_ID") or about.get("id") or generate_id()
        self.name = about.get("name") or self.id
        self.project = about.get("project") or os.environ.get("WANDB_PROJECT") or "hpq"
        self.entity = about.get("entity") or os.environ.get("WANDB_ENTITY") or "hpq"
        self.notes, self.tags = about.get("notes"), tuple(about.get("tags") or ())
        self.group = about.get("group") or os.environ.get("WANDB_RUN_GROUP") or ""
        self.job_type = about.get("job_type") or ""
        self.settings = about.get("settings")
        self.sweep_id = os.environ.get("WANDB_SWEEP_ID")
        self.start_time = time.time()
        self.disabled, self.offline, self.resumed, self.starting_step = is_disabled, False, False, 0
        self.url = self.sweep_url = self.project_url = f"hpq://{trial}"
        self.path = f"{self.entity}/{self.project}/{self.id}"
        self.config = config
        self.exit_code = 0
        self.summary = Summary(self._set)
        self._rows = Rows((lambda values, step: None) if is_disabled else send)
        self._saved: list[tuple[str, str]] = []  # files to be copied again at the end
        self._is_over = False

    # --- what is measured ---------------------------------------------------------------------

    def log(
        self,
        data: Mapping[str, Any],
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
    ) -> None:
        """Report the numbers of `data`; keep what else can be kept."""
        if self._is_over:
            raise UsageError(f"Run ({self.id}) is finished. The call to `log` will be ignored.")
        if not isinstance(data, Mapping):
            raise TypeError("wandb.log must be passed a dictionary")
        if any(not isinstance(key, str) for key in data):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        numbers, rest = split(data)
        if not self._rows.log(numbers, None if step is None else int(step), commit):
            return
        self.summary._note({**numbers, **{k: v for k, v in rest.items() if isinstance(v, str)}})
        if not self.disabled:
            for key, value in rest.items():
                keep_media(key, value)

    def log_at(self, tag: str, value: Any, step: Any) -> None:
        """One value at a step of its own, as TensorBoard has it."""
        numbers, _ = split({tag: value})
        self.summary._note(numbers)
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
        """Another axis for a metric, or its least or greatest value as `name.min`, `name.max`."""
        axis = getattr(step_metric, "name", step_metric)
        self._rows.define(name, Defined.of(axis, summary, goal))
        return _Metric(name)

    def _set(self, values: Mapping[str, Any]) -> None:
        """What the script sets in the summary and never logs is a metric, too."""
        if not self._is_over:
            self._rows.set(split(values)[0])

    @property
    def step(self) -> int:
        """The step of the row that is being filled."""
        return self._rows.step

    # --- the end ------------------------------------------------------------------------------

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run. A summary that the script has set is the value that counts, as in W&B."""
        if self._is_over:
            return
        found = {name: number_of(value) for name, value in self.summary.items()}
        self._rows.end({name: value for name, value in found.items() if value is not None})
        for source, name in self._saved:
            if os.path.exists(source):
                _files.keep(source, name)
        self._is_over, self.exit_code = True, exit_code or 0
        if not self.disabled:  # of several runs the last one says how the trial ends
            tell_exit_code(self.exit_code)

    join = finish

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # An exception that nobody handles ends the process with its own code.
        _module().finish()

    # --- files --------------------------------------------------------------------------------

    @property
    def dir(self) -> str:
        """Where files become artifacts: HPQ_OUT."""
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
        """Keep files, and what they have become by the end."""
        wanted = glob_str if glob is None else glob
        if wanted is None:
            return True
        pattern, base = os.fspath(wanted), base_path and os.fspath(base_path)
        found = sorted(globbing.glob(pattern)) if not os.path.exists(pattern) else [pattern]
        kept = []
        for path in found:
            inside = os.path.relpath(path, base) if base else _relative(path)
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
        """Keep an artifact's files."""
        artifact = artifact_or_path
        if isinstance(artifact, (str, os.PathLike)):
            path = os.fspath(artifact)
            artifact = Artifact(name or f"run-{self.id}-{os.path.basename(path)}", type or "")
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
        """An artifact of this process; those on W&B's server are out of reach."""
        if isinstance(artifact_or_name, Artifact):
            return artifact_or_name
        raise UsageError(missing(f"use_artifact({artifact_or_name!r}), which is on a W&B server"))

    use_model = use_artifact

    def restore(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A file that this trial has kept, opened."""
        path = _files.place(name)
        if not path.exists():
            raise ValueError(f"{name}: this trial has kept no such file; hpq has no W&B server")
        return path.open()

    def __deepcopy__(self, memo: Any) -> Run:
        return self

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"run.{name}"))


class _Metric:
    def __init__(self, name: str) -> None:
        self.name = name


def _relative(path: str) -> str:
    inside = os.path.relpath(path)
    return os.path.basename(path) if inside.startswith("..") else inside


def _module() -> Any:
    return sys.modules[__name__.rpartition(".")[0]]


def start(sweep: Mapping[str, Any], given: Any, allow_val_change: Any, about: Any) -> Run:
    """A run whose config is what was given, under the sweep's set."""
    mode = about.get("mode") or os.environ.get("WANDB_MODE") or ""
    if mode == "disabled":
        say("mode is disabled: nothing is reported to hpq")
    is_aside = "HPQ_TRIAL_ID" in os.environ and "WANDB_RUN_ID" not in os.environ
    if is_aside:  # a fold of a cross-validation, as W&B's own example runs them
        say("a process without WANDB_RUN_ID has a run of its own, which is not the trial's")
    config = Config(sweep)
    exclude = set(about.get("config_exclude_keys") or ())
    include = about.get("config_include_keys")
    for key, value in to_dict(given).items():
        # The sweep's values stand over the script's defaults, and W&B says nothing of it.
        is_free = str(key).strip("-") not in sweep
        if is_free and key not in exclude and (not include or key in include):
            config._put(key, value, allow_val_change is not False)
    return Run(config, is_disabled=is_aside or mode == "disabled", **about)
