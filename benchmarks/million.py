"""Measure commands on a sweep of a million trials: wall time, the longest call of Redis, memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from redis import Redis

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.processes import HPQ, environment
from benchmarks.server import Server, private_server
from benchmarks.sweeps import put, write_grid
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import parameter_sets

MOST_MS, MOST_MIB = 50, 200
_COUNT, _FEW = 1_000_000, 10_000
_LOGGED_US = 500  # slower calls are in Redis's log
# Runs a command: the peak of a process counts what its parent had at the fork.
_PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1], "w").write(str(peak))
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""

# Ends 1,000 waiting trials as claims and commits leave them, which take half an hour for a million.
_END = """
local sid, field, now = KEYS[1], ARGV[1], redis.call('TIME')[1] .. '000'
local s = 'hpq:s:' .. sid
local some = redis.call('ZRANGE', s .. ':waiting', 0, 999)
for _, n in ipairs(some) do
  local value = string.format('%.17g', (n * 7919 % 1000003) / 1000003)
  local claimed = redis.call('XADD', s .. ':events', '*', 'e', 'claimed', 'n', n, 'a', 1,
    'worker', 'w', 'host', 'h', 'provenance', '')
  local done = redis.call('XADD', s .. ':events', '*', 'e', 'finished', 'n', n, 'a', 1,
    'objective', value, 'step', 1)
  redis.call('HSET', 'hpq:t:' .. sid .. '/' .. n, 'attempt', 1, 'state', 'finished',
    'worker', 'w', 'host', 'h', 'claimed_ms', now, 'beat_ms', now, 'provenance', '',
    'nonce', 'n', 'event_ids', claimed .. ' ' .. done .. ' ', 'closed', 1, 'ended_ms', now,
    'ran_ms', 900, 'objective', value, 'step', 1, 'best_value', value, field, value)
  redis.call('ZADD', s .. ':ended', now, n)
  redis.call('ZADD', s .. ':rank', value, n)
end
redis.call('ZREMRANGEBYRANK', s .. ':waiting', 0, #some - 1)
redis.call('HINCRBY', s, 'n_finished', #some)
return #some
"""


def measure(rounds: int) -> Iterator[Figure]:
    """Measure each command once, whatever the rounds: all take half an hour."""
    with private_server() as server:
        yield from commands(server, _COUNT)
        yield from _enqueue(server, _COUNT)


def commands(server: Server, count: int) -> Iterator[Figure]:
    """Measure commands on a sweep of `count` trials of which none, then all have ended."""
    file = write_grid(server.folder, count)
    yield from _figures(server, "enqueue", (*HPQ, "enqueue", str(file), "--new", "--force"))
    sid = server.session().reader.sweeps.ids(1)[0]
    reads: Mapping[str, Sequence[str]] = {
        "summary": ("summary", sid),
        "results --csv": ("results", sid, "--csv"),
        "report": ("report", sid, "--out", str(server.folder / "report.html")),
        "audit": ("audit", sid),
    }
    steps: Mapping[str, Sequence[str]] = {
        "ls": ("ls",),
        "watch --once": ("watch", sid, "--once"),
        "pause": ("pause", sid),
        "resume": ("resume", sid),
        "set run_cap, a half": ("set", sid, f"run_cap={count // 2}"),
        "set run_cap, all": ("set", sid, f"run_cap={count}"),
        **{f"{name}, none ended": words for name, words in reads.items()},
        "cancel": ("cancel", sid, "--yes"),
        "retry --cancelled": ("retry", sid, "--cancelled", "--yes"),
    }
    for name, words in steps.items():
        yield from _figures(server, name, (*HPQ, *words))
    end_waiting(server, sid)
    for name, words in reads.items():
        yield from _figures(server, f"{name}, all ended", (*HPQ, *words))
    yield from _figures(server, "rm", (*HPQ, "rm", sid, "--yes"))


def end_waiting(server: Server, sid: str) -> None:
    """Finish all waiting trials of a sweep."""
    metric = server.session().reader.sweeps.get(sid).metric
    assert metric is not None
    while server.redis.eval(_END, 1, sid, f"m:{metric.name}"):
        pass


def measured(server: Server, command: Sequence[str]) -> tuple[float, float, float]:
    """Return a command's wall time in s, its longest call of Redis in ms, its memory in MiB.

    Raises:
        SystemExit: the command failed.
    """
    redis, peak = server.redis, server.folder / "peak"
    redis.config_set("slowlog-log-slower-than", _LOGGED_US)
    redis.config_set("slowlog-max-len", 10_000)
    redis.slowlog_reset()
    begun = time.perf_counter()
    wrapped = (sys.executable, "-S", "-c", _PEAK, str(peak), *command)
    done = subprocess.run(wrapped, env=environment(server.env), capture_output=True, check=False)
    wall_s = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"benchmarks: {command} exits with {done.returncode}: {done.stderr!r}")
    return wall_s, longest_ms(redis), int(Path(peak).read_text("ascii")) / 1024


def longest_ms(redis: Redis) -> float:
    """Return how long the longest call since the last reset of Redis's log took."""
    calls: Any = redis.slowlog_get(10_000)
    own = (b"SLOWLOG", b"CONFIG")
    return max(
        (call["duration"] / 1000 for call in calls if not call["command"].startswith(own)),
        default=_LOGGED_US / 1000,
    )


def _figures(server: Server, name: str, command: Sequence[str]) -> Iterator[Figure]:
    wall_s, longest, memory = measured(server, command)
    print(f"{name}: {wall_s:.1f} s, {longest:.1f} ms, {memory:.0f} MiB", file=sys.stderr)
    yield Figure(what=f"{name}, wall", unit="s", values=[wall_s])
    yield Figure(what=f"{name}, longest call", unit="ms", values=[longest], target=MOST_MS)
    yield Figure(what=f"{name}, memory", unit="MiB", values=[memory], target=MOST_MIB)


def _enqueue(server: Server, count: int) -> Iterator[Figure]:
    """Compare with RQ in the same run; a million jobs of RQ would take 1.6 GB and minutes."""
    for many, theirs in ((_FEW, _FEW), (count, count // 10)):
        file = write_grid(server.folder, many)
        ours = Figure(
            what=f"hpq, {many:,} trials", unit="sets/s", more_is_better=True,
            values=[_rate(server, many, partial(put, server, file))],
        )  # fmt: skip
        yield ours
        every = list(islice(parameter_sets(load(file, limit=None)), theirs))
        rate = _rate(server, theirs, partial(peers.enqueue_many, server.redis, every))
        yield ours.peer(f"rq enqueue_many, {theirs:,} jobs", [rate])


def _rate(server: Server, count: int, work: Callable[[], object]) -> float:
    server.empty()
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)
