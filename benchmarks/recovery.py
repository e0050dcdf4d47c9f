"""Measure the time from the loss of a worker to the requeue of its trial, and heartbeat costs.

Times are the server's: from just before the signal to the event of the requeue. A worker of another
class reaps but claims nothing, so that the requeued trial is observed before it is claimed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rq import Queue, Retry

from benchmarks import peers
from benchmarks.figures import Figure, percentile
from benchmarks.processes import DEFAULTS, RQ, WORKER, environment, running
from benchmarks.server import Server, private_server, wait
from benchmarks.sweeps import put, write_trials
from hpq.domain.trial import TrialId
from hpq_worker.process.process_tree import children

_KILLS, _AT_ONCE, _FEW = 100, 10, 5
_FAST = {"HPQ_LEASE_S": "2", "HPQ_REAP_S": "1", "HPQ_LOST_MAX": "1000"}
_DEFAULT = {"HPQ_LOST_MAX": "1000"}
_FLEET = (sys.executable, "-P", "-m", "hpq_worker", "--workers", "1")
_TARGET_S, _DEFAULT_TARGET_S, _GRACEFUL_S = 3.5, 35.0, 2.0
_WATCH_S = 30.0  # the duration of counting heartbeats


def measure(rounds: int) -> Iterator[Figure]:
    """Measure kills at short and default leases, a lone worker, SIGTERM, and RQ."""
    with private_server() as server, private_server() as other, ExitStack() as stack:
        # RQ restarts its job after a minute or more, so it is killed first and read last.
        rq = stack.enter_context(_rq_killed(other))
        killed = [s for _ in range(_KILLS // _AT_ONCE) for s in _lost(server, _AT_ONCE, _FAST)]
        default = _lost(server, _FEW, _DEFAULT)
        lone = [_lone(server) for _ in range(max(2, rounds))]
        told = _lost(server, _AT_ONCE, _FAST, signal.SIGTERM)
        beats, sent = _silent(server)
        theirs = rq()
    what = f"hpq, {_KILLS} kills -9, lease 2 s, reap 1 s"
    ours = Figure(what=what, unit="s", values=killed, target=_TARGET_S)
    yield ours
    yield Figure(
        what="the same, 99th percentile",
        unit="s",
        values=[percentile(killed, 99)],
        target=_TARGET_S,
    )
    yield ours.peer("rq Worker, 1 kill -9, its shortest intervals, an idle peer", [theirs])
    what = f"hpq, {_FEW} kills -9, the default lease 30 s, reap 5 s"
    yield Figure(what=what, unit="s", values=default, target=_DEFAULT_TARGET_S)
    what = "hpq, a lone worker is killed and starts again, lease 2 s, reap 1 s"
    yield Figure(what=what, unit="s", values=lone, target=_TARGET_S)
    what = f"hpq, SIGTERM to {_AT_ONCE} workers at once"
    yield Figure(what=what, unit="s", values=told, target=_GRACEFUL_S)
    yield Figure(what="hpq, beats of a silent trial in 5 s", unit="", values=[beats], target=1)
    yield Figure(what="the same, with presence and reaper", unit="", values=[sent])


def _hold(server: Server, count: int) -> str:
    return put(server, write_trials(server.folder, "stamps:hold", count, resident=False))


def _lost(
    server: Server, count: int, env: Mapping[str, str], number: int = signal.SIGKILL
) -> list[float]:
    """Return the seconds until each trial is requeued after a signal to all workers at once."""
    server.empty()
    with running(WORKER, {**server.env, **env, "HPQ_QUEUE": "reaper"}):
        wait(lambda: server.session().reader.workers.live(), "the worker that reaps")
        sid = _hold(server, count)
        victims = [_victim({**server.env, **env}) for _ in range(count)]
        try:
            _wait_running(server, sid, count)
            begun_ms = _now_ms(server)
            for victim in victims:
                victim.send_signal(number)
            found = _back(server, sid, count, begun_ms)
        finally:
            for victim in victims:
                victim.kill()
                victim.wait()
    return found


def _lone(server: Server) -> float:
    """Kill the only worker; its supervisor starts another, which requeues the trial."""
    server.empty()
    with running(_FLEET, {**server.env, **_FAST}) as fleet:
        sid = _hold(server, 1)
        _wait_running(server, sid, 1)
        begun_ms = _now_ms(server)
        for pid in children().get(fleet, []):
            os.kill(pid, signal.SIGKILL)
        return _back(server, sid, 1, begun_ms)[0]


def _silent(server: Server) -> tuple[float, float]:
    """Return a worker's heartbeats and script calls in 5 s while its trial reports nothing."""
    server.empty()
    with running(WORKER, server.env):
        sid = _hold(server, 1)
        _wait_running(server, sid, 1)
        before = _calls(server)
        time.sleep(_WATCH_S)
        scripts, ticks = (b - a for a, b in zip(before, _calls(server), strict=True))
    # Each tick of the housekeeper is two calls, presence and reap; the rest are beats.
    return (scripts - 2 * ticks) * 5 / _WATCH_S, scripts * 5 / _WATCH_S


def _calls(server: Server) -> tuple[int, int]:
    """Return the number of script calls so far, and the number of reaps among them."""
    stats = server.redis.info("commandstats")
    return tuple(  # type: ignore[return-value]
        int(stats.get(f"cmdstat_{name}", {}).get("calls", 0))
        for name in ("evalsha", "zrangebyscore")
    )


def _victim(env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(WORKER, env=environment(env), stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    assert process.stdin is not None
    with process.stdin as config:
        config.write(DEFAULTS)
    return process


def _now_ms(server: Server) -> int:
    seconds, micros = server.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _wait_running(server: Server, sid: str, count: int) -> None:
    """Wait until `count` trials run and have sent a heartbeat."""
    reader = server.session().reader

    def is_so() -> bool:
        trials = [reader.trials.get(TrialId(sweep=sid, number=n)) for n in range(1, count + 1)]
        return all(t.beat_ms > t.claimed_ms and t.step for t in trials)

    wait(is_so, f"{count} trials that run")


def _back(server: Server, sid: str, count: int, begun_ms: int) -> list[float]:
    reader = server.session().reader

    def seen() -> list[int]:
        return [e.at_ms for e in reader.events.read(sid) if e.what == "requeued"]

    wait(lambda: len(seen()) >= count, f"{count} requeued trials")
    return [(at_ms - begun_ms) / 1000 for at_ms in seen()[:count]]


@contextmanager
def _rq_killed(server: Server) -> Iterator[Callable[[], float]]:
    """Kill an RQ worker and its child during a job; return a function that returns when the job
    started again on the idle peer."""
    stamped = server.folder / "stamps"
    words = (
        *(*RQ, "worker", "--quiet", "--url", server.url, "--worker-ttl", "16"),
        *("--job-monitoring-interval", "1", "--maintenance-interval", "1"),
    )
    queue = Queue(connection=server.redis)
    with running(words) as victim, ExitStack() as stack:
        queue.enqueue(peers.hold, str(stamped), retry=Retry(max=3), job_timeout=-1)
        wait(lambda: stamped.exists() and stamped.read_text("ascii"), "RQ's job to begin")
        stack.enter_context(running(words))  # the peer, which has nothing to do
        begun = time.monotonic()
        for pid in (victim, *children().get(victim, [])):
            os.kill(pid, signal.SIGKILL)

        def learn() -> float:
            wait(lambda: len(_stamps(stamped)) >= 2, "RQ's job to begin again")
            return _stamps(stamped)[1] - begun

        yield learn


def _stamps(path: Path) -> list[float]:
    return [float(line) for line in path.read_text("ascii").splitlines()]
