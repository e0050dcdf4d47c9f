"""Check the server and its configuration, the workers, the store, the data and this machine."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from hpq import datasets
from hpq.access.home_files import bytes_of
from hpq.access.session import Session, open_session
from hpq.code.command import interpreter, is_own
from hpq.code.signing import fingerprint, key_of, verifying_key
from hpq.domain.status import Worker
from hpq.domain.sweep import SweepView
from hpq.error_codes import Code, ExitCode
from hpq.errors import DataMissing, HpqError, SettingsError
from hpq.extras import install_command
from hpq.filestore.stores import free_bytes, location, low_disk, open_files
from hpq.gpus import cuda_mismatch, gpu_names
from hpq.redis.acl import DEFAULT_OFF, ROLES, person_of
from hpq.redis.credentials import parse, redact
from hpq.redis.server import read_acl, read_status
from hpq.settings import Settings
from hpq.store.worker_reader import server_memory
from hpq_views.text.text import size, trials_of
from hpq_views.why.able_workers import how_to_start
from hpq_views.why.pods import why_no_pod_runs
from hpq_views.why.verdict import explain_disks, explain_troubles
from hpq_views.why.warn import POD_STORE

_NEWEST = 20  # sweeps that are checked
_STORE = "HPQ_STORE=/a/directory/that/all/workers/see, or a URL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `level` is good, note, poor or wrong; wrong sets the exit code."""

    level: str
    code: Code
    what: str
    remedy: str = ""
    exit_code: int = int(ExitCode.OUT_OF_REACH)

    @classmethod
    def of(cls, error: HpqError) -> Finding:
        """Make a finding of level wrong from an error."""
        exit_code = int(error.exit_code)
        return cls(level="wrong", code=error.code, what=str(error), exit_code=exit_code)


good, note, poor, wrong = (partial(Finding, level) for level in ("good", "note", "poor", "wrong"))


def checkup(settings: Settings, *, in_cluster: bool = False) -> list[Finding]:
    """Run all checks; a check that fails with an error is a finding, too.

    `in_cluster`: other checks are of the cluster of Redis, and those of this machine are skipped.
    """
    found: list[Finding] = []
    try:
        with open_session(settings) as session:
            found += _check_redis(session, in_cluster)
    except HpqError as error:
        found.append(Finding.of(error))
    return found + (list(_check_machine(settings)) if not in_cluster else [])


def _check_redis(session: Session, in_cluster: bool) -> Iterator[Finding]:
    yield good("redis-answers", f"{redact(session.url)} answers: Redis {session.version}")
    yield from _server(session)
    yield from _workers(session, in_cluster)
    for sweep in session.reader.sweeps.get_each(session.reader.sweeps.ids(_NEWEST)):
        for notice in explain_troubles(sweep, ()) if isinstance(sweep, SweepView) else ():
            yield poor(notice.code, f"{sweep.id}: {notice.text}")


def _server(session: Session) -> Iterator[Finding]:
    memory, status = server_memory(session.redis), read_status(session.redis)
    if memory.evicts:
        yield wrong(
            "redis-evicts",
            f"maxmemory-policy is {memory.policy}: a full server would delete trials",
            "CONFIG SET maxmemory-policy noeviction; set it in redis.conf, too",
        )
    if not memory.has_room(0):
        yield poor(
            "redis-memory",
            f"{memory.used / memory.limit:.0%} of maxmemory is used: hpq enqueue fails"
            + (", and no trial starts" if memory.is_full else ""),
            "find large sweeps with `hpq ls --all`, then `hpq archive` and `hpq rm`"
            " them; or raise maxmemory",
        )
    if not memory.limit and not session.is_private:
        yield note(
            "redis-memory-unlimited",
            "maxmemory is not set",
            "set it to the memory that the machine can spare",
        )
    if not status.has_aof:
        yield poor(
            "redis-not-durable",
            "appendonly is off: if the server is killed, sweeps and results are lost",
            "CONFIG SET appendonly yes; set it in redis.conf, too",
        )
    user = parse(session.url).username or ""
    role = user.removeprefix(f"{session.settings.prefix}-")
    is_of_hpq = role in ROLES or bool(person_of(role))
    if not is_of_hpq:
        yield from _users(session, status.config_file)
    if status.role != "master":
        yield wrong(
            "redis-replica", f"the server is a {status.role}", "set HPQ_REDIS_URL to the primary"
        )


def _users(session: Session, config: str) -> Iterator[Finding]:
    """Report ACL users that a restart of the server would lose, or that would lose its data.

    Only an administrator may read them: attempts by hpq's own users would fill the ACL LOG.
    """
    acl = read_acl(session.redis)
    if acl and not acl.default_has_all:
        yield wrong(
            "acl-default-user",
            "the user `default` has no rights: after a restart, writes of scripts are missing",
            f"write {DEFAULT_OFF} in the aclfile (the user stays off), then ACL LOAD",
        )
    if not acl or not acl.unsaved:
        return
    yield poor(
        "acl-unsaved",
        f"{trials_of(acl.unsaved, 'ACL user')} and no aclfile: a restart may lose them",
        "aclfile PATH in redis.conf, with the lines of `hpq redis-acl --aclfile`"
        + (f"; or CONFIG REWRITE, which writes them into {config}" if config else ""),
    )


def _workers(session: Session, in_cluster: bool) -> Iterator[Finding]:
    workers = session.reader.workers.live()
    reasons = why_no_pod_runs(session, workers) if not in_cluster else []
    for reason in reasons:
        yield poor(reason.code, reason.text)
    if not workers and not reasons:
        # The checks of the cluster report why pods do not run, and what to do.
        remedy = "" if in_cluster else how_to_start(session.server, kubectl=session.kubectl)
        yield note("no-worker", "no worker is running", remedy)
    yield from _stores(workers)
    for notice in explain_disks(workers):
        yield poor(notice.code, notice.text)
    own_key = fingerprint(verifying_key(session.settings))
    for worker in workers:
        if own_key and worker.key not in ("", own_key):
            yield poor(
                "code-key-differs",
                f"{worker.name} has code key {worker.key}, and yours is {own_key}: it rejects"
                " code that you sign",
                "`hpq invite` here and `hpq join` there give both machines your key",
            )
        for sid, reason in worker.refuses.items():
            what = f"{worker.name} cannot run {sid}: {reason.text}"
            yield poor(reason.code, what)
    counters = session.reader.workers.counters()
    if dropped := counters.pop("histories_dropped", 0):
        yield poor(
            "histories-dropped",
            f"the full server dropped logs and curves of {trials_of(dropped)}",
            "raise maxmemory, or run `hpq archive` and then `hpq rm` on old sweeps",
        )
    for name, count in counters.items():
        yield note("counter", f"{name.replace('_', ' ')}: {count}")


def _stores(workers: Sequence[Worker]) -> Iterator[Finding]:
    without = [w for w in workers if w.store == "no"]
    if without:
        yield note(
            "workers-without-store",
            f"{trials_of(len(without), 'worker')} of {len(workers)} without HPQ_STORE, e.g."
            f" {without[0].name}: a trial that loses its worker restarts from the beginning",
            POD_STORE if any(w.pod for w in without) else _STORE,
        )


def _store(settings: Settings) -> Finding:
    """Check the file store: write, read and remove a file."""
    if not settings.store:
        if not settings.redis_url:
            return good("no-store", f"HPQ_STORE is not set: files are in {location(settings)}")
        return note(
            "no-store",
            "HPQ_STORE is not set: workers of a shared server save no checkpoints and no artifacts",
            _STORE,
        )
    url = redact(settings.store)
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
        what = f"HPQ_STORE={url} is not writable: {error.strerror or error}"
        remedy = "set HPQ_STORE to a writable directory that all workers share, or a URL"
        return wrong("store-unwritable", what, remedy, exit_code=int(ExitCode.USER))
    return good("store-works", f"HPQ_STORE={url} is writable; its id is {files.id}")


def _python(settings: Settings) -> Finding:
    """Report the Python that runs programs of workers started here."""
    try:
        python = interpreter(os.environ, settings.python)
    except SettingsError as error:
        return Finding.of(error)
    if is_own(python):
        return good("python-own", f"programs run with {python}, like hpq itself")
    how = "HPQ_PYTHON" if settings.python else "the one on PATH"
    return note(
        "python-other",
        f"programs run with {python} ({how}), hpq itself with {sys.executable}",
        "if that Python lacks your libraries, start workers in the right environment, or set"
        " HPQ_PYTHON=/env/bin/python",
    )


def _data(settings: Settings) -> Finding:
    """Report the data sets that the built-in trainers find on this machine."""
    place, there = settings.data, []
    for name in datasets.WANTED:
        with suppress(DataMissing):
            datasets.find(name, place)
            there.append(name)
    if there:
        return good("data-found", f"data sets in {place}: {', '.join(there)}")
    what, remedy = f"no data set in {place}", "`hpq data cifar10` or `hpq data mnist` downloads one"
    if place.exists() or place == settings.home / "data":
        return note("no-data", what, remedy)
    what, remedy = f"HPQ_DATA={place} does not exist", f"set it to another directory, or {remedy}"
    return wrong("no-data", what, remedy, exit_code=int(ExitCode.USER))


def _check_machine(settings: Settings) -> Iterator[Finding]:
    yield _store(settings)
    yield _python(settings)
    yield _data(settings)
    if importlib.util.find_spec("torch") is None:
        yield note(
            "no-torch",
            "torch is not installed here: built-in trainers cannot run on this machine",
            install_command("torch numpy pillow scikit-learn"),
        )
    if mismatch := cuda_mismatch():
        yield poor(
            "cuda-mismatch",
            mismatch,
            "uv pip install --torch-backend=auto --reinstall-package torch torch"
            " (the build for this driver)",
        )
    if text := low_disk(settings.work_root):
        yield poor("disk-low", text, "free space there, or set HPQ_SCRATCH to another disk")
    names = gpu_names()
    if names:
        yield good("gpus", f"GPUs here: {'; '.join(names)}")
    else:
        yield note("no-gpu", "no GPU found here: workers train on the CPU")
    try:
        key = key_of(settings, make=False)
        which = fingerprint(key) or "none yet; the first enqueue makes one"
        used = size(bytes_of(settings.home))
        free = f", {size(free_bytes(settings.home))} free" if settings.home.exists() else ""
        what = f"HPQ_HOME is {settings.home} ({used}{free}), code key {which}"
        yield good("code-key", what)
    except HpqError as error:
        yield Finding.of(error)
