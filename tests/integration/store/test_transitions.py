"""Every call in every state of a trial: what comes of it, and that it is a way of the one table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.trial import (
    TRANSITIONS,
    Artifacts,
    Claim,
    Failure,
    FailureKind,
    TrialId,
    TrialState,
)
from hpq.errors import UserError
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore

LEASE = 30_000
SID = "demo-00000"
ME = TrialId(sweep=SID, number=1)
STATES = {"Q": TrialState.QUEUED, "R": TrialState.RUNNING, "F": TrialState.FINISHED,
          "X": TrialState.FAILED, "P": TrialState.PRUNED, "C": TrialState.CANCELLED}  # fmt: skip

# What a trial's state is after a call, in each situation.
#   new       never claimed                       told     running, and told to stop
#   released  given back by its worker            stopping running, of a stopped sweep
#   reaped    its lease had ended                 dropped  cancelled before anyone claimed it
#   retried   failed, then queued by `hpq retry`
SITUATIONS = (
    "new released reaped running told stopping finished failed pruned cancelled dropped retried"
)
TABLE = {
    "claim":             "R R R R R R F X P C C R",
    "beat":              "Q Q R R R R F X P C C Q",
    "commit finished":   "Q Q F F F F F X P C C Q",
    "commit failed":     "Q Q X X X X F X P C C Q",
    "commit killed":     "Q Q Q Q X X F X P C C Q",  # tried again once, unless it is to end
    "commit pruned":     "Q Q P P P P F X P C C Q",
    "commit cancelled":  "Q Q C C C C F X P C C Q",
    "attach":            "Q Q Q R R R F X P C C Q",
    "release":           "Q Q Q Q C C F X P C C Q",
    "reap":              "Q Q Q Q C R F X P C C Q",  # what may end is waited for a little
    "reap at last":      "Q Q Q Q C C F X P C C Q",
    "reap dead":         "Q Q Q Q C C F X P C C Q",  # its process is known to be: no lease ended
    "pause":             "Q Q Q R R R F X P C C Q",
    "resume":            "Q Q Q R R R F X P C C Q",
    "stop":              "C C Q R R R F X P C C C",  # what was lost is waited for a little
    "cancel":            "C C C R R R F X P C C C",
    "cancel one":        "C C C R R R F X P C C C",
    "retry":             "Q Q Q R R R Q Q Q Q Q Q",
}  # fmt: skip
OUTCOMES = {
    "finished": Outcome(state=TrialState.FINISHED, objective=1.0),
    "pruned": Outcome(state=TrialState.PRUNED, objective=1.0),
    "cancelled": Outcome(state=TrialState.CANCELLED),
    **{
        name: Outcome(state=TrialState.FAILED, failure=Failure(kind=kind, message="m"))
        for name, kind in (("failed", FailureKind.USER_ERROR), ("killed", FailureKind.KILLED))
    },
}


class World:
    """One trial on a real server, brought into a situation."""

    def __init__(self, store: TrialStore, redis: Redis, keys: Keys, reader: StoreReader) -> None:
        self.store, self.redis, self.keys, self.reader = store, redis, keys, reader
        self.control = SweepControl(StoreContext.open(redis, keys))
        self.who = WorkerPresence(name="w", host="h", queue="default")
        # Who was never given a claim can only make one up.
        self.held = Claim(trial=ME, attempt=1, nonce="made up")
        store.reap("default", lease_ms=LEASE, lost_max=3)

    def bring(self, situation: str) -> None:
        """Into a situation."""
        if situation in ("new", "dropped"):
            if situation == "dropped":
                self.control.cancel(SID)
            return
        claim = self.store.claim(self.who, nonce="first", lease_ms=LEASE)
        assert isinstance(claim, Claim)
        self.held = claim
        steps: dict[str, Callable[[], object]] = {
            "running": lambda: None,
            "released": lambda: self.store.release(claim, Reason.STOPPING),
            "reaped": self._lose,
            "told": lambda: self.control.cancel(SID, [1]),
            "stopping": lambda: self.control.stop(SID),
            "retried": lambda: self._retry(claim),
            **{n: lambda n=n: self.store.commit(claim, OUTCOMES[n]) for n in OUTCOMES},
        }
        steps[situation]()

    def _retry(self, claim: Claim) -> None:
        self.store.commit(claim, OUTCOMES["failed"])
        self.control.retry(SID, [1])

    def _lose(self, *, silent_leases: int = 0) -> None:
        if silent_leases and self.redis.exists(self.keys.trial(ME)):
            now_ms = 1000 * self.redis.time()[0]
            self.redis.hset(self.keys.trial(ME), "beat_ms", now_ms - silent_leases * LEASE)
        for name in self.redis.zrange(self.keys.leases, 0, -1):
            self.redis.zadd(self.keys.leases, {name: 0})
        self.store.reap("default", lease_ms=LEASE, lost_max=3)

    def _bury(self) -> None:
        dead = [(ME, self.held.token)]
        self.store.reap("default", lease_ms=LEASE, lost_max=3, dead=dead)

    def call(self, words: str) -> None:
        """One call, sent twice, as a client does that got no reply."""
        verb, _, rest = words.partition(" ")
        calls: dict[str, Callable[[], object]] = {
            "claim": lambda: self.store.claim(self.who, nonce="second", lease_ms=LEASE),
            "beat": lambda: self.store.beat(
                self.held, self.who, ReportBatch(seq=9), lease_ms=LEASE
            ),
            "commit": lambda: self.store.commit(self.held, OUTCOMES[rest]),
            "attach": lambda: self.store.attach_files(self.held, Artifacts(store="abcd", path="p")),
            "release": lambda: self.store.release(self.held, Reason.STOPPING),
            "reap": lambda: (
                self._bury() if rest == "dead" else self._lose(silent_leases=4 if rest else 0)
            ),
            "retry": lambda: self.control.retry(SID, [1]),
            "cancel": lambda: self.control.cancel(SID, ([1] if rest else [])),
            **{v: lambda v=v: getattr(self.control, v)(SID) for v in ("pause", "resume", "stop")},
        }
        calls[verb]()
        calls[verb]()

    @property
    def state(self) -> TrialState:
        """The trial's."""
        return self.reader.trials.get(ME).state

    def replay(self) -> TrialState:
        """The state that the events lead to, each a way of the table."""
        now, dropped, lost = TrialState.QUEUED, False, False
        for event in self.reader.events.read(SID):
            goal = {"claimed": "R", "resumed": "R", "requeued": "Q", "retried": "Q"}.get(event.what)
            if event.trial:
                after = STATES[goal] if goal else TrialState(event.what)
                # A trial dropped with all others has no event of its own.
                before = TrialState.CANCELLED if dropped and event.what == "retried" else now
                assert after in TRANSITIONS[before], (event, before)
                now, dropped, lost = after, False, event.fields.get("reason") == "lost"
            elif event.what == "cancel" or (event.what == "stop" and not lost):
                dropped = dropped or now is TrialState.QUEUED
        return TrialState.CANCELLED if dropped else now


OVER = ["dropped", "finished", "failed", "pruned", "cancelled"]


def refuses(call: str, situation: str) -> bool:
    if call == "pause":
        return situation in ("stopping", *OVER)
    return call == "resume" and situation in ("stopping", "dropped")


def test_every_call_in_every_state_leads_where_the_table_says(
    store, redis, keys, reader, sweep_of
) -> None:
    """F12, R6, R20: 18 calls in 12 situations, each sent twice, and the events replayed."""
    seen = set()
    for call, row in TABLE.items():
        for situation, letter in zip(SITUATIONS.split(), row.split(), strict=True):
            if refuses(call, situation):
                continue
            redis.flushall()
            sweep_of(1, SID)
            world = World(store, redis, keys, reader)
            world.bring(situation)
            before = world.state
            world.call(call)
            assert world.state is STATES[letter], (call, situation)
            assert world.replay() is world.state, (call, situation)
            seen.add((before, world.state))
    ways = {(a, b) for a, goals in TRANSITIONS.items() for b in goals}
    assert seen - {(s, s) for s in TrialState} == ways  # each way is gone, and no other


@pytest.mark.parametrize("situation", ["stopping", *OVER])
def test_a_sweep_that_is_over_takes_no_pause(
    store, redis, keys, reader, sweep_of, situation, control: SweepControl
) -> None:
    sweep_of(1, SID)
    world = World(store, redis, keys, reader)
    world.bring(situation)
    for verb in ("pause", "resume"):
        if refuses(verb, situation):
            with pytest.raises(UserError, match="hpq retry"):
                getattr(control, verb)(SID)
