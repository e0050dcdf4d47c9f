"""Read moved sweeps: restore each one, once, into a private server under HPQ_HOME/cache.

Readers then read that server as any other. It can be deleted at any time.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hpq.archive.format import Header, read
from hpq.archive.history import checksum
from hpq.archive.restore import restore
from hpq.code.signing import is_archive_signed, is_personal, verifying_key
from hpq.connection.client import connect
from hpq.connection.credentials import redact
from hpq.domain.status import MovedSweep
from hpq.errors import NotFound, OutOfReach, UserError
from hpq.filestore.base import Gone, copy_out
from hpq.filestore.local import location, open_files
from hpq.settings import Settings
from hpq.store.archive import cached_archive, keep_cached_archive, prepare_cache
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.worker_reader import server_memory
from hpq_producer.embedded_redis.attach import Attached, attach, locked

_MOST = 20  # sweeps in the cache


@cache
def _cache_server(home: Path) -> Attached:
    return attach(home)  # until this process ends


def restored(settings: Settings, moved: MovedSweep) -> StoreContext:
    """Return a server that has a moved sweep; fetch its archive if no cache has it.

    Raises:
        OutOfReach: the store cannot be opened, or no server can be started.
        NotFound, UserError: the archive is gone or damaged, this machine's key did not sign it, or
            the store is another one.
    """
    sid = moved.view.id
    _verify(settings, moved)
    server = _cache_server(settings.cache / "history")
    context = StoreContext.open(connect(server.url), Keys(settings.prefix), mints=False)
    with locked(server.home, "fetch.lock"):
        if cached_archive(context, sid) != moved.sha256:
            control = SweepControl(context)
            ids = StoreReader(context.redis, context.keys, 0).sweeps.ids()
            for old in (sid, *ids[_MOST:]):
                control.remove(old)

            def make_room(_: int, weight: int) -> None:
                memory = server_memory(context.redis)
                for old in ids if memory.used + weight > memory.limit else ():
                    control.remove(old)

            prepare_cache(context, sid)
            with TemporaryDirectory(dir=settings.cache) as folder:
                restore(context, fetch(settings, moved, Path(folder)), make_room)
            keep_cached_archive(context, sid, moved.sha256)
    return context


def fetch(settings: Settings, moved: MovedSweep, folder: Path) -> Path:
    """Copy the archive of a moved sweep into a folder, and verify it.

    Raises: as `restored`.
    """
    _verify(settings, moved)
    sid, place = moved.view.id, location(settings)
    file = folder / f"{sid}.hpq"
    where = f"sweep {sid} was moved to store {moved.store}, as {moved.path}"
    try:
        files = open_files(place, creates=False)
        if files.id != moved.store:
            text = (
                f"{where}, but {redact(place)} is store {files.id}; mount the other store, or set"
            )
            raise UserError(f"{text} HPQ_STORE to that of the workers", code="store-differs")
        copy_out(files, moved.path, file)
    except Gone:
        text = f"{where}, but {redact(place)} has no such file; restore it from a backup of the"
        raise NotFound(f"{text} store", code="archive-missing") from None
    except OSError as error:
        text = f"{where}, and {redact(place)} cannot be read: {error}; mount it, or set HPQ_STORE"
        raise OutOfReach(text, code="store-unusable") from None
    with file.open("rb") as copy:
        if (found := checksum(copy)) != moved.sha256:
            text = f"{where}, and is damaged: its SHA-256 is {found}, not {moved.sha256}"
            raise UserError(text, code="archive-invalid")
    header = next(read(file))
    if not isinstance(header, Header) or header.sweep != sid:
        raise UserError(f"{where}, and is the archive of another sweep", code="archive-invalid")
    return file


def _verify(settings: Settings, moved: MovedSweep) -> None:
    """Refuse an archive that this machine's key, if it has one, did not sign.

    Workers sign archives with the cluster's key, which a personal key cannot verify; the rows of
    its user's trials have signatures of their own.
    """
    key = verifying_key(settings)
    if key and not is_personal(key) and not is_archive_signed(key, settings.prefix, moved):
        sid = moved.view.id
        text = f"{sid}: not signed with this machine's key: its archive, {moved.path} of store"
        remedy = "copy it from there and run `hpq archive --restore FILE` if you trust that store"
        raise UserError(f"{text} {moved.store}; {remedy}", code="archive-unverified")
