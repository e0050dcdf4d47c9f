"""The suggester of one sweep: reads the events of its trials and suggests sets ahead of need.

Its sets depend only on the order of the sweep's events, so that with one worker the same seed gives
the same sets at any speed. An error of Redis ends it: the next suggester reads all events anew.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event as Flag
from threading import Thread

from redis.exceptions import RedisError

from hpq.domain.status import Event
from hpq.domain.sweep import Impute
from hpq.search.replicates import replicated
from hpq.search.samplers import Sampler, Search, is_installed, unaided
from hpq.store.events import SweepHistory
from hpq.store.suggest_lease import LeaseReply, SuggestLease
from hpq.store.wire.fields import decoding, whole
from hpq.store.wire.row import encode_new
from hpq_worker.suggest.choose_sampler import Chooser
from hpq_worker.suggest.trial_results import TrialResults

log = logging.getLogger("hpq.suggest")
_WITH_SETS = ("created", "suggested", "added")  # events that tell of new sets
_LONGEST_S = 600.0  # for one set; a slower suggester hangs, and loses the lease
_IDLE_S = 600.0  # without a suggestion, after which the process frees its memory
_BLOCK_MS = 1_000
_CLAIMS = 17  # over which the pace is averaged: all workers may claim at once, then none for long
_SHARE = 0.01  # of a worker's time, which it may wait for a suggestion
_IMPORT_S = 3.0  # assumed time until the slow sampler's libraries are imported
_SLOW_S = 0.3  # assumed time of a slow suggestion, until one was measured
_BUSY = 0.5  # of the time in which workers claim the queued sets, which a slow suggestion may take
_RETRY_SHARE = 0.05  # of the time, spent on measuring whether a slow sampler is still slow


class _Behind(Exception):
    """`hpq add` added trials that this suggester had not read."""


class Suggester:
    """Suggests the sets of one sweep while it holds the lease."""

    def __init__(
        self, search: Search, history: SweepHistory, lease: SuggestLease, *, may_gp: bool = True
    ) -> None:
        self._search = search
        self._history = history
        self._lease = lease
        self._may_gp = may_gp
        self._results = TrialResults(search)
        self._warming = Thread()
        self._known = 0  # the highest number whose set is known
        self._answer = LeaseReply(word="")
        self._busy_since = self._made_at = time.monotonic()
        self._make_s: dict[Sampler, float] = {}  # to make a set
        self._gap_s = 0.0  # between two claims
        self._without_gp = 0  # sets of other samplers since the last slow one
        self._claims: deque[int] = deque(maxlen=_CLAIMS)

    def run(self) -> str:
        """Suggest until the sweep needs no more sets, or the lease is lost; return why it ended.

        Raises:
            redis.RedisError: Redis is away.
            DecodeError: a set or an event of the sweep cannot be read.
        """
        if not self.acquire():
            return self._answer.word
        log.info("sampler: %s; trials so far: %d", self._search.sampler, self._answer.rows)
        done = Flag()
        extender = Thread(target=self._extend_lease, args=(done,), name="lease", daemon=True)
        extender.start()
        try:
            self.begin()
            while self._answer.is_ok and not self._is_idle:
                self._busy_since = time.monotonic()
                self.step()
            word = self._answer.word if not self._answer.is_ok else "idle"
        finally:
            done.set()
            extender.join()
            self._lease.release()
        self.wait_for_imports()  # a process that ends amid an import may crash
        return word

    def acquire(self) -> bool:
        """Acquire the lease; False if another holds it, or the sweep needs no sets."""
        self._answer = self._lease.acquire()
        return self._answer.is_ok

    def begin(self) -> None:
        """Read all events so far, then suggest the missing sets."""
        self._up_to_date(self._begin)

    def step(self) -> None:
        """Wait briefly for events; suggest a set after each that needs one."""
        self._up_to_date(self._step)

    def _up_to_date(self, work: Callable[[], None]) -> None:
        """Do some work; begin anew whenever trials were added that it did not know."""
        while True:
            try:
                return work()
            except _Behind:
                self._answer = self._lease.renew()
                if not self._answer.is_ok:
                    return
                self._history.rewind()
                work = self._begin

    def _begin(self) -> None:
        self._chooser = Chooser(self._search, may_gp=self._may_gp)
        self._results = TrialResults(self._search)
        self._known = 0
        self._claims.clear()  # the events are read again
        if lacking := unaided(self._search.sampler, is_installed):
            log.warning("%s, where this worker runs", lacking)
        missed = self._read()
        self._made_at = time.monotonic()
        if self._chooser.is_drawing:  # drawn at once, they run while the samplers are imported
            self._fill()
        self._warming = Thread(target=self._chooser.warm_up, name="imports", daemon=True)
        self._warming.start()
        self._fill()
        if missed:
            self._handle(missed)

    def _read(self) -> list[Event]:
        """Apply all events so far; return those since the first claim without a following set.

        With one worker that set depends only on the events before it.
        """
        missed: list[Event] = []
        while events := self._history.events():
            for event in events:
                if event.what in _WITH_SETS or self._answer.ahead > 1:
                    for earlier in missed:
                        self._apply(earlier)
                    missed.clear()
                elif missed or event.what == "claimed":
                    missed.append(event)
                    continue
                self._apply(event)
        return missed

    def wait_for_imports(self) -> None:
        """Wait until the samplers' libraries are imported."""
        self._warming.join()

    def _step(self) -> None:
        self._handle(self._history.events(_BLOCK_MS))

    def _handle(self, events: Sequence[Event]) -> None:
        is_new = not events
        for event in events:
            self._apply(event)
            is_new = is_new or not event.trial or event.what == "added"
            if event.what == "claimed" and self._answer.ahead < 2:
                self._fill()
            if not self._answer.is_ok:
                return
        if is_new:  # the sweep may be paused, its limits or the number of workers changed
            self._answer = self._lease.renew()
        if is_new or self._answer.ahead > 1:
            self._fill()

    def _record_claim(self, event: Event) -> None:
        """Update the time between two claims."""
        self._claims.append(event.at_ms)
        if len(self._claims) > 1:
            self._gap_s = (event.at_ms - self._claims[0]) / 1000 / (len(self._claims) - 1)

    def _ahead(self) -> int:
        """Return how many sets to queue: one per worker while they are drawn, else the fewest.

        A queued set misses the results that arrive while it waits.
        """
        most = self._answer.ahead
        if most < 2 or self._chooser.is_drawing or not self._gap_s:
            return most
        is_slow = self._chooser.preferred is Sampler.GP and not self._is_hurried(most - 1)
        make_s = self._slow_s if is_slow else self._make_s.get(self._chooser.by, 0.0)
        return max(1, min(most, math.ceil(make_s / (_SHARE * self._gap_s))))

    @property
    def _is_idle(self) -> bool:
        """True if the process should free its memory; CMA-ES keeps its state while trials run."""
        has_state = self._search.sampler is Sampler.CMAES and bool(self._results.running)
        return time.monotonic() - self._made_at >= _IDLE_S and not has_state

    @property
    def _slow_s(self) -> float:
        """Return the expected time of a slow suggestion."""
        return _IMPORT_S if self._warming.is_alive() else self._make_s.get(Sampler.GP, _SLOW_S)

    def _is_hurried(self, waiting: int) -> bool:
        """True if several workers could claim `waiting` sets before a slow sampler adds another.

        One worker waits: its sets depend on the events alone. So do several for `sampler: gp`.
        """
        if self._answer.ahead < 2 or self._is_stale or self._search.sampler is not Sampler.AUTO:
            return False
        return 0 < _BUSY * self._gap_s * (waiting + 1) < self._slow_s

    @property
    def _is_stale(self) -> bool:
        """True if the time of the slow sampler was measured long ago."""
        return self._without_gp * self._gap_s * _RETRY_SHARE > self._slow_s

    def _apply(self, event: Event) -> None:
        if event.what == "claimed":
            self._record_claim(event)
        with decoding(f"event {event.id} of the sweep"):
            ended = self._results.apply(event)
            count = whole(event.fields.get("count", "0"))
        if event.what in _WITH_SETS:
            self._read_sets(count if event.what == "created" else event.trial + count - 1)
            return
        if ended is not None:
            self._chooser.trial_ended(*ended)
        elif event.what == "retried":
            self._chooser.trial_requeued(event.trial)

    def _read_sets(self, last: int) -> None:
        """Read the new sets up to this number."""
        self._results.waiting.update(range(self._known + 1, last + 1))
        for number, params in self._history.parameters(self._known + 1, last):
            self._chooser.add(number, params)
        self._known = max(self._known, last)

    def _fill(self) -> None:
        """Suggest the missing sets."""
        while self._answer.is_ok and len(self._results.waiting) < self._ahead():
            self._busy_since = time.monotonic()
            number = self._known + 1
            hurried = self._chooser.is_drawing or self._is_hurried(len(self._results.waiting))
            if not hurried:
                self.wait_for_imports()
            preferred = self._chooser.preferred
            begun = time.monotonic()  # no import is part of what a set takes
            params = self._chooser.ask(number, self._stand_ins(), is_hurried=hurried)
            by, why = self._chooser.by, self._chooser.why
            if params is None:
                self._answer = self._lease.append(number, (), no_more="exhausted")
                break
            sets = replicated(params, self._search.replicates)
            rows = [encode_new(replicate, i) for i, replicate in enumerate(sets)]
            answer = self._lease.append(number, rows, by=f"{by} as {why}" if why else by)
            if answer.word == "behind":
                raise _Behind
            if answer.word == "known":  # a trial had them that cannot be read; `ask` returns others
                continue
            self._answer = answer
            for again, same in enumerate(sets[1:], number + 1):
                self._chooser.add(again, same)
            self._known = number + len(sets) - 1
            self._results.waiting.update(range(number, self._known + 1))
            self._made_at = time.monotonic()
            self._record_time(by if hurried else preferred, self._made_at - begun)
            if self._answer.ahead > 1:  # the next set learns from what has ended in the meantime
                for event in self._history.events():
                    self._apply(event)

    def _record_time(self, by: Sampler, duration_s: float) -> None:
        """Update the time of a suggestion."""
        is_first = by is Sampler.GP and self._is_stale
        mean_s = 0.0 if is_first else self._make_s.get(by, 0.0)
        self._make_s[by] = 0.8 * mean_s + 0.2 * duration_s if mean_s else duration_s
        self._without_gp = 0 if by is Sampler.GP else self._without_gp + 1

    def _stand_ins(self) -> dict[int, float]:
        """Return the values of running trials; none with one worker, whose sets must not depend on
        the reports of its running trial."""
        if self._answer.ahead < 2 and self._search.impute_while_running is not Impute.WORST:
            return {}
        running = sorted(self._results.running)
        if self._search.impute_while_running is None or not running:
            return {}
        reported = zip(running, self._history.objectives(running), strict=True)
        values = {number: self._results.imputed(value) for number, value in reported}
        return {number: value for number, value in values.items() if value is not None}

    def _extend_lease(self, done: Flag) -> None:
        """Extend the lease while a suggestion takes long."""
        while not done.wait(self._lease.lease_s / 3):
            if time.monotonic() - self._busy_since > _LONGEST_S:
                log.error("no suggestion after %g s; another process takes over", _LONGEST_S)
                return
            try:
                if not self._lease.renew().is_ok:
                    return
            except RedisError as error:
                log.warning("Redis: %s", error)
