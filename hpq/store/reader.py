"""Read the store for people: plain read commands, a bounded number for each question.

Viewers may hold read-only credentials, so no reader runs a script or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from redis import Redis
from redis.exceptions import ResponseError

from hpq.domain.status import DurationStats, ServerMemory, SweepStatus
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId
from hpq.domain.usage import UsageCurves
from hpq.redis.damage import answered
from hpq.redis.round_trips import Question, ask, together
from hpq.store.events import EventReader
from hpq.store.keys import Keys
from hpq.store.ranking_reader import RankingReader
from hpq.store.sweep_reader import SweepReader
from hpq.store.trial_reader import TrialReader
from hpq.store.wire.fields import decoding, moment, trial_numbers
from hpq.store.wire.row import CheckOf
from hpq.store.wire.sweep import decode_durations
from hpq.store.wire.trial import decode_usage_curves
from hpq.store.worker_reader import OwnerReader, WorkerReader, clock_ms, memory_question, server_ms

if TYPE_CHECKING:
    from hpq.store.audit_reader import AuditReader

_USAGES_PER_ROUND_TRIP = 200
T = TypeVar("T")


def no_question(_: SweepView) -> Question[None]:
    """Ask nothing of a sweep."""
    yield from ()


class StoreReader:
    """Read what one prefix of one Redis server holds; `lease_ms` is the lease of a trial.

    `check_of` verifies parameters (TrialReader); without it they are read as they are.

    Every method may raise RedisError; the guard of a connection turns it into OutOfReach.
    """

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        lease_ms: int,
        check_of: CheckOf = lambda _: None,
        sweeps: SweepReader | None = None,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._check_of = check_of
        self.sweeps = sweeps or SweepReader(redis, keys)
        self.trials = TrialReader(redis, keys, check_of)
        self.ranking = RankingReader(redis, keys, self.trials)
        self.workers = WorkerReader(redis, keys, lease_ms)
        self.events = EventReader(redis, keys)
        self.owners = OwnerReader(redis, keys)

    @cached_property
    def audit(self) -> AuditReader:
        """What the store holds key by key."""
        from hpq.store.audit_reader import AuditReader  # noqa: PLC0415  few commands need it

        return AuditReader(self._redis, self._keys, self._check_of)

    def now_ms(self) -> int:
        """Return the time by the server's clock, in milliseconds."""
        return server_ms(self._redis)

    def ask(self, *questions: Question[Any]) -> list[Any]:
        """Return the results of questions of these readers, which share their round trips."""
        return ask(self._redis, together(*questions))

    def lost_question(self, seen_ms: int) -> Question[tuple[int, int | None]]:
        """Ask whether the server lost what a client has seen: data of `seen_ms`, or 0.

        Returns:
            Up to when its data go now, 0 if it has none. After which time it lost what was written,
            or None. Both in ms, by the server's clock.

        Raises:
            DecodeError: one of these keys is not as hpq writes it.
        """

        def add(pipe: Any) -> None:
            pipe.hget(self._keys.server, "newest_ms")
            pipe.zrangebyscore(self._keys.restarts, f"({seen_ms}", "+inf", start=0, num=1)

        found = yield add
        newest = answered(self._keys.server, found[0])
        restarts = answered(self._keys.restarts, found[1])
        with decoding(f"{self._keys.server}: field newest_ms"):
            newest_ms = moment(newest or 0)
        if newest_ms < seen_ms:  # no restart was recorded yet
            return newest_ms, newest_ms
        with decoding(self._keys.restarts):
            before_ms = moment(restarts[0]) if restarts else seen_ms
        return newest_ms, before_ms if before_ms < seen_ms else None

    def usage_curves(self, trials: Sequence[TrialId]) -> list[UsageCurves | None]:
        """Return what each trial's latest attempt with readings used over time, if any did.

        One round trip reads 200 trials.

        Raises:
            DecodeError: a record cannot be read.
        """
        found: list[UsageCurves | None] = []
        for first in range(0, len(trials), _USAGES_PER_ROUND_TRIP):
            some = trials[first : first + _USAGES_PER_ROUND_TRIP]
            keys = [self._keys.trial(trial, "points") for trial in some]
            pipe = self._redis.pipeline(transaction=False)
            for key in keys:
                pipe.hget(key, "#usage")
            for key, answer in zip(keys, pipe.execute(raise_on_error=False), strict=True):
                raw = answered(key, answer)
                with decoding(f"{key} field #usage"):
                    found.append(decode_usage_curves(raw.decode()) if raw else None)
        return found

    def server_memory(self) -> ServerMemory | None:
        """Return how full the server is; None if these credentials may not ask."""
        return ask(self._redis, self.memory_question())

    def memory_question(self) -> Question[ServerMemory | None]:
        """Ask how full the server is, as `server_memory`."""
        try:
            return (yield from memory_question())
        except (ResponseError, KeyError):
            return None

    def status(self, sid: str, rows: int, top: int = 3, recent: int = 3) -> SweepStatus:
        """Return one moment of a sweep.

        `rows` is the most running trials, oldest claim first; `top` the most of the best trials,
        and `recent` the most of those that ended last.

        Raises:
            NotFound: no sweep has this id.
        """
        status, _ = self.status_and(sid, rows, no_question, top, recent)
        return status

    def status_and(
        self,
        sid: str,
        rows: int,
        more: Callable[[SweepView], Question[T]],
        top: int = 3,
        recent: int = 3,
    ) -> tuple[SweepStatus, T]:
        """Return one moment of a sweep, as `status`, and the result of another question of it."""
        last_event, moment, live, memory = self.ask(
            # Read before all else: an event during the other reads is then reported twice, not lost
            self.events.last_id_question(sid),
            self._moment_question(sid, rows, top, recent, more),
            self.workers.live_question(),
            self.memory_question(),
        )
        sweep, status, found = moment
        workers = tuple(worker for worker in live if worker.queue == sweep.queue)
        is_behind = _is_stuck(sweep) and any(w.state == "busy" for w in workers)
        return (
            SweepStatus(
                sweep=sweep,
                workers=workers,
                ahead=tuple(self.sweeps.ahead_of([sweep])[sid]) if is_behind else (),
                memory=memory,
                silent_ms=self.workers.silent_ms,
                last_event=last_event,
                **status,
            ),
            found,
        )

    def _moment_question(
        self,
        sid: str,
        rows: int,
        top: int,
        recent: int,
        more: Callable[[SweepView], Question[T]],
    ) -> Question[tuple[SweepView, dict[str, Any], T]]:
        """Ask for a sweep, fields of its status, and the result of another question of it."""
        sweep, (running, ended, durations) = yield from together(
            self.sweeps.get_question(sid), self._shown_question(sid, rows, recent)
        )
        at, owners, trials, best, found = yield from together(
            _time_question(),
            self.owners.of_question([sweep.owner] if _is_stuck(sweep) else []),
            self.trials.many_question(sid, [*running, *ended]),
            self.ranking.best_question(sweep, top),
            more(sweep),
        )
        status = {
            "at_ms": at,
            "owner": owners.get(sweep.owner),
            "running": tuple(trials[: len(running)]),
            "recent": tuple(trials[len(running) :]),
            "best": tuple(best),
            "durations": durations,
        }
        return sweep, status, found

    def _shown_question(
        self, sid: str, rows: int, recent: int
    ) -> Question[tuple[list[int], list[int], DurationStats]]:
        """Ask for the running trials and those that ended last, and for sums of durations."""
        key = self._keys.sweep(sid)
        of_running, of_ended = f"{key}:running", f"{key}:ended"

        def add(pipe: Any) -> None:
            # One more of each than is shown: an end of -1 would be all.
            pipe.zrange(of_running, 0, rows)
            pipe.zrange(of_ended, 0, recent, desc=True)
            pipe.hmget(key, "dur_n", "dur_sum", "dur_sq")

        running, ended, durations = yield add
        return (
            trial_numbers(of_running, answered(of_running, running)[:rows]),
            trial_numbers(of_ended, answered(of_ended, ended)[:recent]),
            decode_durations(key, answered(key, durations)),
        )


def _is_stuck(sweep: SweepView) -> bool:
    return bool(sweep.counts.waits and not sweep.counts.running)


def _time_question() -> Question[int]:
    """Ask for the time by the server's clock, in milliseconds."""
    (at,) = yield lambda pipe: pipe.time()
    return clock_ms(answered("", at))
