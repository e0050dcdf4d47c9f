"""`wandb.config`, `wandb.Settings`: the script's defaults under the sweep's parameters."""

from __future__ import annotations

import inspect
import math
import os
import secrets
import string
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from ._transport import log_once, missing
from .errors import ConfigError, check_project, check_run_id, check_tags, check_text, check_word

_MOST_VALUES = 1_000  # of an array in the config; a larger one becomes numpy's short text


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: arrays become lists, other objects text."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    for name in ("item", "tolist"):  # of numpy, torch, …
        try:
            if math.prod(getattr(value, "shape", ())) <= _MOST_VALUES:
                return getattr(value, name)()
        except Exception:  # of more than one element, on a meta device, …
            pass
    return str(value)


def to_dict(params: Any) -> dict[str, Any]:
    """Return a dict, a Namespace, absl's flags or the YAML file at a path as a dict."""
    if params is None or params == ():
        return {}
    if isinstance(params, str):
        return _of_file(params)
    if isinstance(params, Config):
        return params.as_dict()
    if isinstance(params, Mapping):
        return dict(params)
    module = inspect.getmodule(params)
    if module and module.__name__ == "absl.flags._flagvalues":
        return {name: params[name].value for name in dir(params)}
    if not hasattr(params, "__dict__"):
        raise TypeError("config must be a dict or have a __dict__ attribute.")
    return dict(vars(params))


def _of_file(path: str) -> dict[str, Any]:
    """Read a config file in W&B's form, {name: {value: x}}, or as plain {name: x}."""
    if not os.path.exists(path):
        raise ConfigError(f"config file {path} doesn't exist")
    try:
        import yaml  # noqa: PLC0415 - only if a script names a file
    except ImportError:
        raise ConfigError(f"{path}: run `pip install pyyaml` to read this file") from None
    with open(path, encoding="utf-8") as file:
        data = yaml.safe_load(file) or {}
    data.pop("wandb_version", None)
    return {
        name: value["value"] if isinstance(value, dict) and "value" in value else value
        for name, value in data.items()
    }


class Config:
    """A mapping whose items are attributes, too. The sweep's parameters cannot be changed."""

    def __init__(self, sweep: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_locked", frozenset(sweep or ()))
        if os.path.exists("config-defaults.yaml"):
            self._items.update(_of_file("config-defaults.yaml"))
        self._items.update(sweep or {})

    def _put(self, key: Any, value: Any, allow_val_change: bool | None) -> None:
        key = str(key).strip("-")
        if key in self._locked:
            if plain(value) != self._items[key]:
                log_once(f"Config item {key!r} was locked by 'sweep' (ignored update).")
            return
        value = plain(value)
        if not allow_val_change and key in self._items and value != self._items[key]:
            raise ConfigError(
                f'Attempted to change value of key "{key}" from {self._items[key]} to {value}\n'
                "If you really want to do this, pass allow_val_change=True to config.update()"
            )
        self._items[key] = value

    def update(self, d: Any, allow_val_change: bool | None = None) -> None:
        """Set items of a dict, a Namespace or a file, except the sweep's parameters."""
        for key, value in to_dict(d).items():
            self._put(key, value, allow_val_change)

    def setdefaults(self, d: Any) -> None:
        """Set items that the config lacks."""
        self.update({k: v for k, v in to_dict(d).items() if k not in self._items})

    def keys(self) -> list[str]:
        return [key for key in self._items if not key.startswith("_")]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[str, Any]]:
        return [(k, v) for k, v in self._items.items() if not k.startswith("_")]

    def as_dict(self) -> dict[str, Any]:
        return dict(self.items())

    _as_dict = as_dict

    def _own(self) -> dict[str, Any]:
        """Return the items that are not the sweep's parameters."""
        return {key: value for key, value in self._items.items() if key not in self._locked}

    def get(self, *args: Any) -> Any:
        return self._items.get(*args)

    def persist(self) -> None:
        """Do nothing: the run sends its config."""

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._put(key, value, None)

    __setattr__ = __setitem__

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["_items"][key]
        except KeyError:
            locked = ", ".join(self.__dict__.get("_locked", ()))
            names = f"the sweep's parameters are {locked}" if locked else "this run is of no sweep"
            raise AttributeError(
                f"{self.__class__!r} object has no attribute {key!r}; {names}"
            ) from None

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return str(self.as_dict())


# Arguments of `init` by the settings that W&B reads for them, with W&B's environment variables.
_OF_INIT = {
    "project": ("project", "WANDB_PROJECT"),
    "entity": ("entity", "WANDB_ENTITY"),
    "run_id": ("id", ""),  # WANDB_RUN_ID goes first
    "run_name": ("name", "WANDB_NAME"),
    "run_notes": ("notes", "WANDB_NOTES"),
    "run_tags": ("tags", "WANDB_TAGS"),
    "run_group": ("group", "WANDB_RUN_GROUP"),
    "run_job_type": ("job_type", "WANDB_JOB_TYPE"),
    "root_dir": ("dir", "WANDB_DIR"),
    "mode": ("mode", "WANDB_MODE"),
}


_MODES = (None, "online", "offline", "shared", "disabled", "dryrun", "run")
_TEXTS = tuple(name for name in _OF_INIT if name not in ("run_tags", "mode"))
_METHODS = frozenset({"copy", "dict", "items", "json", "keys", "values"})  # of W&B's settings


class Settings:
    """Accept every keyword; those of `_OF_INIT` count in `init`. Other settings are None.

    Raises:
        ValidationError: W&B has no such `mode`, or a name, tag or note is no text.
        UsageError: W&B allows no such project or run id.
    """

    def __init__(self, **kwargs: Any) -> None:
        check_word("mode", kwargs.get("mode"), _MODES)
        for name in _TEXTS:
            kwargs[name] = check_text(name, kwargs.get(name))
        kwargs["run_tags"] = check_tags(kwargs.get("run_tags"))
        check_project(kwargs["project"])
        check_run_id(kwargs["run_id"])
        self.__dict__.update(kwargs)

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> Settings:
        """Return a run's settings: arguments of `init` go before `settings=`, then variables."""
        given = about.get("settings")
        if isinstance(given, Settings):
            given = vars(given)
        elif not isinstance(given, Mapping):  # W&B ignores it
            given = {}
        arguments = {name: about.get(argument) for name, (argument, _) in _OF_INIT.items()}
        if arguments["run_tags"] is not None:
            arguments["run_tags"] = tuple(arguments["run_tags"])  # of a text each character, as W&B
        first, found = cls(**arguments), cls(**given)
        for name, (_, variable) in _OF_INIT.items():
            value = getattr(first, name) or getattr(found, name) or os.environ.get(variable)
            if name == "run_tags" and isinstance(value, str):
                value = tuple(value.split(","))
            setattr(found, name, value)
        check_word("mode", found.mode or None, _MODES)
        root = os.fspath(found.root_dir or os.getcwd())
        files = os.environ.get("HPQ_OUT") or root
        found.update(root_dir=root, files_dir=files, sync_dir=files)
        return found

    def update(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "model_")) or name in _METHODS:
            raise AttributeError(missing(f"Settings.{name}"))
        return None


def generate_id(length: int = 8) -> str:
    """Return a random run id."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(length))


class AlertLevel(Enum):
    """The severity of an alert."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
