"""Settings: every HPQ_* variable, its default, its unit and its check, read once and passed down.

A parser is one function a kind of value; its ValueError says what to use. Each command
(`hpq/access/session.py`) and each worker process call `read` once, with the environment as a
mapping; no other module reads `os.environ` for hpq's own settings.
"""

from __future__ import annotations

import errno
import getpass
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from hpq.domain.retry_policy import LOST_MAX
from hpq.domain.sweep import NAME_RULE
from hpq.domain.trial import Json
from hpq.errors import SettingsError
from hpq.notice import Notice
from hpq.redis import credentials
from hpq.redis.credentials import SECRETS, redact

KEY_LEAST = 16
_WEBHOOK = re.compile(r"https?://[^\s/@]+(/\S*)?\Z")
_POD_GPUS = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9_.-]+=[1-9][0-9]?")
_APPRISE = re.compile(r"(?!https?:|ftps?:|file:)[a-z][a-z0-9+.-]*://\S+\Z")


def parse_name(text: str) -> str:
    """Parse a name for keys of Redis and of Kubernetes."""
    if not NAME_RULE.match(text):
        raise ValueError("use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
    return text


def parse_sweep(text: str) -> str:
    """Parse a sweep's id."""
    if not re.fullmatch("[a-z0-9-]+", text):
        raise ValueError("use a sweep's id, as `hpq ls` shows it")
    return text


def parse_seconds(text: str) -> float:
    """Parse a time in seconds."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value < 86_400:
            return value
    raise ValueError("use seconds, above 0 and below a day")


def parse_time(text: str) -> float:
    """Parse a time in seconds since 1970."""
    with suppress(ValueError):
        if 1e9 < (value := float(text)) < 1e11:
            return value
    raise ValueError("use seconds since 1970, as `date +%s` prints")


def parse_count(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of integers from `low` to `high`."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            value = int(text)
            if low <= value <= high:
                return value
        raise ValueError(f"use a whole number from {low} to {high}")

    return parse


def parse_words(text: str) -> tuple[str, ...]:
    """Parse words separated by commas or spaces."""
    return tuple(w for w in re.split(r"[,\s]+", text) if w)


def parse_word(*words: str) -> Callable[[str], str]:
    """Return a parser of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() in words:
            return text.lower()
        raise ValueError(f"use {', '.join(words[:-1])} or {words[-1]}")

    return parse


def parse_key(text: str) -> str:
    """Parse a key that signs code."""
    # All users can read the signatures in Redis, and could guess a short key from one.
    if len(text) < KEY_LEAST:
        raise ValueError(
            f"use {KEY_LEAST} characters or more, such as `openssl rand -hex 32` prints; or unset"
            " it, and hpq creates a key under HPQ_HOME"
        )
    return text


def parse_folder(text: str) -> Path:
    """Parse the path of a directory, which may be created later."""
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # a user who has no home, or no such user
        raise ValueError("the home directory of ~ is unknown; use a full path") from None
    for one in (path, *path.parents):
        try:
            is_folder = stat.S_ISDIR(one.stat().st_mode)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise ValueError("a name in it is too long; use a shorter path") from None
            continue  # it may be created, or its user may not look
        if not is_folder:
            raise ValueError(f"{one} is a file; use the path of a directory")
        break
    return path


def parse_store(text: str) -> str:
    """Parse the directory or the URL of a file store."""
    if "://" not in text:
        parse_folder(text)
    return text


def parse_pod_gpus(text: str) -> str:
    """Parse the GPUs of a pod: RESOURCE=N."""
    if not _POD_GPUS.fullmatch(text):
        raise ValueError("use RESOURCE=N, such as nvidia.com/gpu=4")
    return text


def parse_webhook(text: str) -> str:
    """Parse the URL of a webhook, or of a service of Apprise."""
    if not (_WEBHOOK.match(text) or _APPRISE.match(text)):
        raise ValueError(
            "use https:// or http://, a host and a path, without user and password; or a URL of"
            " Apprise, such as ntfy://TOPIC"
        )
    return text


IN_POD = "KUBERNETES_SERVICE_HOST"  # the kubelet sets it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings from the environment; a field `lease_s` is read from HPQ_LEASE_S."""

    # Empty = the private server under HPQ_HOME; names the password file, if there is one.
    redis_url: str = field(default="", repr=False)
    redis_password_file: Path | None = None
    prefix: str = "hpq"
    user: str = ""
    data: Path = Path("~/.hpq/data")  # follows `home`
    home: Path = Path("~/.hpq")
    scratch: Path | None = None  # None = `home`
    store: str = field(default="", repr=False)  # a URL may carry a password
    checkpoint_s: float = 60.0  # between two checkpoints of a built-in trainer
    checkpoint_quiet_s: float = 10.0  # without a change, after which a save has ended
    queue: str = "default"
    sweep: str = ""  # a worker's: the only sweep to work on
    lease_s: float = 30.0
    reap_s: float = 5.0
    grace_s: float = 12.0
    end: float = 0.0  # when this worker is stopped, in seconds since 1970; 0 = unknown
    pod_grace_s: float = 0.0  # the pod's grace by the kubelet; 0 = unknown
    lost_max: int = LOST_MAX
    gpus_per_trial: int = 1
    trials_per_gpu: int = 1
    cpus: int = 0  # a pod's request; 0 = unknown
    cache_bytes: int = 0  # that the volume of HPQ_HOME may hold; 0 = unknown
    pod_gpus: str = ""  # RESOURCE=N of the pod; empty = none
    code: Path | None = None
    python: str = ""  # of programs; empty = the one on PATH
    code_key: str = field(default="", repr=False)
    pass_env: tuple[str, ...] = ()
    port: int = 0  # 0 = no health endpoint
    image: str = ""
    node: str = ""  # empty = the host's name
    pod: str = ""
    log: str = "info"
    log_format: str = "text"
    log_trials: int = 0
    notify: str = field(default="", repr=False)  # a webhook's URL is its password
    in_pod: bool = False

    @property
    def cache(self) -> Path:
        """The directory of decoded data sets and compiled kernels, which can be rebuilt."""
        return self.home.absolute() / "cache"

    @property
    def work_root(self) -> Path:
        """The directory that holds the work directories of attempts."""
        return self.scratch or self.home

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return int(self.lease_s * 1000)


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "redis_url": credentials.checked,
    "redis_password_file": lambda t: Path(t).expanduser().absolute(),
    "prefix": parse_name,
    "user": str,
    "data": parse_folder,
    "home": parse_folder,
    "scratch": lambda t: parse_folder(t).absolute(),
    "store": parse_store,
    "checkpoint_s": parse_seconds,
    "checkpoint_quiet_s": parse_seconds,
    "queue": parse_name,
    "sweep": parse_sweep,
    "lease_s": parse_seconds,
    "reap_s": parse_seconds,
    "grace_s": parse_seconds,
    "end": parse_time,
    "pod_grace_s": parse_seconds,
    "lost_max": parse_count(1, 1000),
    "gpus_per_trial": parse_count(1, 64),
    "trials_per_gpu": parse_count(1, 64),
    "cpus": parse_count(0, 4096),
    "cache_bytes": parse_count(0, 1 << 60),
    "pod_gpus": parse_pod_gpus,
    "code": parse_folder,
    "python": str,
    "code_key": parse_key,
    "pass_env": parse_words,
    "port": parse_count(0, 65535),
    "image": str,
    "node": str,
    "pod": str,
    "log": parse_word("debug", "info", "warning", "error"),
    "log_format": parse_word("text", "json"),
    "log_trials": parse_count(0, 1),
    "notify": parse_webhook,
}

# Variables of training code; a trial may call hpq, so these are not misspelled settings.
_OF_TRAINING = """
    attempt attempt_id checkpoint_dir connect exec out params report seed sweep_id trial_id
""".split()
_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_.*)?$")  # the kubelet's, of hpq-redis
LAST_WORDS_S = 5.0  # of a pod's grace, for the worker's own exit
EARLY_S = 60.0  # by which Slurm's signal may come before the time that was asked for
_CLOSE = 0.8  # of difflib's ratio: LEAS_S and REDISURL are close, REDIS_SERVICE_HOST is not

ABOUT: Mapping[str, str] = {
    "redis_url": "redis://, rediss:// (TLS) or unix://;"
    " unset: by `hpq join`, else a private server",
    "redis_password_file": "file with the server's password",
    "prefix": "prefix of all keys; separates groups of sweeps on one Redis server",
    "user": "owner of your sweeps; unset: the login name",
    "data": "directory of data sets; unset: data under HPQ_HOME",
    "home": "directory of the private server, the code key, work directories, caches and logs",
    "scratch": "directory of yours for the work directories, on a local disk; unset: HPQ_HOME",
    "store": "directory or URL for checkpoints and artifacts",
    "checkpoint_s": "seconds between two checkpoints of a built-in trainer",
    "checkpoint_quiet_s": "seconds without a change after which a checkpoint of several files is"
    " whole",
    "queue": "queue of the workers started here",
    "sweep": "run only trials of this sweep; unset: any sweep",
    "lease_s": "seconds without a heartbeat until a trial is requeued",
    "reap_s": "seconds between two searches for lost trials",
    "grace_s": "seconds for a trial to save when its worker stops; in a pod, below HPQ_POD_GRACE_S",
    "end": "when this worker will be stopped (seconds since 1970); a longer trial is not claimed",
    "pod_grace_s": "terminationGracePeriodSeconds of the pod; HPQ_GRACE_S is derived from it",
    "lost_max": "losses without progress until a trial is poison",
    "gpus_per_trial": "GPUs for each trial",
    "trials_per_gpu": "trials that share a GPU",
    "cache_bytes": "bytes that the volume of HPQ_HOME may hold before a pod is evicted",
    "cpus": "CPU cores that a pod requests; each trial's OMP_NUM_THREADS is its share of them",
    "pod_gpus": "GPUs that the pod was given, such as nvidia.com/gpu=4: its worker must see them",
    "code": "directory of the programs in an image",
    "python": "Python of programs (${interpreter}); unset: python on PATH, as with W&B",
    "code_key": "key that signs code, 16 characters or more; unset: the key under HPQ_HOME",
    "pass_env": "variables that a sweep's pass_env may request in a pod",
    "port": "port of /livez and /readyz of workers, and of /metrics of a dashboard; 0: none",
    "image": "name of the image, recorded with each attempt",
    "node": "name of this machine in tables; unset: its host name",
    "pod": "name of the pod, by which `hpq drain` and `hpq workers` name its worker",
    "log": "log level: debug, info, warning or error",
    "log_format": "format of the log of workers: text, or json, one object a line",
    "log_trials": "1: workers also print the output of their trials, for log collectors",
    "notify": "webhook URL (Slack's format), or one of Apprise, for a notice when a sweep is held,"
    " stalled, near its budget or over",
}


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return f"HPQ_{field.upper()}"


def read(environ: Mapping[str, str]) -> Settings:
    """Read settings from an environment mapping; an empty variable counts as not set.

    Raises:
        SettingsError: a variable is malformed, or an HPQ_* name is close to a known one.
    """
    for name, close in _unknown(environ, _CLOSE):
        if close:  # a misspelled setting would have no effect
            text = f"{name}: unknown setting; did you mean {close}?"
            raise SettingsError(text, code="setting-unknown")
    values: dict[str, object] = {}
    for name, parse in _PARSERS.items():
        text = environ.get(variable(name), "").strip() or ("~/.hpq" if name == "home" else "")
        if not text:
            continue
        try:
            values[name] = parse(text)
        except ValueError as error:
            shown = "(hidden)" if variable(name) in SECRETS else repr(text)
            why = f"{variable(name)}: {shown} is invalid: {error}"
            is_home = name in ("home", "scratch")
            raise SettingsError(why, code="home-unusable" if is_home else None) from None
    home = values["home"]
    assert isinstance(home, Path)
    values.setdefault("data", home / "data")
    values.setdefault("user", _login(environ))
    pod_s = values.get("pod_grace_s")
    if isinstance(pod_s, float):  # the worker must release its trial before the kubelet's SIGKILL
        values["grace_s"] = _grace(values.get("grace_s"), pod_s)
    path = values.get("redis_password_file")
    if isinstance(path, Path):
        if "redis_url" not in values:
            line = "HPQ_REDIS_PASSWORD_FILE: HPQ_REDIS_URL is not set; set it to the server's URL"
            raise SettingsError(line, code="setting-missing")
        values["redis_url"] = credentials.with_file(str(values["redis_url"]), path)
    values["in_pod"] = bool(environ.get(IN_POD))
    return Settings(**values)  # type: ignore[arg-type]


def _grace(given: object, pod_s: float) -> float:
    """Return how long a trial in a pod may take to stop."""
    most = max(0.5 * pod_s, pod_s - LAST_WORDS_S)
    grace_s = given if isinstance(given, float) else most
    if grace_s > most:
        raise SettingsError(
            f"HPQ_GRACE_S={grace_s:g}: the pod ends after {pod_s:g} s, {LAST_WORDS_S:g} s of them"
            f" for the worker; set at most {most:g}, or raise terminationGracePeriodSeconds and"
            " HPQ_POD_GRACE_S"
        )
    return grace_s


def unknown_settings(environ: Mapping[str, str]) -> Iterator[Notice]:
    """Yield a warning for each HPQ_* variable that is no setting, and is ignored."""
    for name, close in _unknown(environ, least=0.6):
        if not _SERVICE.search(name):
            hint = f"did you mean {close}?" if close else "list them: hpq doctor --settings"
            yield Notice("setting-unknown", f"{name}: unknown setting, ignored; {hint}")


def _unknown(environ: Mapping[str, str], least: float) -> Iterator[tuple[str, str]]:
    """Yield each unknown HPQ_* variable and a setting at least so close (a ratio), or ""."""
    known = set(map(variable, (*_PARSERS, *_OF_TRAINING)))
    for name in sorted(environ):
        if name.startswith("HPQ_") and name not in known:
            # Without the prefix, which would make all of them close.
            near = get_close_matches(name[4:].lower(), _PARSERS, n=1, cutoff=least)
            yield name, variable(near[0]) if near else ""


def _login(environ: Mapping[str, str]) -> str:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if environ.get(name):
            return environ[name]
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid without an entry in passwd
        return "unknown"


def describe(settings: Settings) -> dict[str, Json]:
    """Return each variable with its effective value, secrets hidden, for `hpq doctor`."""
    shown: dict[str, Json] = {}
    for name in _PARSERS:
        value = getattr(settings, name)
        if isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Path):
            value = str(value)
        shown[variable(name)] = _shown(name, value) if isinstance(value, str) else value
    return shown


def _shown(name: str, text: str) -> str:
    if name in ("redis_url", "store"):
        return redact(text)
    return "***" if text and variable(name) in SECRETS else text
