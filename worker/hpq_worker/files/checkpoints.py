"""Publish checkpoints: copy them from the directory of an attempt to the file store.

Training code writes into a local directory at any time. A thread scans it, so that neither the
pipes nor the heartbeat wait for a disk. When a save has ended (`save_watch.py`), the files are
copied under a new number; the next heartbeat publishes the pointer in Redis. No error here fails a
trial.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from threading import Event

from hpq.domain.attempt import Outcome
from hpq.domain.trial import Checkpoint, Claim, TrialId
from hpq.error_codes import Code
from hpq.errors import BadParams
from hpq.filestore.base import (
    Files,
    GoOn,
    copy_in,
    folder_of,
    is_own,
    is_reachable,
)
from hpq.notice import Notice, tagged
from hpq.private_files import make_private
from hpq_worker.files import artifacts, history_file
from hpq_worker.files.copy_back import copy_back
from hpq_worker.files.save_watch import (
    Entry,
    SaveWatch,
    Signature,
    changed_s,
    finished,
    freeze,
    is_being_written,
    look,
    scan,
)
from hpq_worker.files.workdir import AttemptPaths
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import CallThread

log = logging.getLogger("hpq.files")
_SCAN_S = 0.25
_AFTER_ERROR_S = 2.0
_MOST_CHANGES = 8  # scans, after which a single file that always changes is copied as it is
_HUNG_S = 5.0  # the longest wait for a store that hangs
_TICK_S = 0.01  # a file's time is that of the kernel's last tick
_OPEN_S = 30.0  # without a change, after which a file open for writing is copied as it is


class CheckpointPublisher:
    """Restores and publishes the files of one attempt; `files` is None without a store."""

    def __init__(
        self,
        files: Files | None,
        prefix: str,
        claim: Claim,
        paths: AttemptPaths,
        reports: ReportBuffer,
        notify: Callable[[], None],
        signals: Signals,
        thread: CallThread,
        quiet_s: float,
    ) -> None:
        self._files = files
        self._claim = claim
        self._paths = paths
        self._reports = reports
        self._notify = notify
        self._signals = signals
        self._prefix = prefix
        self._base = folder_of(prefix, claim.trial, claim.token)
        self._number = 0
        self._stopped = Event()
        self._thread = thread
        self._running: Future[None] | None = None
        self._read_arrived: Callable[[], None] = lambda: None
        self._newest: Signature = ()  # the files of the newest copy in the store
        self._seen: Signature = ()  # at the last scan
        self._position = Checkpoint(store="", path="")  # of training when those were written
        self._looked_s = 0.0  # when the last scan began, in seconds since 1970
        self._copies: list[Checkpoint] = []  # in the store, oldest first
        self._changes = 0  # scans in a row that saw a change
        self._quiet_s = quiet_s
        self._watch = SaveWatch(quiet_s)
        self._is_restless = False
        self._error = ""
        self._is_kept = True  # as far as the views of the sweep say

    # --- the beginning --------------------------------------------------------------------------

    def restore(self) -> bool:
        """Copy the last published checkpoint into the attempt's directory, or log why not.

        Returns False if a signal stops the worker meanwhile.

        Raises:
            OSError: the store or the disk fails now; another worker may succeed.
            BadParams: the start of the trial is none, gone, or in a store that this worker lacks.
        """
        start = self._claim.start
        pointer = self._claim.checkpoint or (start.checkpoint if start else None)
        if self._claim.attempt > 1:
            self._reports.files_kept()  # what an earlier attempt lost does not count any more
        if pointer is None:
            if self._claim.attempt - self._claim.unbegun > 1:
                none = "no checkpoint was stored" if self._files else artifacts.no_store()
                line = f"attempt {self._claim.attempt} starts from the beginning: {none}"
                self._log_line(line, "training-restarted")
            return True
        why = self._why_not(pointer)
        if why and start is not None and not self._is_start(pointer):
            self._reports.restart(why)
            self._log_line(f"training restarts where it began: {why}", "training-restarted")
            pointer = start.checkpoint
            why = self._why_not(pointer)
        if self._is_stopping():
            return False
        if why and start is not None:  # its result would not be that of its start
            raise BadParams(f"cannot begin at the checkpoint of #{start.trial}: {why}")
        if why:
            self._reports.restart(why)
            self._log_line(f"training restarts from the beginning: {why}", "training-restarted")
            return True
        history_file.resume(self._paths.checkpoint, self._paths.out, pointer.counts)
        present = look(self._paths.checkpoint)
        self._newest = finished(present)
        self._seen = self._newest
        self._position = pointer
        self._watch = SaveWatch(self._quiet_s, present)
        self._reports.resume(pointer, start.checkpoint if start else None)
        line = f"training resumes from the checkpoint of step {pointer.step}"
        if start is not None and self._is_start(pointer):
            line = f"training begins at step {pointer.step}, at the checkpoint of #{start.trial}"
        self._log_line(line, "training-resumed")
        return True

    def _is_start(self, pointer: Checkpoint) -> bool:
        """True if a pointer names the checkpoint of another trial at which this one begins."""
        start = self._claim.start
        return start is not None and pointer.path == start.checkpoint.path

    def _why_not(self, pointer: Checkpoint) -> str:
        """Restore a checkpoint; return why it cannot be restored, "" if it was or a signal came."""
        why = self._thread.call_until(lambda go_on: self._fetch(pointer, go_on), self._is_stopping)
        if why is None and not self._is_stopping():
            raise OSError(f"store {pointer.store} hangs")
        return why or ""

    def _is_stopping(self) -> bool:
        return self._signals.is_stopping

    def _fetch(self, pointer: Checkpoint, go_on: GoOn) -> str:
        """Return why the checkpoint cannot be restored; "" if it was."""
        if self._files is None or self._files.id != pointer.store:
            own = f"uses {self._files.id}" if self._files else "has no HPQ_STORE"
            return f"its checkpoint is in store {pointer.store}; this worker {own}"
        # Most training code unpickles what it finds. The start is in the signed row.
        trial, start = self._claim.trial, self._claim.start
        if start is not None and self._is_start(pointer):
            trial = TrialId(sweep=trial.sweep, number=start.trial)
        if not is_own(pointer, self._prefix, trial):
            return f"its pointer in Redis names no folder of a checkpoint of {trial}"
        make_private(self._paths.checkpoint)
        why = copy_back(self._files, pointer.path, self._paths.checkpoint, go_on)
        if why:
            if not is_reachable(self._files):
                raise OSError(f"store {pointer.store} is away")
            shutil.rmtree(self._paths.checkpoint)
            make_private(self._paths.checkpoint)
        return why

    def _not_kept(self, text: str, code: Code = "files-not-kept") -> None:
        """Log why files of the trial are not kept, and let the sweep's views say it."""
        self._log_line(text, code)
        self._reports.files_kept(Notice(code, text))
        self._is_kept = False

    def _kept(self) -> None:
        if not self._is_kept:
            self._is_kept = True
            self._reports.files_kept()

    def _log_line(self, text: str, code: Code) -> None:
        line = tagged(text, code)
        log.warning("%s: %s", self._claim.trial, line)
        self._reports.log(f"hpq: {line}\n".encode())

    # --- while it trains ------------------------------------------------------------------------

    def start(self, read_arrived: Callable[[], None]) -> None:
        """Start to publish checkpoints; `read_arrived` adds to the reports what waits in pipes."""
        self._read_arrived = read_arrived
        if self._files is not None:
            self._running = self._thread.submit(self._loop)

    def stop(self) -> None:
        """Stop; a copy under way is abandoned."""
        self._stopped.set()
        until = time.monotonic() + _HUNG_S
        while self._is_alive and time.monotonic() < until and not self._signals.is_late():
            assert self._running is not None
            wait({self._running}, 0.05)

    @property
    def _is_alive(self) -> bool:
        return self._running is not None and not self._running.done()

    def _loop(self) -> None:
        wait_s = _SCAN_S
        while not self._stopped.wait(wait_s):
            wait_s = _SCAN_S if self._attempt(self._scan) else _AFTER_ERROR_S

    def _attempt(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except OSError as error:
            message = f"cannot store a checkpoint: {error}"
            if message != self._error:  # each retry, every two seconds, would log it
                self._error = message
                self._not_kept(f"{message}; training continues", "checkpoint-not-kept")
            return False
        self._error = ""
        return True

    def _scan(self) -> None:
        self._remove_older()
        if self._reports.is_publishing:  # Redis does not have the last one yet
            return
        since_s = self._looked_s
        self._looked_s = time.time()
        seen = look(self._paths.checkpoint)
        if self._watch.differs(seen):
            self._read_arrived()  # what was reported before the files changed
        now = time.monotonic()
        self._watch.add(seen, sum(self._reports.position().counts.values()), now)
        found = finished(seen)
        if found != self._seen:
            self._position = self._position_at(found, since_s)
            self._seen = found
            self._changes += 1
            if self._changes < _MOST_CHANGES or not self._watch.is_alone:
                return
        elif not self._watch.is_whole(now):
            self._changes = 0
            self._warn_if_restless()
            return
        if found and found != self._newest and not self._is_open(seen, now):
            self._publish(found, self._position, lambda: not self._stopped.is_set())
        self._changes = 0

    def _position_at(self, found: Signature, since_s: float) -> Checkpoint:
        """Return where training stood when the files were written that the last scan did not see.

        `since_s` is when that scan began: a file system with a slow clock names no earlier time.
        """
        if found == self._seen:
            return self._position
        new = {name for name, *_ in set(found) - set(self._seen)}
        if not new and self._seen:
            return self._position  # files of an older save were removed
        written_s = changed_s(self._paths.checkpoint, new)
        return self._reports.position(max(written_s, since_s) + _TICK_S)

    def _warn_if_restless(self) -> None:
        if self._watch.is_restless and not self._is_restless:
            self._is_restless = True
            seldom = f"HPQ_CHECKPOINT_DIR is never unchanged for {self._quiet_s:g} s"
            remedy = "save less often, or set HPQ_CHECKPOINT_QUIET_S on the workers"
            line = (
                f"no checkpoint is stored: {seldom}, so hpq cannot see where a save ends; {remedy}"
            )
            self._not_kept(line, "checkpoint-not-kept")

    def _is_open(self, seen: Sequence[Entry], now: float) -> bool:
        """Return True if the trial still writes a file of the save."""
        if self._watch.quiet_s(now) > _OPEN_S:
            return False
        saved = (one.name for one in seen if not (one.is_draft and self._watch.is_alone))
        return is_being_written(self._paths.checkpoint, saved)

    def _publish(self, found: Signature, position: Checkpoint, go_on: GoOn) -> None:
        assert self._files is not None
        self._number += 1
        to = f"{self._base}/checkpoint-{self._number}"
        frozen = self._paths.work / "frozen"
        freeze(self._paths.checkpoint, found, frozen)
        if self._changes:
            found = scan(frozen)
            self._stopped.wait(_SCAN_S)
        names = [name for name, *_ in found]
        if not names or scan(frozen) != found:
            return
        with suppress(FileNotFoundError):
            shutil.copyfile(
                self._paths.out / history_file.NAME, frozen / history_file.IN_CHECKPOINT
            )
            names.append(history_file.IN_CHECKPOINT)
        if not copy_in(frozen, names, self._files, to, go_on):
            return
        if scan(frozen) != found or not go_on():
            self._files.remove(to)  # written in place meanwhile: the copy may be torn
            return
        self._newest = found
        self._kept()
        self._copies.append(replace(position, store=self._files.id, path=to))
        self._reports.publish(self._copies[-1])
        self._notify()

    def remove_older(self) -> None:
        """Remove the checkpoints before the one that Redis points to, unless the store hangs.

        Raises:
            OSError: the store fails.
        """
        self._thread.call_until(lambda _: self._remove_older(), self._signals.is_late)

    def _remove_older(self) -> None:
        published = self._reports.published
        while published in self._copies and self._copies[0] != published:
            assert self._files is not None
            self._files.remove(self._copies[0].path)
            del self._copies[0]

    # --- the end --------------------------------------------------------------------------------

    def publish_last(self) -> None:
        """Publish the last checkpoint after training; the caller flushes the heartbeat."""
        seen = look(self._paths.checkpoint)
        found = finished(seen)
        if self._files is None or not found or found == self._newest or self._is_alive:
            return
        if self._is_open(seen, time.monotonic()):
            return
        position = self._position_at(found, self._looked_s)
        self._changes = 0
        self._thread.call_until(
            lambda go_on: self._attempt(lambda: self._publish(found, position, go_on)),
            self._signals.is_late,
        )

    def publish_artifacts(self, outcome: Outcome, *, needs_checkpoint: bool = True) -> Outcome:
        """Copy the files of the output directory to the store; return the outcome that names them.

        Files that cannot be copied now wait in the directory, and the log names it.
        `needs_checkpoint`: the trial may resume, or the sweep keeps checkpoints.
        """
        if not needs_checkpoint:
            self._kept()
        out = self._paths.out
        to = f"{self._base}/artifacts"
        files = self._files
        if not out.exists():
            return outcome
        if files is None:
            artifacts.publish(out, None, to, lambda: True, self._not_kept)
            return outcome
        try:
            kept = self._thread.call_until(
                lambda go_on: (artifacts.publish(out, files, to, go_on, self._not_kept),),
                self._signals.is_late,
            )
        except OSError as error:
            return self._keep_unstored(outcome, files.id, str(error))
        if kept is None:
            return self._keep_unstored(outcome, files.id, "the store hangs")
        (stored,) = kept
        if stored is not None:
            artifacts.remove(out, stored)
        return replace(outcome, artifacts=stored)

    def _keep_unstored(self, outcome: Outcome, store: str, why: str) -> Outcome:
        out = self._paths.out
        begin = f"cannot store the trial's files: {why}"
        try:
            waiting = artifacts.keep_unstored(self._paths.work, self._prefix, store, self._claim)
        except OSError as error:
            self._not_kept(f"{begin}; no later try, since {error}; they {artifacts.remain(out)}")
            return outcome
        self._log_line(f"{begin}; {artifacts.wait([out])}", "files-not-stored")
        return replace(outcome, unstored=waiting)
