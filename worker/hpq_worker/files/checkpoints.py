"""Between the directories of an attempt and the store of files: checkpoints and artifacts.

Training code writes into a local directory, as it likes. A thread of its own looks at that, so
that neither the pipes nor the beats ever wait for a disk: what has changed, and is the same at two
looks, is copied under a new number, and the beat publishes it. Nothing here fails a trial.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread

from hpq.domain.trial import Artifacts, Checkpoint, Claim
from hpq.filestore.local import Files, Unreadable, answers, copy_in, copy_out, folder_of, is_inert
from hpq_worker.attempt.environment import AttemptPaths
from hpq_worker.attempt.execution import Signals
from hpq_worker.files import artifacts
from hpq_worker.files.snapshots import Signature, freeze, in_time, is_being_written, look
from hpq_worker.lease.report_buffer import ReportBuffer

log = logging.getLogger("hpq.files")
_LOOK_S = 0.25
_AFTER_ERROR_S = 2.0
_RESTLESS = 8  # looks, after which a single file that is always replaced is taken as it is
_STUCK_S = 5.0  # a store that hangs is not waited for longer
_OPEN_S = 30.0  # without a change, until a file that stays open for writing is taken as it is


class CheckpointPublisher:
    """Keeps what one attempt leaves; `files` is None where the worker has no store."""

    def __init__(
        self,
        files: Files | None,
        prefix: str,
        claim: Claim,
        place: AttemptPaths,
        collector: ReportBuffer,
        nudge: Callable[[], None],
        signals: Signals,
    ) -> None:
        self._files, self._claim, self._place = files, claim, place
        self._collector, self._nudge, self._signals = collector, nudge, signals
        self._base = folder_of(prefix, claim.trial, claim.token)
        self._number = 0
        self._over = Event()
        self._thread: Thread | None = None
        self._kept: Signature = ()  # what the newest copy in the store was made of
        self._seen: Signature = ()  # at the last look
        self._mark = Checkpoint(store="", path="")  # where training stood when that was new
        self._copies: list[Checkpoint] = []  # in the store, oldest first
        self._changes = 0  # looks in a row that saw something new
        self._changed_at = 0.0
        self._complaint = ""

    # --- the beginning --------------------------------------------------------------------------

    def restore(self) -> bool:
        """Put the last published checkpoint into the attempt's directory, or say why not.

        Answers False where the worker was told to stop meanwhile.

        Raises:
            OSError: the store or the disk does not work now; another worker may be better off.
        """
        pointer = self._claim.checkpoint
        if pointer is None:
            if self._claim.attempt - self._claim.unbegun > 1:
                none = "no checkpoint was kept" if self._files else artifacts.no_store()
                self._say(f"attempt {self._claim.attempt} starts from the beginning: {none}")
            return True
        why = in_time(lambda: self._fetch(pointer), self._is_told)
        if why is None or self._is_told():
            return False
        if why:
            self._collector.restart(why)
            self._say(f"training starts again: {why}")
            return True
        self._copies.append(pointer)
        self._kept = look(self._place.checkpoint)
        self._collector.resume(pointer)
        self._say(f"training goes on from the checkpoint of step {pointer.step}")
        return True

    def _is_told(self) -> bool:
        return self._signals.level() > 0

    def _fetch(self, pointer: Checkpoint) -> str:
        """Why there is no checkpoint to go on from; empty where it lies in its place now."""
        if self._files is None:
            return f"its checkpoint is in store {pointer.store}, and this worker has no HPQ_STORE"
        if self._files.id != pointer.store:
            return f"its checkpoint is in store {pointer.store}, and this worker's is another"
        if not is_inert(pointer.path):
            return "the path of its checkpoint leads out of the store"
        why = self._copy_back(self._files, pointer.path)
        if why:
            if not answers(self._files):
                raise OSError(f"store {pointer.store} is away")
            shutil.rmtree(self._place.checkpoint)
            self._place.checkpoint.mkdir()
        return why

    def _copy_back(self, files: Files, path: str) -> str:
        why = ""
        for pause_s in artifacts.TRIES_S:
            Event().wait(pause_s)
            try:
                names = [name for name in files.names(path) if is_inert(name)]
                for name in names:
                    to = self._place.checkpoint / name
                    copy_out(files, f"{path}/{name}", to, lambda: not self._is_told())
                return "" if names else "the files of its checkpoint are gone from the store"
            except FileNotFoundError:
                return "files of its checkpoint are gone from the store"
            except Unreadable as error:  # for nobody, perhaps; it must not hold up its sweep
                why = f"its checkpoint cannot be read: {error}"
        return why

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
        until = time.monotonic() + _STUCK_S
        while self._is_stuck and time.monotonic() < until and not self._signals.is_late():
            assert self._thread is not None
            self._thread.join(0.05)

    @property
    def _is_stuck(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

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
            self._changed_at = time.monotonic()
            self._changes += 1
            if self._changes < _RESTLESS or len(now) != 1:
                return
        if now and now != self._kept:
            self._publish(now, self._mark, lambda: not self._over.is_set())
        self._changes = 0

    def _publish(self, found: Signature, mark: Checkpoint, go_on: Callable[[], bool]) -> None:
        assert self._files is not None
        rests = time.monotonic() - self._changed_at > _OPEN_S
        if not rests and is_being_written(self._place.checkpoint, found):
            return
        self._number += 1
        to = f"{self._base}/checkpoint-{self._number}"
        frozen = self._place.work / "frozen"
        freeze(self._place.checkpoint, found, frozen)
        if self._changes:
            found = look(frozen)
            self._over.wait(_LOOK_S)
        names = [name for name, *_ in found]
        if not names or look(frozen) != found:
            return
        if not copy_in(frozen, names, self._files, to, go_on):
            return
        if look(frozen) != found or not go_on():
            self._files.remove(to)  # written in place meanwhile: the copy may be torn
            return
        self._kept = found
        self._copies.append(replace(mark, store=self._files.id, path=to))
        self._collector.publish(self._copies[-1])
        self._nudge()

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
        if self._files is None or not found or found == self._kept or self._is_stuck:
            return
        mark, self._changes = self._collector.mark(), 0
        if found != self._seen:
            self._changed_at = time.monotonic()
        is_late = self._signals.is_late
        in_time(
            lambda: self._attempt(lambda: self._publish(found, mark, lambda: not is_late())),
            is_late,
        )

    def artifacts(self) -> Artifacts | None:
        """Copy what the attempt left in its output directory; None where there is nothing to name.

        What cannot be copied stays in the directory, and the log says where.
        """
        out, to, is_late = self._place.out, f"{self._base}/artifacts", self._signals.is_late
        if self._files is None:
            return artifacts.keep(out, None, to, lambda: True, self._say)
        files = self._files
        kept = in_time(
            lambda: (artifacts.keep(out, files, to, lambda: not is_late(), self._say),), is_late
        )
        if kept is None:
            self._say(f"its files could not be kept: the store hangs; they are in {out}")
        return kept[0] if kept else None
