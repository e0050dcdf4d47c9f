"""The processes beside this worker that make sets for late-bound sweeps, when nobody does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpq.codes import Notice
from hpq.domain.sweep import Sweep
from hpq.errors import ExitCode
from hpq.search.search_spec import Sampler, is_installed, missing
from hpq.store.suggest_lease import SuggestLease
from hpq_worker.process import process_tree, secrets

log = logging.getLogger("hpq.suggest")
_MOST = 4  # sweeps that one worker makes sets for; others of the class do the rest
_AGAIN_S = 2.0  # between two starts for one sweep
_FAULTS = 3  # in a row, until it is started more rarely, and said why
_FIRST_TRY_S, _LAST_TRY_S = 30.0, 600.0


@dataclass(slots=True)
class _Course:
    """How it went for one sweep so far."""

    started_at: float
    last_words: int = -1  # where the process that runs says why it failed
    faults: int = 0  # in a row
    why: str = ""
    is_tpe_alone: bool = False

    @property
    def pause_s(self) -> float:
        if self.faults < _FAULTS:
            return _AGAIN_S
        return float(min(_LAST_TRY_S, _FIRST_TRY_S * 2 ** min(self.faults - _FAULTS, 9)))

    def ends(self, status: int, sampler: str) -> str | None:
        """The process has ended; answers what becomes of the sampler by it, in a line.

        What a signal kills is likely torch, for its memory, and no fault of the sweep's: `auto` can
        do without.
        """
        said = os.read(self.last_words, 1_000).decode("utf-8", "replace").splitlines()
        os.close(self.last_words)
        if status == ExitCode.OUT_OF_REACH:  # Redis was away: nothing is wrong with the sweep
            return None
        by = f"signal {-status}" if status < 0 else f"exit status {status}"
        if status < 0 and sampler == Sampler.AUTO and not self.is_tpe_alone:
            self.is_tpe_alone = True
            return f"what makes its sets was killed ({by}); from now on tpe alone makes them here"
        self.faults = self.faults + 1 if status else 0
        self.why = said[0] if said else by
        return None


class Suggesters:
    """Starts them and ends them; `environ` is this worker's, what is hidden included.

    `lead_of` makes the lease for a sweep.
    """

    def __init__(
        self, environ: Mapping[str, str], who: str, lead_of: Callable[[str], SuggestLease]
    ) -> None:
        self._lead_of = lead_of
        self._hidden = {k: v for k, v in environ.items() if os.environ.get(k) != v}
        self._who = who
        self._children: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}  # and the sampler
        self._courses: dict[str, _Course] = {}

    def feed(self, sweep: Sweep) -> Notice | None:
        """See to it that somebody makes sets for a sweep; answers why that cannot be done here.

        Raises:
            OSError: no process can be started.
            redis.RedisError: Redis is away.
        """
        if sweep.sampler not in set(Sampler):
            text = f"sampler {sweep.sampler!r} is not one of this hpq's; upgrade this worker"
            return Notice("hpq-too-old", text)
        sampler = Sampler(sweep.sampler)
        lacks = missing(sampler, is_installed)
        if lacks is not None:
            return Notice("extra-missing", f"{lacks}, where this worker runs")
        self._forget_ended()
        course = self._courses.get(sweep.id)
        is_early = course is not None and time.monotonic() - course.started_at < course.pause_s
        is_free = sweep.id not in self._children and len(self._children) < _MOST
        # Taken here first, so that of many workers one alone starts a process; that takes it anew.
        if is_free and not is_early and self._lead_of(sweep.id).acquire().is_ok:
            self._start(sweep.id, sweep.sampler)
        elif course and is_early and course.faults >= _FAULTS and sweep.id not in self._children:
            times = f"{course.faults} times in a row"
            text = f"what makes its sets failed {times}: {course.why}; see this worker's log"
            return Notice("sampler-failed", text)
        return None

    def _start(self, sid: str, sampler: str) -> None:
        course = self._courses.setdefault(sid, _Course(started_at=0.0))
        course.last_words, end = os.pipe()
        words = [sys.executable, "-P", "-m", "hpq_worker.suggest", sid, self._who, str(os.getpid())]
        try:
            words += [str(end), *([Sampler.TPE] if course.is_tpe_alone else [])]
            child = secrets.start(words, os.environ, self._hidden, (end,))
        except OSError:
            os.close(course.last_words)
            raise
        finally:
            os.close(end)
        process_tree.SPARED.add(child.pid)
        self._children[sid], course.started_at = (sampler, child), time.monotonic()

    def _forget_ended(self) -> None:
        for sid, (sampler, child) in list(self._children.items()):
            status = child.poll()
            if status is not None:
                process_tree.SPARED.discard(child.pid)
                if line := self._courses[sid].ends(status, sampler):
                    log.warning("%s: %s", sid, line)
                del self._children[sid]

    def close(self) -> None:
        """End them all."""
        children = [child for _, child in self._children.values()]
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(2.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for course in self._courses.values():
            course.is_tpe_alone = True  # nothing is said of what is killed here
        self._forget_ended()
