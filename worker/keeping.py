"""Between the directories of an attempt and the store of files: checkpoints and artifacts.

Training code writes into a local directory, as it likes. A thread of its own looks at that, so
that neither the pipes nor the beats ever wait for a disk: what has changed, and is the same at two
looks, is copied under a new number, and the beat publishes it. Nothing here fails a trial.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from hpq.files import Files, copy_in, copy_out, folder_of, is_inert, regular
from hpq.trial import Artifacts, Checkpoint, Claim
from worker.collector import Collector
from worker.environment import Place

log = logging.getLogger("hpq.files")
_LOOK_S = 0.25
_AFTER_ERROR_S = 2.0
_RESTLESS = 8  # looks, after which a single file that is always replaced is taken as it is
_STUCK_S = 5.0  # a store that hangs is not waited for longer
_TRIES_S = (0.0, 0.5, 2.0)  # pauses before each try to copy artifacts
_MOST_FILES = 1_000

Signature = tuple[tuple[str, int, int], ...]  # name, bytes and mtime in ns of each file


def look(folder: Path) -> Signature:
    """What lies in a folder; drafts (.name, name.tmp) and what cannot be stored do not count."""
    found = (
        (name, stat.st_size, stat.st_mtime_ns)
        for name, stat in regular(folder)
        if is_inert(name) and not name.endswith(".tmp") and os.path.basename(name)[0] != "."
    )
    return tuple(sorted(found))


class Keeper:
    """Keeps what one attempt leaves; `files` is None where the worker has no store."""

    def __init__(
        self,
        files: Files | None,
        prefix: str,
        claim: Claim,
        place: Place,
        collector: Collector,
        nudge: Callable[[], None],
    ) -> None:
        self._files, self._claim, self._place = files, claim, place
        self._collector, self._nudge = collector, nudge
        self._base = folder_of(prefix, claim.trial, claim.attempt)
        self._number = 0
        self._over = Event()
        self._thread: Thread | None = None
        self._kept: Signature = ()  # what the newest copy in the store was made of
        self._seen: Signature = ()  # at the last look
        self._mark = Checkpoint(store="", path="")  # where training stood when that was new
        self._copies: list[Checkpoint] = []  # in the store, oldest first
        self._changes = 0  # looks in a row that saw something new
        self._complaint = ""

    # --- the beginning --------------------------------------------------------------------------

    def restore(self) -> None:
        """Put the last published checkpoint into the attempt's directory, or say why not.

        Raises:
            OSError: the store or the disk does not work now; another worker may be better off.
        """
        pointer = self._claim.checkpoint
        if pointer is None:
            if self._claim.attempt > 1:
                why = "no checkpoint was kept" if self._files else "there is no HPQ_STORE here"
                self._say(f"attempt {self._claim.attempt} starts from the beginning: {why}")
            return
        why = self._fetch(pointer)
        if why:
            self._collector.restart(why)
            self._say(f"training starts again: {why}")
            return
        self._copies.append(pointer)
        self._kept = look(self._place.checkpoint)
        self._collector.resume(pointer)
        self._say(f"training goes on from the checkpoint of step {pointer.step}")

    def _fetch(self, pointer: Checkpoint) -> str:
        if self._files is None:
            return f"its checkpoint is in store {pointer.store}, and this worker has no HPQ_STORE"
        if self._files.id != pointer.store:
            return f"its checkpoint is in store {pointer.store}, and this worker's is another"
        if not is_inert(pointer.path):
            return "the path of its checkpoint leads out of the store"
        names = [name for name in self._files.names(pointer.path) if is_inert(name)]
        try:
            for name in names:
                path = self._place.checkpoint / name
                copy_out(self._files, f"{pointer.path}/{name}", path)
        except FileNotFoundError:
            names = []
        if not names:
            shutil.rmtree(self._place.checkpoint)
            self._place.checkpoint.mkdir()
            return "the files of its checkpoint are gone from the store"
        return ""

    def _say(self, line: str) -> None:
        log.warning("%s: %s", self._claim.trial, line)
        self._collector.log(f"hpq: {line}\n".encode())

    # --- while it trains ------------------------------------------------------------------------

    def start(self) -> None:
        """Look at the checkpoints from now on."""
        if self._files is not None:
            self._thread = Thread(target=self._loop, name="keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Look no more; a copy under way is given up."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_STUCK_S)

    def _loop(self) -> None:
        wait_s = _LOOK_S
        while not self._over.wait(wait_s):
            wait_s = _LOOK_S if self._attempt(self._look) else _AFTER_ERROR_S

    def _attempt(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except OSError as error:
            complaint = f"a checkpoint could not be kept: {error}"
            if complaint != self._complaint:  # it is tried again every two seconds
                self._complaint = complaint
                self._say(f"{complaint}; training goes on")
            return False
        self._complaint = ""
        return True

    def _look(self) -> None:
        self.drop_older()
        if self._collector.is_publishing:  # Redis has not taken the last one yet
            return
        now = look(self._place.checkpoint)
        if now != self._seen:
            self._seen, self._mark = now, self._collector.mark()
            self._changes += 1
            if self._changes < _RESTLESS or len(now) != 1:
                return
        if now and now != self._kept:
            self._publish(now, self._mark, lambda: not self._over.is_set())
        self._changes = 0

    def _publish(self, found: Signature, mark: Checkpoint, go_on: Callable[[], bool]) -> None:
        assert self._files is not None
        self._number += 1
        to = f"{self._base}/checkpoint-{self._number}"
        frozen = self._freeze(found)
        if self._changes:
            found = look(frozen)
            self._over.wait(_LOOK_S)
        names = [name for name, *_ in found]
        if not names or look(frozen) != found:
            return
        if not copy_in(frozen, names, self._files, to, go_on):
            return
        if look(frozen) != found:  # written in place meanwhile: the copy may be torn
            self._files.remove(to)
            return
        self._kept = found
        self._copies.append(replace(mark, store=self._files.id, path=to))
        self._collector.publish(self._copies[-1])
        self._nudge()

    def _freeze(self, found: Signature) -> Path:
        """Links to the files: what is replaced meanwhile stays as it was."""
        folder = self._place.work / "frozen"
        shutil.rmtree(folder, ignore_errors=True)
        for name, *_ in found:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                try:
                    os.link(self._place.checkpoint / name, path)
                except PermissionError:  # a file system without links
                    shutil.copy2(self._place.checkpoint / name, path)
        return folder

    def drop_older(self) -> None:
        """Remove the checkpoints before the one that Redis points to now.

        Raises:
            OSError: the store does not let us.
        """
        published = self._collector.published
        while published in self._copies and self._copies[0] != published:
            assert self._files is not None
            self._files.remove(self._copies[0].path)
            del self._copies[0]

    # --- the end --------------------------------------------------------------------------------

    def keep_last(self) -> None:
        """Copy what lies there now that training has ended; the caller flushes the beats."""
        found = look(self._place.checkpoint)
        if self._files is not None and found and found != self._kept:
            mark, self._changes = self._collector.mark(), 0
            self._attempt(lambda: self._publish(found, mark, lambda: True))

    def artifacts(self) -> Artifacts | None:
        """Copy what the attempt left in its output directory; None where there is nothing to name.

        What cannot be copied stays in the directory, and the log says where.
        """
        out = self._place.out
        sizes = {name: stat.st_size for name, stat in regular(out)}
        odd = sorted(name for name in sizes if not is_inert(name))
        names = sorted(sizes.keys() - set(odd))[:_MOST_FILES]
        if self._files is None or not names:
            return None
        if odd or len(names) < len(sizes) - len(odd):
            self._say(f"some files are not kept: odd names, or more than {_MOST_FILES}; see {out}")
        to, complaint = f"{self._base}/artifacts", ""
        for pause_s in _TRIES_S:
            Event().wait(pause_s)
            try:
                copy_in(out, names, self._files, to, lambda: True)
            except OSError as error:
                complaint = str(error)
                continue
            if len(names) == len(sizes):
                shutil.rmtree(out, ignore_errors=True)
            files = {name: sizes[name] for name in names}
            return Artifacts(store=self._files.id, path=to, files=files)
        self._say(f"its files could not be kept: {complaint}; they are in {out}")
        return None
