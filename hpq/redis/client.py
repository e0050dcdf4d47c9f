"""Create clients of the Redis server, and explain their errors in one line.

Every process creates its clients here. Bytes in, bytes out (wire decodes). `guard` turns errors of
redis-py into hpq's own; the command line and the worker's start-up use it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import AbstractBackoff, ExponentialWithJitterBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from hpq.error_codes import Code
from hpq.errors import DecodeError, Forbidden, HpqError, OutOfReach, ServerTooOld, SettingsError
from hpq.redis import address_file, credentials, tls
from hpq.redis.credentials import redact
from hpq.redis.damage import DAMAGED, damage
from hpq.sanitize import visible

NEEDS = (6, 2)  # ZRANGE … REV, XADD with ids of ours, LMOVE
_FULL_DISK = re.compile(r"\bMISCONF\b")
_IS_CONNECT = re.compile(r"Error -?\d+ connecting to ")
_RETRIES = 5
FIRST_S = 2.5  # after which a command gives up reaching the server


class FullServerDisk(ResponseError):
    """Raised at a change, or at redis-py's PING of an idle connection: the server cannot save."""


TRANSIENT = (
    ConnectionError,
    TimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    OutOfMemoryError,
    FullServerDisk,
)


class _Patience(Retry):
    """Retries errors that may pass; to redis-py a wrong password is a ConnectionError, too.

    Every call of a client goes through here, so here a full disk gets an error of its own.
    """

    def __init__(self, backoff: AbstractBackoff, retries: int, patience_s: float) -> None:
        super().__init__(backoff, retries)
        self._patience_s = patience_s

    def call_with_retry(  # type: ignore[override]  # its parameters differ between versions
        self, do: Any, fail: Any, is_retryable: Callable[[Exception], bool] | None = None, **kw: Any
    ) -> Any:
        begun = time.monotonic()

        def may_mend(error: Exception) -> bool:
            if time.monotonic() - begun > self._patience_s:
                return False
            refused = isinstance(error, AuthenticationError | AuthorizationError)
            return not refused and (is_retryable is None or is_retryable(error))

        try:
            return super().call_with_retry(do, fail, may_mend, **kw)
        except ResponseError as error:
            if _FULL_DISK.search(str(error)):
                raise FullServerDisk(*error.args) from None
            raise


class _Client(Redis):
    """Names the command in an error about damaged data, as the pipelines of redis-py do."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if not DAMAGED.search(str(error)):
                raise
            raise _named(args, error) from None


def _named(args: Iterable[Any], error: RedisError) -> ResponseError:
    words = " ".join(
        arg.decode("utf-8", "replace") if isinstance(arg, bytes) else str(arg) for arg in args
    )
    return ResponseError(f"Command ({words[:200]}) caused error: {error}")


class PasswordUnreadable(ConnectionError):
    """Raised at a connect if the password file cannot be read; a later connect may succeed."""


class _FromFile(CredentialProvider):
    """Reads the password from its file at each connect."""

    def __init__(self, user: str, path: Path) -> None:
        self._user, self._path = user, path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = credentials.read(self._path)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            raise PasswordUnreadable(f"{self._path}: {why}") from None
        return (self._user, password) if self._user else (password,)


def connect(
    url: str,
    *,
    retries: int = _RETRIES,
    timeout_s: float = 5.0,
    patience_s: float = math.inf,
    check_idle_s: int = 15,
) -> Redis:
    """Create a client, which connects at its first call.

    With `retries` 0 the caller retries (the heartbeat thread). Waits are 50 ms to 1 s; no retry
    begins after `patience_s`, since each may take its whole timeout. A connection that was idle for
    `check_idle_s`, and a new one, answers a PING first; 0: none does.

    Raises:
        SettingsError: the URL, or a file that it names, cannot be read.
    """
    try:
        plain, user, path = credentials.split(url)
        tls.check_files(plain)
        redis = address_file.client(
            _Client,
            plain,
            credential_provider=None if path is None else _FromFile(user, path),
            retry=_patience(retries, patience_s),
            socket_timeout=timeout_s,
            socket_connect_timeout=3.0,
            health_check_interval=check_idle_s,
        )
        pool = redis.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # checks its options without connecting
        return redis
    except TypeError as error:
        option = str(error).rpartition(" ")[2]
        text = f"HPQ_REDIS_URL: {redact(url)}: unknown option {option}; TLS has {tls.OPTIONS}"
        raise SettingsError(text, code="redis-url-invalid") from None
    except ValueError as error:
        text = f"HPQ_REDIS_URL: {redact(url)}: cannot parse it: {error}"
        raise SettingsError(text, code="redis-url-invalid") from None


def _patience(retries: int, patience_s: float) -> Retry:
    retry = _Patience(ExponentialWithJitterBackoff(base=0.05, cap=1.0), retries, patience_s)
    retry.update_supported_errors([BusyLoadingError, ReadOnlyError] if retries else [])
    return retry


def wait_patiently(redis: Redis) -> None:
    """Let a client that has reached its server retry as long as one without `patience_s`."""
    redis.set_retry(_patience(_RETRIES, math.inf))


@contextmanager
def guard(url: str, *, in_pod: bool = False) -> Iterator[None]:
    """Turn errors of redis-py into hpq's errors of one line.

    Raises:
        OutOfReach: the server does not answer, is loading, full or read-only.
        DecodeError: a key does not hold what hpq writes.
        Forbidden: the password is wrong, or the ACL refuses.
    """
    try:
        yield
    except RedisError as error:
        raise explain(error, url, in_pod=in_pod) from None


def explain(error: RedisError, url: str, *, in_pod: bool = False) -> HpqError:
    """Return hpq's error for one of redis-py; its remedy fits a pod if `in_pod`."""
    where = redact(url)
    if isinstance(error, PasswordUnreadable):
        message = f"{where}: cannot read the password file: {error}"
        return Forbidden(message, code="redis-password-unreadable")
    if why := tls.why_refused(error):
        return OutOfReach(f"{where}: {why}", code="redis-tls")
    if isinstance(error, ResponseError) and "HELLO" in str(error):  # what clients say since 6.0
        return ServerTooOld(f"{where}: this Redis is too old; hpq needs 6.2 or newer")
    if isinstance(error, ResponseError) and (found := _REFUSES.search(str(error))):
        reason = _reason(error).partition(" script:")[0].rpartition(": ")[2]
        meaning, code, line = _REFUSED[found[0]]
        return meaning(f"{where}: {line.format(reason)}", code=code)
    if isinstance(error, ResponseError) and str(error).startswith(("NOAUTH", "WRONGPASS")):
        error = AuthenticationError()
    if isinstance(error, NoPermissionError) and _WRITES.search(str(error)):
        user = credentials.parse(url).username or "default"
        why = f"the user {user} is read-only; use the producer's credentials"
        message = f"{where}: permission denied: {why}"
        return Forbidden(message, code="redis-read-only")
    if why := damage(error):
        return DecodeError(f"{where}: {why}")
    for kinds, meaning, code, line in _EXPLAINED:
        if isinstance(error, kinds):
            hint = tls.hint(error, url) if kinds is _AWAY else ""
            known = (_IN_POD if in_pod else _REMEDIES) | address_file.remedies(url)
            text = line.format(reason=short_reason(error), **known)
            return meaning(f"{where}: {text}{hint}", code=code)
    return OutOfReach(f"{where}: {_reason(error)}", code="redis-unreachable")


_REFUSED: dict[str, tuple[type[HpqError], Code, str]] = {
    "MISCONF": (
        OutOfReach,
        "redis-disk-full",
        "the server cannot write to its disk: {}; free space there",
    ),
    "DB index is out of range": (
        SettingsError,
        "redis-url-invalid",
        "the server has no database of this number; write database 0 in HPQ_REDIS_URL",
    ),
}
_REFUSES = re.compile("|".join(_REFUSED))
_WRITES = re.compile(r"'(evalsha|script)\b")  # every change is a script
_AWAY = (ConnectionError, TimeoutError)

# The first match counts: redis-py's tree has ConnectionError above most of the others.
_EXPLAINED: tuple[tuple[tuple[type[RedisError], ...], type[HpqError], Code, str], ...] = (
    (
        (AuthenticationError, AuthorizationError),
        Forbidden,
        "redis-password-refused",
        "the server rejects this user or password; {password}",
    ),
    (
        (NoPermissionError,),
        Forbidden,
        "redis-forbidden",
        "permission denied: {reason}",
    ),
    (
        (BusyLoadingError,),
        OutOfReach,
        "redis-loading",
        "the server is loading its data; try again shortly",
    ),
    (
        (OutOfMemoryError,),
        OutOfReach,
        "redis-memory",
        "the server is out of memory; raise its maxmemory, or free some: `hpq ls --all`, then"
        " `hpq archive SWEEP FILE` and `hpq rm SWEEP` of an old one",
    ),
    (
        (ReadOnlyError,),
        OutOfReach,
        "redis-replica",
        "the server is a read-only replica; use the primary",
    ),
    (
        (InvalidResponse,),
        OutOfReach,
        "not-redis",
        "the server is not Redis, or requires TLS (then use rediss://)",
    ),
    (
        _AWAY,
        OutOfReach,
        "redis-unreachable",
        "cannot reach Redis: {reason}; {away}",
    ),
)
_REMEDIES = {
    "password": "correct HPQ_REDIS_URL or HPQ_REDIS_PASSWORD_FILE",
    "away": "start it or correct HPQ_REDIS_URL (`hpq doctor` checks it)",
}
# As the manifests name these; docs/guides/kubernetes.md recreates Secrets.
_IN_POD = {
    "password": "Secrets hpq-redis-worker and hpq-redis-users differ, or Redis has not read them;"
    " run kubectl rollout restart statefulset/hpq-redis, else recreate all Secrets",
    "away": "see kubectl get pod hpq-redis-0 and service/hpq-redis, NetworkPolicy"
    " hpq-worker-to-redis, and HPQ_REDIS_URL in the ConfigMap",
}


def _reason(error: BaseException) -> str:
    text = str(error).strip().rstrip(".")
    return visible(redact(text.splitlines()[0])) if text else type(error).__name__


def short_reason(error: BaseException) -> str:
    """Return the system's reason for a failed call, without the address: `Connection refused`."""
    return _reason(error).rpartition(". ")[2] if _IS_CONNECT.match(str(error)) else _reason(error)


def check_server(redis: Redis, url: str, *, in_pod: bool = False) -> str:
    """Check that hpq can use the server; return its version.

    Raises:
        ServerTooOld: below 6.2, or Redis Cluster.
        OutOfReach, Forbidden: as `guard`.
    """
    with guard(url, in_pod=in_pod):
        info = redis.info("server")
    return usable_version(info, url)


def usable_version(info: Mapping[str, Any], url: str) -> str:
    """Return the version in a server's INFO. Raises ServerTooOld as `check_server`."""
    version = str(info["redis_version"])
    parts = tuple(int(p) for p in version.split(".")[:2])
    if parts < NEEDS and "valkey_version" not in info:
        raise ServerTooOld(f"{redact(url)}: Redis {version} is too old; hpq needs 6.2 or newer")
    if info.get("redis_mode") == "cluster":
        text = f"{redact(url)}: Redis Cluster is not supported; use a single server"
        raise ServerTooOld(text, code="redis-cluster-mode")
    return version
