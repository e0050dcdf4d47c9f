"""The artifacts of an attempt (the files in HPQ_OUT): to the file store at its end, or later.

If the store does not take them, the result is committed at once, its record says where the files
wait, and they stay on the disk of this machine. A note beside them has what a later `attach` needs.
Any worker that shares the work directory copies the files when the store is back; what Redis
answers then decides whether they go.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from hpq.domain.attempt import AttachReply
from hpq.domain.trial import Artifacts, Claim, Unstored
from hpq.filestore.base import LATE_ARTIFACTS, Files, GoOn, copy_in, folder_of, is_safe_name
from hpq.filestore.stores import regular
from hpq.settings import IN_POD
from hpq.store.trials import TrialStore
from hpq_worker.files.workdir import attempt_of

log = logging.getLogger("hpq.files")
IN_PODS = "`store: {}` in cluster.yaml"  # gives pods a store
_MOST_FILES = 1_000
_MOST_SHOWN = 5  # directories that a message names
_NOTE = "unstored"
_LONGEST_BYTES = 1_000
LogLine = Callable[[str], None]


def publish(
    out: Path, files: Files | None, to: str, go_on: GoOn, log_line: LogLine
) -> Artifacts | None:
    """Copy the files in `out`; None if there are none, or no store. `log_line` names what stays.

    Raises:
        OSError: the store does not take the files, or `go_on` returned False; they stay in `out`.
    """
    sizes = {name: stat.st_size for name, stat in regular(out)}
    if sizes and files is None:
        log_line(f"HPQ_STORE is not set; the trial's files {remain(out)}")
    invalid = sorted(name for name in sizes if not is_safe_name(name))
    names = sorted(sizes.keys() - set(invalid))[:_MOST_FILES]
    if files is None or not names:
        return None
    if invalid or len(names) < len(sizes) - len(invalid):
        log_line(f"files with unsafe names, or beyond {_MOST_FILES}, are not stored; see {out}")
    if not copy_in(out, names, files, to, go_on):
        raise OSError("the worker is stopping")
    return Artifacts(store=files.id, path=to, files={name: sizes[name] for name in names})


def remove(out: Path, stored: Artifacts) -> None:
    """Remove `out` if the store has all files in it."""
    if all(name in stored.files for name, _ in regular(out)):
        shutil.rmtree(out, ignore_errors=True)


def remain(out: Path) -> str:
    """Return where files remain that are in no store, and for how long."""
    if is_in_pod():
        return f"stay at {out} and are lost with this pod; {IN_PODS} adds a store"
    return f"stay at {out} on this machine"


def wait(places: Sequence[Path]) -> str:
    """Return where files wait for a store that failed, and for how long."""
    shown = ", ".join(map(str, places[:_MOST_SHOWN]))
    if len(places) > _MOST_SHOWN:
        shown += f" and {len(places) - _MOST_SHOWN} more"
    if is_in_pod():
        return f"they are lost when this pod ends: {shown}"
    return f"they wait until a worker with this directory can store them: {shown}"


def no_store() -> str:
    """Return why an attempt without a store cannot resume, with the remedy."""
    return "HPQ_STORE is not set" + (f"; {IN_PODS} adds a store" if is_in_pod() else "")


def is_in_pod() -> bool:
    """Return True if the disk of this process goes with its pod."""
    return bool(os.environ.get(IN_POD))


def keep_unstored(work: Path, prefix: str, store: str, claim: Claim) -> Unstored:
    """Let the files in `work`/out wait for their store.

    Raises:
        OSError: the disk does not take the note.
    """
    draft = work / f"{_NOTE}.tmp"
    with draft.open("w", encoding="utf-8") as file:
        file.write("\n".join((prefix, store, claim.nonce)))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(work / _NOTE)
    return Unstored(store=store, path=_place(prefix, claim), folder=str(work / "out"))


def is_unstored(work: Path) -> bool:
    """Return True while files in a work directory wait for their store."""
    return (work / _NOTE).exists()


def _place(prefix: str, claim: Claim) -> str:
    # Not where the first try copied to: it may hang still, and removes what it has written.
    return f"{folder_of(prefix, claim.trial, claim.token)}/{LATE_ARTIFACTS}"


class UnstoredFiles:
    """The files of one prefix that wait below `work_root`."""

    def __init__(self, work_root: Path, prefix: str, store: TrialStore) -> None:
        self._folder = work_root / "work"
        self._prefix = prefix
        self._store = store
        self._copied = dict[Path, Artifacts]()  # that Redis has not answered
        self._error = ""

    def deliver(self, files: Files, go_on: GoOn) -> None:
        """Copy what waits for this store, and let Redis name it.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        for note in sorted(self._folder.glob(f"*/{_NOTE}")):
            is_ended = not note.parent.with_name(f"{note.parent.name}.lock").exists()
            if is_ended and go_on():
                self._open(note, files, go_on)

    def _open(self, note: Path, files: Files, go_on: GoOn) -> None:
        """Deliver the files of a note, unless another worker does."""
        try:
            # For writing too: some network file systems lock nothing else.
            fd = os.open(note, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # another worker was quicker, or another user's
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return
        except OSError:  # a file system without locks: a second copy is as good
            pass
        try:
            words = os.pread(fd, _LONGEST_BYTES, 0).decode("utf-8", "replace").split("\n")
            found = attempt_of(note.parent.name)
            is_ours = words[:2] == [self._prefix, files.id]
            if found and is_ours and len(words) == 3 and note.exists():
                trial, token = found
                claim = Claim(trial=trial, attempt=int(token.partition("-")[0]), nonce=words[2])
                self._deliver(note.parent, claim, files, go_on)
        finally:
            os.close(fd)

    def _deliver(self, work: Path, claim: Claim, files: Files, go_on: GoOn) -> None:
        out = work / "out"
        try:
            if work not in self._copied:
                self._copied[work] = self._copy(out, claim, files, go_on)
            stored = self._copied[work]
            answer = self._store.attach_files(claim, stored)
            if answer is AttachReply.UNKNOWN:  # its result, or the data of Redis, may return
                return
            if answer is AttachReply.STALE:
                files.remove(stored.path)
        except OSError as error:
            if go_on() and str(error) != self._error:  # each retry would log it
                self._error = str(error)
                log.warning("%s: cannot store the files of this trial now: %s", claim.trial, error)
            return
        self._error = ""
        del self._copied[work]
        if answer is AttachReply.STALE:
            shutil.rmtree(work, ignore_errors=True)
            log.info("%s: its files are not needed any more", claim.trial)
            return
        (work / _NOTE).unlink(missing_ok=True)
        remove(out, stored)
        if not out.exists():
            shutil.rmtree(work, ignore_errors=True)
        log.info("%s: its files are stored now", claim.trial)

    def _copy(self, out: Path, claim: Claim, files: Files, go_on: GoOn) -> Artifacts:
        to = _place(self._prefix, claim)
        left = publish(out, files, to, go_on, lambda line: log.warning("%s", line))
        return left or Artifacts(store=files.id, path=to)  # another process removed the files
