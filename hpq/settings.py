"""Settings: every HPQ_* variable, its default, its unit and its check, read once and passed down.

`read` is called in `producer/cli` and at the start of each worker process, with the environment as
a mapping; no other module reads `os.environ` for hpq's own settings.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from hpq.errors import SettingsError
from hpq.sweep import NAME_RULE

SECRETS = frozenset({"code_key", "redis_url"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says; a field `lease_s` is read from HPQ_LEASE_S."""

    redis_url: str = ""  # empty = the private server under HPQ_HOME
    prefix: str = "hpq"
    user: str = ""
    data: Path | None = None
    home: Path = Path("~/.hpq")
    store: str = ""
    checkpoint_s: float = 60.0  # between two checkpoints of a shipped trainer
    queue: str = "default"
    lease_s: float = 30.0
    reap_s: float = 5.0
    grace_s: float = 12.0
    lost_max: int = 3
    gpus_per_trial: int = 1
    trials_per_gpu: int = 1
    allow: tuple[str, ...] = ()
    code: Path | None = None
    code_key: str = ""
    pass_env: tuple[str, ...] = ()
    port: int = 0  # 0 = no health endpoint
    image: str = ""
    log: str = "info"
    in_pod: bool = False  # KUBERNETES_SERVICE_HOST is set

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return int(self.lease_s * 1000)


def _name(text: str) -> str:
    if not NAME_RULE.match(text):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 86_400:
        raise ValueError("use seconds, above 0 and below a day")
    return value


def _count(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"use a whole number from {low} to {high}")
        return value

    return parse


def _words(text: str) -> tuple[str, ...]:
    return tuple(w for w in re.split(r"[,\s]+", text) if w)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in re.split(r"[;\n]", text) if w.strip())


def _level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError("use debug, info, warning or error")
    return text.lower()


def _url(text: str) -> str:
    if not text.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("use redis://, rediss:// or unix://")
    return text


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "redis_url": _url,
    "prefix": _name,
    "user": str,
    "data": lambda t: Path(t).expanduser(),
    "home": lambda t: Path(t).expanduser(),
    "store": str,
    "checkpoint_s": _seconds,
    "queue": _name,
    "lease_s": _seconds,
    "reap_s": _seconds,
    "grace_s": _seconds,
    "lost_max": _count(1, 1000),
    "gpus_per_trial": _count(1, 64),
    "trials_per_gpu": _count(1, 64),
    "allow": _lines,
    "code": lambda t: Path(t).expanduser(),
    "code_key": str,
    "pass_env": _words,
    "port": _count(0, 65535),
    "image": str,
    "log": _level,
}


def variable(field: str) -> str:
    """The environment variable that a field is read from."""
    return f"HPQ_{field.upper()}"


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from an environment mapping; an empty variable counts as not set.

    Raises:
        SettingsError: a variable is malformed, or an HPQ_* name is close to a known one.
    """
    values: dict[str, object] = {}
    for name, parse in _PARSERS.items():
        text = environ.get(variable(name), "").strip()
        if not text:
            continue
        try:
            values[name] = parse(text)
        except ValueError as error:
            shown = "(hidden)" if name in SECRETS else repr(text)
            raise SettingsError(f"{variable(name)}: {shown} cannot be used: {error}") from None
    values.setdefault("home", Path("~/.hpq").expanduser())
    values.setdefault("user", _login(environ))
    values["in_pod"] = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    return Settings(**values)  # type: ignore[arg-type]


def _login(environ: Mapping[str, str]) -> str:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if environ.get(name):
            return environ[name]
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid that no passwd file knows
        return "unknown"


def describe(settings: Settings) -> dict[str, str]:
    """Each variable and its value in force, secrets hidden (what `hpq config` prints)."""
    shown: dict[str, str] = {}
    for f in fields(settings):
        if f.name == "in_pod":
            continue
        value = getattr(settings, f.name)
        text = " ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
        shown[variable(f.name)] = _redact(f.name, text)
    return shown


def _redact(name: str, text: str) -> str:
    if name == "redis_url":
        return re.sub(r"(//[^:/@]*):[^@]*@", r"\1:***@", text)
    return "***" if name in SECRETS and text else text
