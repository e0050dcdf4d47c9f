"""Open the session of a command: its settings, Redis client, readers and writers.

`open_session` alone decides which server the command line uses: the server that HPQ_REDIS_URL
names, the server that `hpq connect` reaches, the server that this machine has joined, or the
private server under HPQ_HOME. `api_session` opens it for a call of the Python API.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from redis import Redis
from redis.exceptions import RedisError

from hpq.access import connection_record
from hpq.access.connection_record import ConnectionRecord
from hpq.code.signing import RowSigner, unverified
from hpq.domain.durations import clock
from hpq.domain.sweep import SweepView
from hpq.errors import DecodeError, Forbidden, OutOfReach
from hpq.notice import Notice, warn
from hpq.private_files import replace_private
from hpq.private_server.attach_or_start import Attached, attach
from hpq.private_server.keeper import QUIET_S
from hpq.redis import tls
from hpq.redis.client import FIRST_S, connect, guard, usable_version, wait_patiently
from hpq.redis.credentials import FILE_SCHEME, redact
from hpq.redis.round_trips import Question
from hpq.settings import Settings, read, unknown_settings
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.sweep_reader import SweepReader
from hpq.store.worker_reader import info_question

if TYPE_CHECKING:
    from hpq.store.sweep_writer import SweepWriter


def load_settings() -> Settings:
    """Read the settings in force: the environment, and what `hpq connect` or `hpq join` keeps.

    Raises:
        SettingsError: as `hpq.settings.read`.
        OutOfReach: the background connection is lost.
    """
    return read(environment())


def environment() -> Mapping[str, str]:
    """Return the environment with the server in use. Raises as `load_settings`."""
    settings = read(os.environ)
    warn_of_unknown_settings()
    return connection_record.with_connection(os.environ, settings.home)


@cache
def warn_of_unknown_settings() -> None:
    """Print, once, a warning for each HPQ_* variable that is no setting."""
    for notice in unknown_settings(os.environ):
        warn(notice)


class Server(Enum):
    """Which Redis a session uses: this decides how workers are started."""

    PRIVATE = auto()  # of this user on this machine
    SHARED = auto()  # HPQ_REDIS_URL or `hpq join`
    CLUSTER = auto()  # `hpq connect`: workers are pods
    SLURM = auto()  # `hpq slurm --redis`: workers are jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An open connection to Redis, with the readers and writers that use it."""

    settings: Settings
    url: str
    redis: Redis
    keys: Keys
    reader: StoreReader
    context: StoreContext  # which the writers of the store share
    version: str = ""  # of Redis
    attached: Attached | None = None  # the private server, if the session uses it
    connection: ConnectionRecord | None = None  # of `hpq connect`, if the URL goes through it

    def writer(self) -> SweepWriter:
        """Build the writer that creates sweeps and adds trials."""
        from hpq.store.sweep_writer import SweepWriter  # noqa: PLC0415  most commands only read

        return SweepWriter(self.context)

    def find(self, ref: str | None) -> str:
        """Return the id of the sweep that a reference names; None: this user's last sweep.

        Raises:
            NotFound: no sweep matches, or several do.
        """
        return self.reader.sweeps.resolve(ref, self.settings.user)

    def sweep(self, ref: str | None) -> SweepView:
        """Return the sweep that a reference names, as `find`."""
        return self.reader.sweeps.get(self.find(ref))

    def verifiable(self, ref: str | None) -> SweepView:
        """Return a sweep, as `sweep`, for a command that prints its parameters.

        Warns if this machine's key cannot verify them.
        """
        found = self.sweep(ref)
        self.warn_if_unverified(found)
        return found

    def warn_if_unverified(self, sweep: SweepView) -> None:
        """Warn if this machine's key cannot verify the parameters of a sweep."""
        if notice := unverified(self.settings, sweep):
            warn(notice)

    def several(self, refs: Sequence[str] | None) -> list[SweepView]:
        """Return sweeps, as `verifiable`, once each."""
        found = [self.verifiable(ref) for ref in refs or (None,)]
        return list({sweep.id: sweep for sweep in found}.values())

    def trouble(self) -> str:
        """Return why `hpq connect` cannot reach Redis; "" if it logged no reason."""
        return connection_record.current_trouble(self.settings.home, self.connection)

    @property
    def is_private(self) -> bool:
        """True on the embedded server, which only this user can reach."""
        return self.attached is not None

    @property
    def kubectl(self) -> str:
        """`kubectl` with the cluster of the connection, for messages."""
        return self.connection.kubectl if self.connection else connection_record.KUBECTL

    @property
    def server(self) -> Server:
        """The kind of the server."""
        if self.is_private:
            return Server.PRIVATE
        if self.connection is not None:
            return Server.CLUSTER
        return Server.SLURM if self.url.startswith(FILE_SCHEME) else Server.SHARED


def reader_of(redis: Redis, settings: Settings) -> StoreReader:
    """Return a reader that names parameters that are not as this machine's key signed them."""
    keys = Keys(settings.prefix)
    sweeps = SweepReader(redis, keys)
    check_of = RowSigner.checks(settings, sweeps.record)
    return StoreReader(redis, keys, settings.lease_ms, check_of, sweeps)


class _SeenData:
    """How new the data of a server were when this HPQ_HOME saw them last: a time in ms."""

    def __init__(self, home: Path, server: str) -> None:
        self._path = home / "seen.json"
        self._server = server

    def question(self, reader: StoreReader) -> Question[Notice | None]:
        """Ask for a notice, once, if the server lacks data that this HPQ_HOME has seen."""
        seen_ms = self._read().get(self._server, 0)
        try:
            newest_ms, lost_after_ms = yield from reader.lost_question(seen_ms)
        except DecodeError:  # of no sweep: no command may fail for it
            return None
        if newest_ms != seen_ms:
            self._keep(newest_ms)
        return None if lost_after_ms is None else _went_back(lost_after_ms)

    def record_newest_write(self, context: StoreContext) -> None:
        """Let Redis record that it has the changes of this command, and remember it."""
        with suppress(RedisError):  # the changes themselves are made
            self._keep(context.record_newest_write())

    def _read(self) -> dict[str, int]:
        with suppress(OSError, TypeError, ValueError):
            return dict(json.loads(self._path.read_text("utf-8")))
        return {}

    def _keep(self, newest_ms: int) -> None:
        known = {**self._read(), self._server: newest_ms}
        with suppress(OSError):  # a home that cannot be written remembers nothing
            replace_private(self._path, json.dumps(known).encode())


def _version_question(url: str) -> Question[str]:
    """Ask for the version of Redis.

    Raises:
        ServerTooOld: hpq cannot use the server.
    """
    info = yield from info_question("server")
    return usable_version(info, url)


def _went_back(after_ms: int) -> Notice:
    """Return the notice of a server that lost what was written after this time; 0: all data."""
    if after_ms:
        lost = f"what was written after {clock(after_ms)}: "
        lost += "the server restarted without its last writes"
        then = "trials whose results are lost run again; `hpq ls` lists the sweeps that are left"
    else:
        lost = "all sweeps: the server restarted empty"
        then = "restore its data, or enqueue the sweeps again"
    text = f"Redis has lost {lost}, or another server answers at this address; {then}"
    return Notice("server-went-back", text)


@contextmanager
def open_session(settings: Settings | None = None) -> Iterator[Session]:
    """Open a session for one command; turn errors of Redis into errors of one line.

    Raises:
        SettingsError, OutOfReach, Forbidden: as `load_settings`, `connect` and `attach`.
    """
    settings = settings or load_settings()
    attached = None if settings.redis_url else attach(settings.home)
    url = settings.redis_url or (attached.url if attached else "")
    connection = connection_record.connection_of_url(settings.home, url)
    if tls.is_unverified(url):
        warn(tls.UNVERIFIED)
    # Without the PING of a new connection, which is a round trip: each call may be sent twice.
    first = connect(url, patience_s=FIRST_S, check_idle_s=0)
    with explain_errors(connection, settings), closing(first) as redis, guard(url):
        keys = Keys(settings.prefix)
        reader = reader_of(redis, settings)
        context = StoreContext.open(redis, keys)
        where = connection.where if connection else redact(url)
        seen = _SeenData(settings.home, f"{where} {keys.prefix}")
        version, notice = reader.ask(_version_question(url), seen.question(reader))
        wait_patiently(redis)
        if notice:
            warn(notice)
        yield Session(
            settings=settings,
            url=url,
            redis=redis,
            keys=keys,
            reader=reader,
            context=context,
            version=version,
            attached=attached,
            connection=connection,
        )
        if context.scripts.has_run:
            seen.record_newest_write(context)


@contextmanager
def explain_errors(connection: ConnectionRecord | None, settings: Settings) -> Iterator[None]:
    """Add to errors why the connection of `hpq connect` cannot reach Redis."""
    try:
        yield
    except Forbidden as error:
        if connection is None or error.code != "redis-password-refused":
            raise
        raise Forbidden(
            f"{connection.where}: Redis rejects the password of {connection.user}; if its Secret"
            " was replaced, the connection reads the new password: try again in 30 s",
            code="redis-password-refused",
        ) from None
    except OutOfReach:
        why = connection_record.current_trouble(settings.home, connection)
        if connection is None or not why:
            raise
        raise OutOfReach(f"{connection.where}: {why}", code="connection-lost") from None


_attached: dict[Path, Attached] = {}  # the private servers that this process keeps running


@contextmanager
def api_session(sid: str | None = None) -> Iterator[Session]:
    """Open a session for one call; `sid` is the sweep that the call reads.

    The first call on a private server keeps it running until this process ends.

    Raises:
        SettingsError, OutOfReach, Forbidden: as `open_session`.
        NotFound: the sweep was removed.
    """
    with open_session() as session:
        if sid:
            session.find(sid)
        server = session.attached
        if server is None or _attached.setdefault(server.home.path, server) is server:
            yield session
            return
        try:
            yield session
        finally:
            server.release(linger_s=QUIET_S)
