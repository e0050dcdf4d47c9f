"""When the heartbeat thread sends, and what it leaves to the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event

import pytest

from hpq.domain.attempt import HeartbeatReply, Reason, ReportBatch, WorkerPresence
from hpq.domain.trial import Claim
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq_worker.lease import heartbeat as module
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.watchdog import Progress
from tests.support.constants import DEADLINE_S

LEASE = 30_000


class Beats(TrialStore):
    """A store that holds the first beat back until it is told to send it."""

    def __init__(self, context: StoreContext) -> None:
        super().__init__(context)
        self.replies: SimpleQueue[HeartbeatReply] = SimpleQueue()
        self.began, self.goes_on = Event(), Event()

    def beat(
        self, claim: Claim, who: WorkerPresence, batch: ReportBatch, *, lease_ms: int
    ) -> HeartbeatReply:
        is_first = not self.began.is_set()
        self.began.set()
        if is_first:
            assert self.goes_on.wait(DEADLINE_S)
        reply = super().beat(claim, who, batch, lease_ms=lease_ms)
        self.replies.put(reply)
        return reply

    def next(self) -> HeartbeatReply:
        """Wait for the reply to the next beat."""
        return self.replies.get(timeout=DEADLINE_S)


@pytest.fixture
def beats(store_context: StoreContext) -> Iterator[Beats]:
    beats = Beats(store_context)
    yield beats
    beats.goes_on.set()


@pytest.fixture
def woken() -> Event:
    return Event()


@pytest.fixture
def heartbeat(beats: Beats, who: WorkerPresence, woken: Event) -> Heartbeat:
    return Heartbeat(beats, who, LEASE, woken.set, OutageLog(), Progress())


def reported(heartbeat: Heartbeat, claim: Claim) -> ReportBuffer:
    """Begin an attempt that has reported once."""
    reports = ReportBuffer(None)
    heartbeat.begin(claim, reports)
    reports.report({"loss": 0.5}, 1)
    heartbeat.notify()
    return reports


def test_a_trial_that_ends_before_its_reports_are_due_sends_none_by_itself(
    sweep_of, take: Callable[[], Claim], beats: Beats, heartbeat: Heartbeat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "_GATHER_S", 3_600.0)
    beats.goes_on.set()
    sweep_of(1)
    reports = reported(heartbeat, take())
    heartbeat.flush()
    heartbeat.end()
    assert beats.next() is HeartbeatReply.OK and beats.replies.empty() and reports.is_empty


def test_a_trial_that_goes_on_sends_its_reports_by_itself(
    sweep_of, take: Callable[[], Claim], beats: Beats, heartbeat: Heartbeat
) -> None:
    sweep_of(1)
    beats.goes_on.set()
    reported(heartbeat, take())
    assert beats.next() is HeartbeatReply.OK


def test_a_beat_under_way_delays_no_commit_and_its_late_answer_stops_no_other_trial(
    sweep_of, take: Callable[[], Claim], store: TrialStore, beats: Beats, heartbeat: Heartbeat,
    woken: Event,
) -> None:  # fmt: skip
    sweep_of(2)
    first = take()
    reports = reported(heartbeat, first)
    assert beats.began.wait(DEADLINE_S)
    heartbeat.flush()
    assert reports.is_empty and beats.next() is HeartbeatReply.OK
    store.release(first, Reason.STOPPING)
    heartbeat.end()
    reported(heartbeat, take())
    beats.goes_on.set()
    assert beats.next() is HeartbeatReply.LOST
    assert beats.next() is HeartbeatReply.OK, "of the second attempt, which goes on"
    assert heartbeat.reply is HeartbeatReply.OK and not woken.is_set()
