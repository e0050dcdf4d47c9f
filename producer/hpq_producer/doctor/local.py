"""What `hpq doctor` looks at: the server and how it is set, the workers, the data, the code key."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from redis import Redis
from redis.exceptions import RedisError

from hpq.code.command import interpreter, is_own
from hpq.code.signing import fingerprint, key_of
from hpq.codes import Code
from hpq.connection.client import FIRST_S, check_server, connect, guard
from hpq.connection.credentials import redact
from hpq.connection.server import read_acl, read_status
from hpq.domain.snapshot import Worker
from hpq.errors import ExitCode, HpqError, SettingsError
from hpq.filestore.local import open_files
from hpq.gpus import cuda_mismatch, gpu_names
from hpq.settings import Settings
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.worker_reader import server_memory
from hpq_producer import connection_record
from hpq_producer.diagnosis.notices import POD_STORE
from hpq_producer.diagnosis.waiting import how_to_start
from hpq_producer.doctor.home import describe_size
from hpq_producer.embedded_redis.attach import attach
from hpq_producer.manifests.acl import DEFAULT_OFF, ROLES
from hpq_producer.session import explain_errors
from hpq_producer.terminal.text import trials_of

_STORE = "HPQ_STORE=/a/directory/that/all/workers/see, or a URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at; `level` is good, note, poor or wrong; what is wrong has an exit code."""

    level: str
    code: Code
    what: str
    remedy: str = ""
    exit_code: int = int(ExitCode.OUT_OF_REACH)

    @classmethod
    def of(cls, error: HpqError) -> Finding:
        """What could not be looked at, or is not there."""
        exit_code = int(error.exit_code)
        return cls(level="wrong", code=error.code, what=str(error), exit_code=exit_code)


def checkup(settings: Settings, *, in_cluster: str | None = None) -> list[Finding]:
    """Look at everything; what cannot be looked at is a finding, too.

    `in_cluster` has the flags by which a command means the cluster that Redis is in; what concerns
    workers on this machine is left out then.
    """
    found: list[Finding] = []
    try:
        with explain_errors(
            connection_record.connection_of_url(settings.home, settings.redis_url), settings
        ):
            found += _check_redis(settings, in_cluster)
    except HpqError as error:
        found.append(Finding.of(error))
    except RedisError as error:
        found.append(Finding(level="wrong", code="redis-error", what=f"the server: {error}"))
    return found + (list(_check_machine(settings)) if in_cluster is None else [])


def _check_redis(settings: Settings, in_cluster: str | None) -> Iterator[Finding]:
    url = settings.redis_url or attach(settings.home).url
    redis = connect(url, retries=1, patience_s=FIRST_S)
    with guard(url):
        version = check_server(redis, url)
        yield Finding(
            level="good", code="redis-answers", what=f"{redact(url)}: Redis {version} answers"
        )
        yield from _server(redis, private=not settings.redis_url, user=urlsplit(url).username or "")
        yield from _workers(settings, redis, in_cluster)


def _server(redis: Redis, *, private: bool, user: str) -> Iterator[Finding]:
    memory = server_memory(redis)
    if memory.evicts:
        yield Finding(
            level="wrong",
            code="redis-evicts",
            what=f"maxmemory-policy is {memory.policy}: under pressure it would throw away trials",
            remedy="CONFIG SET maxmemory-policy noeviction, and in redis.conf",
        )
    if not memory.has_room(0):
        yield Finding(
            level="poor",
            code="redis-memory",
            what=f"{memory.used / memory.limit:.0%} of maxmemory is used: enqueue refuses"
            + (", and no trial starts" if memory.is_full else ""),
            remedy="`hpq ls --all --size` shows what is large; `hpq archive` it and then"
            " `hpq rm`, or raise maxmemory",
        )
    if not memory.limit and not private:
        yield Finding(
            level="note",
            code="redis-memory-unlimited",
            what="maxmemory is not set",
            remedy="set it to what the machine can spare",
        )
    status = read_status(redis)
    if not status.has_aof:
        yield Finding(
            level="poor",
            code="redis-not-durable",
            what="appendonly is off: a killed server loses sweeps and results",
            remedy="CONFIG SET appendonly yes, and in redis.conf",
        )
    if user.rpartition("-")[2] not in ROLES:
        yield from _users(redis, status.config_file)
    if status.role != "master":
        yield Finding(
            level="wrong",
            code="redis-replica",
            what=f"the server is a {status.role}",
            remedy="use the primary",
        )


def _users(redis: Redis, config: str) -> Iterator[Finding]:
    """Yield what a restart of the server would lose because of its ACL users.

    Only an administrator may ask: a question by hpq's own users would fill the server's ACL LOG.
    """
    acl = read_acl(redis)
    if acl and not acl.default_has_all:
        yield Finding(
            level="wrong",
            code="acl-default-user",
            what="the user `default` has no rights: a restart leaves out what scripts wrote",
            remedy=f"in the aclfile: {DEFAULT_OFF} (it is off all the same), then ACL LOAD",
        )
    if not acl or not acl.unsaved:
        return
    yield Finding(
        level="poor",
        code="acl-unsaved",
        what=f"{trials_of(acl.unsaved, 'ACL user')} and no aclfile: a restart may lose them",
        remedy="aclfile PATH in redis.conf, with the lines of `hpq redis-acl --aclfile`"
        + (f"; or CONFIG REWRITE, which writes them into {config}" if config else ""),
    )


def _workers(settings: Settings, redis: Redis, in_cluster: str | None) -> Iterator[Finding]:
    reader = StoreReader(redis, Keys(settings.prefix), settings.lease_ms)
    workers = reader.workers.live()
    if not workers:
        connected = (
            connection_record.connection_of_url(settings.home, settings.redis_url) is not None
        )
        remedy = how_to_start(in_cluster=connected)
        if in_cluster is not None:  # what keeps pods from it was told with them
            remedy = f"`hpq scale N{in_cluster}` starts some"
        yield Finding(level="note", code="no-worker", what="no worker is alive", remedy=remedy)
    yield from _stores(workers)
    own_key = _fingerprint(settings)
    for worker in workers:
        if own_key and worker.key not in ("", own_key):
            yield Finding(
                level="poor",
                code="code-key-differs",
                what=f"{worker.name} has code key {worker.key}, and yours is {own_key}",
                remedy="it runs nothing that you sign; give both the same HPQ_CODE_KEY",
            )
        for sid, reason in worker.refuses.items():
            what = f"{worker.name} leaves {sid} alone: {reason.text}"
            yield Finding(level="poor", code=reason.code, what=what)
    counters = reader.workers.counters()
    if dropped := counters.pop("histories_dropped", 0):
        yield Finding(
            level="poor",
            code="histories-dropped",
            what=f"logs and curves of {trials_of(dropped)} were dropped so far: the server was"
            " full",
            remedy="raise maxmemory, or `hpq archive` and then `hpq rm` old sweeps",
        )
    for name, count in counters.items():
        yield Finding(level="note", code="counter", what=f"{name.replace('_', ' ')}: {count}")


def _stores(workers: Sequence[Worker]) -> Iterator[Finding]:
    without = [w for w in workers if w.store == "no"]
    if without:
        yield Finding(
            level="note",
            code="workers-without-store",
            what=f"{trials_of(len(without), 'worker')} of {len(workers)} without HPQ_STORE,"
            f" such as {without[0].name}: a trial that loses it starts again from its beginning",
            remedy=POD_STORE if any(w.pod for w in without) else _STORE,
        )


def _fingerprint(settings: Settings) -> str:
    with suppress(HpqError):  # `_check_machine` tells
        return fingerprint(key_of(settings, make=False))
    return ""


def _store(settings: Settings) -> Finding:
    """Whether files can be kept: one is written, read and removed."""
    if not settings.store:
        return Finding(
            level="note",
            code="no-store",
            what="HPQ_STORE is not set here: checkpoints and artifacts are kept by `hpq run` alone",
            remedy=_STORE,
        )
    place = redact(settings.store)
    try:
        files = open_files(settings.store)
        folder = f"{settings.prefix}/doctor-{secrets.token_hex(4)}"
        with files.write(f"{folder}/probe") as file:
            file.write(b"probe")
        with files.read(f"{folder}/probe") as file:
            file.read(8)
        files.remove(folder)
    except SettingsError as error:
        return Finding.of(error)
    except OSError as error:
        what = f"HPQ_STORE={place} cannot be written: {error.strerror or error}"
        remedy = "name a directory that you may write and that all workers see, or a URL"
        return Finding(
            level="wrong",
            code="store-unwritable",
            what=what,
            remedy=remedy,
            exit_code=int(ExitCode.USER),
        )
    return Finding(
        level="good",
        code="store-works",
        what=f"HPQ_STORE={place} can be written; its id is {files.id}",
    )


def _python(settings: Settings) -> Finding:
    """Which Python the programs of workers started here get."""
    try:
        python = interpreter(os.environ, settings.python)
    except SettingsError as error:
        return Finding.of(error)
    if is_own(python):
        return Finding(
            level="good", code="python-own", what=f"programs run in {python}, as hpq itself does"
        )
    how = "HPQ_PYTHON" if settings.python else "the one on PATH"
    return Finding(
        level="note",
        code="python-other",
        what=f"programs run in {python} ({how}), hpq itself in {sys.executable}",
        remedy="right where that one has your libraries; else start workers where their"
        " environment is active, or set HPQ_PYTHON=/its/bin/python",
    )


def _check_machine(settings: Settings) -> Iterator[Finding]:
    yield _store(settings)
    yield _python(settings)
    if settings.data is None:
        yield Finding(
            level="note",
            code="no-data",
            what="HPQ_DATA is not set: cifar10 and mnist will not find their images here",
            remedy="HPQ_DATA=/where/the/data/sets/lie",
        )
    elif not settings.data.exists():
        yield Finding(level="wrong", code="no-data", what=f"HPQ_DATA: {settings.data} is not there")
    if importlib.util.find_spec("torch") is None:
        yield Finding(
            level="note",
            code="no-torch",
            what="torch is not installed here: shipped trainers run elsewhere only",
            remedy="pip install 'hpq[trainers]'",
        )
    if mismatch := cuda_mismatch():
        yield Finding(
            level="poor",
            code="cuda-mismatch",
            what=mismatch,
            remedy="uv pip install --torch-backend=auto --reinstall-package torch torch"
            " (the build for this driver)",
        )
    names = gpu_names()
    if names:
        yield Finding(level="good", code="gpus", what=f"GPUs here: {'; '.join(names)}")
    else:
        yield Finding(
            level="note", code="no-gpu", what="no GPU is seen here: workers would train on the CPU"
        )
    try:
        key = key_of(settings, make=False)
        which = fingerprint(key) or "none yet; the first enqueue makes one"
        yield Finding(
            level="good",
            code="code-key",
            what=f"HPQ_HOME is {settings.home} ({describe_size(settings.home)}), code key {which}",
        )
    except HpqError as error:
        yield Finding.of(error)
