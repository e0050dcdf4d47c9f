"""Follow sweeps for the dashboard: one thread reads Redis and fans out to bounded queues."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from hpq.connection.client import short_reason
from hpq.domain.status import Event
from hpq.domain.trial import TrialView
from hpq.errors import HpqError, NotFound
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq_producer.analysis.records import finite
from hpq_producer.page.curves import POINTS, thinned
from hpq_producer.page.render import sweep_head
from hpq_producer.page.sweep_data import SweepData, encode_scale, encode_trials, read_sweep
from hpq_producer.terminal.text import clean

_BLOCK_MS = 200  # of one read: how long a new subscriber may wait for its first
_PAUSE_S = 0.25  # at most four patches a second
_POLL_S = 1.0  # running trials report without an event
_IMPORTANCE_S = 20.0  # between two computations of what takes seconds
_EVENTS = 1_000  # a browser that missed more loads the page again
_UNSHOWN_S = 30.0  # a sweep without a stream is forgotten after this time
_WAITING = 16  # messages that a slow browser may have ahead of it

Message = tuple[str, str, str]  # event, id, data


@dataclass(eq=False)
class Subscriber:
    """One open stream of a browser; None in its queue ends the stream."""

    topic: str
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Message | None] = field(default_factory=lambda: asyncio.Queue(_WAITING))

    def put(self, message: Message | None) -> None:
        """Add a message from any thread; a full queue becomes a single `reset`."""
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: Message | None) -> None:
        if message is None or self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            message = message and ("reset", "", "")
        self.queue.put_nowait(message)


class LiveSweep:
    """A sweep as its browsers have it, and the patch that brings them up to date."""

    def __init__(self, reader: StoreReader, sid: str, settings: Settings) -> None:
        self._reader, self._sid, self._settings = reader, sid, settings
        self.data = read_sweep(reader, sid, settings)
        self.last = self.data.status.last_event  # of the newest event that the data holds
        self._known, self._read_s = self.data.importance, 0.0
        self._computed_s = self.made_s = time.monotonic()

    def wants_poll(self) -> bool:
        """Return whether trials run that were not read for a while."""
        return bool(self.data.status.running) and time.monotonic() - self._read_s >= _POLL_S

    def patch(self, events: Sequence[Event]) -> Message | None:
        """Read what changed; return it for the browsers, or None.

        Raises:
            NotFound: the sweep was removed.
        """
        old, self._read_s = self.data, time.monotonic()
        numbers = {event.trial for event in events if event.trial}
        self.data = read_sweep(self._reader, self._sid, self._settings, old, numbers, self._known)
        if self._read_s - self._computed_s >= _IMPORTANCE_S and self.data.trials != old.trials:
            self._computed_s = math.inf
            threading.Thread(target=self._compute, args=(self.data,), daemon=True).start()
        self.last = events[-1].id if events else self.last
        began = not any(t.params for t in old.trials) and any(t.params for t in self.data.trials)
        varying = self.data.sweep.varying != old.sweep.varying
        if began or varying or self.data.is_log != old.is_log:  # the axes change
            return ("reset", "", "")
        before = {t.id.number: t for t in old.trials}
        changed = [t for t in self.data.trials if before.get(t.id.number) != t]
        if not changed and not events:
            return None
        return ("patch", self.last, self.record(changed))

    def _compute(self, data: SweepData) -> None:
        """Compute what takes seconds beside the thread that reads."""
        try:
            self._known = data.summary.importance
        finally:
            self._computed_s = time.monotonic()

    def record(self, trials: Sequence[TrialView]) -> str:
        """Return trials with their curves, and the first screen, as JSON."""
        curves = {t.id.number: self.data.curves.get(t.id.number, ()) for t in trials}
        record = {
            "winner": self.data.winner.trial if self.data.winner else 0,
            "names": [clean(name) for name in self.data.names],
            "scale": encode_scale(self.data),
            "trials": encode_trials(self.data.sweep, trials, self.data.names),
            "curves": {
                n: [[s, finite(v)] for s, v in thinned(c, POINTS)] for n, c in curves.items()
            },
            "head": sweep_head(self.data),
        }
        return json.dumps(record, allow_nan=False)


class Hub:
    """Reads what open pages show, in one thread; `close` ends every stream."""

    def __init__(
        self, reader: StoreReader, settings: Settings, listings: Mapping[str, Callable[[], str]]
    ) -> None:
        self._reader, self._settings, self._listings = reader, settings, listings
        self._subscribers: set[Subscriber] = set()  # read as a copy: streams come and go
        self._lock = threading.RLock()  # of all below
        self._sweeps: dict[str, LiveSweep] = {}
        self._shown: dict[str, str] = {}  # what a listing's browsers have
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="dashboard", daemon=True).start()

    def close(self) -> None:
        """End every stream, and the thread; a signal handler may call it."""
        self._closed.set()
        for subscriber in list(self._subscribers):
            subscriber.put(None)

    def sweep(self, sid: str) -> LiveSweep:
        """Return a sweep's newest moment, which it reads if no page shows the sweep.

        Raises:
            NotFound: the sweep does not exist.
        """
        live = self._sweeps.get(sid)
        if live is None or sid not in self._topics():  # the thread reads no other
            live = LiveSweep(self._reader, sid, self._settings)  # takes seconds: without the lock
        with self._lock:
            self._sweeps[sid] = live
        return live

    def _topics(self) -> set[str]:
        return {one.topic for one in list(self._subscribers)}

    def subscribe(self, subscriber: Subscriber, after: str) -> None:
        """Add a stream; its first message is what changed after an event.

        Raises:
            NotFound: the sweep does not exist.
        """
        topic = subscriber.topic
        is_list = topic in self._listings
        live = None if is_list else self._sweeps.get(topic) or self.sweep(topic)
        with self._lock:
            if self._closed.is_set():
                return subscriber.put(None)
            self._subscribers.add(subscriber)
            if live is None:
                self._shown.pop(topic, None)
                return None
            self._sweeps[topic] = live  # the thread may have dropped it meanwhile
            last = self._reader.events.last_id(topic)
            if not self._reader.sweeps.exists(topic):  # a page loaded again would not be found
                return subscriber.put(("gone", "", ""))
            if order_of(after) > order_of(last):
                return subscriber.put(("reset", "", ""))
            after = after if order_of(after) > (0, 0) else "0"
            missed = self._reader.events.read(topic, after, count=_EVENTS)
            first = self._reader.events.read(topic, "0", count=1)
            is_trimmed = first and order_of(after) < order_of(first[0].id) and after != "0"
            if len(missed) == _EVENTS or is_trimmed:
                return subscriber.put(("reset", "", ""))
            numbers = {event.trial for event in missed}
            trials = [t for t in live.data.trials if t.id.number in numbers]
            return subscriber.put(("patch", live.last, live.record(trials)))

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a stream; waits for no lock, as the event loop calls it."""
        self._subscribers.discard(subscriber)

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            with self._lock:
                topics = self._topics()
                for sid, live in list(self._sweeps.items()):
                    if sid not in topics and began - live.made_s > _UNSHOWN_S:
                        del self._sweeps[sid]
                after = {sid: live.last for sid, live in self._sweeps.items() if sid in topics}
            try:
                news = {}
                if after:
                    news = self._reader.events.read_several(after, _BLOCK_MS, _EVENTS)
                for sid in after:
                    self._patch(sid, news.get(sid, []))
                for topic in topics & set(self._listings):
                    self._list(topic)
            except (RedisError, HpqError) as error:
                for topic in topics:
                    self._publish(topic, ("away", "", short_reason(error)))
            self._closed.wait(max(0.01, _PAUSE_S - (time.monotonic() - began)))

    def _patch(self, sid: str, events: Sequence[Event]) -> None:
        with self._lock:
            live = self._sweeps.get(sid)
            if live is None or not (events or live.wants_poll()):
                if live is not None and not self._reader.sweeps.exists(sid):
                    self._publish(sid, ("gone", "", ""))
                return
            try:
                message = live.patch(events)
            except NotFound:
                message = ("gone", "", "")
            except (ValueError, LookupError, TypeError) as error:  # a damaged record of one sweep
                message = ("away", "", f"its record in Redis is damaged: {error}")
            if message:
                self._publish(sid, message)

    def _list(self, topic: str) -> None:
        shown = self._listings[topic]()
        if self._shown.get(topic) != shown:
            self._shown[topic] = shown
            self._publish(topic, ("html", "", json.dumps(shown)))

    def _publish(self, topic: str, message: Message) -> None:
        for subscriber in list(self._subscribers):
            if subscriber.topic == topic:
                subscriber.put(message)


def order_of(event: str) -> tuple[int, int]:
    """Return the order of an event's id; the lowest for a text that is none."""
    ms, _, number = event.partition("-")
    return (int(ms), int(number or 0)) if ms.isdecimal() and (number or "0").isdecimal() else (0, 0)
