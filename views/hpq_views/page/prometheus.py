"""The metrics of the whole fleet, for Prometheus. Needs prometheus_client.

They come from Redis, so they exist without a worker. No label names a trial or a sweep: their
number has no bound.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from threading import Lock

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from redis.exceptions import RedisError

from hpq.access.session import Session, reader_of
from hpq.domain.status import Fleet
from hpq.errors import UserError
from hpq.notice import warn
from hpq.redis.client import connect, explain

_KEPT_S = 5.0  # scrapes in between get the same figures
_ANSWER_S = 2.0  # for each call of Redis; Prometheus waits 10 s for a scrape
_SECONDS = [4**n for n in range(10)]  # by which commit.lua counts; ten are three days
# By the name in graphs, the field of the counters in Redis.
_COUNTED = {
    "leases_expired": ("leases_expired", "Leases that expired without a heartbeat."),
    "stale_commits": ("stale_commits", "Results refused because a later attempt has the trial."),
    "returned_again": (
        "returned_again",
        "Returns of a trial to the queue, from its third on; not those of lost workers.",
    ),
    "store_refused": (
        "store_refused",
        "Trials of which the file store refused a checkpoint or artifacts.",
    ),
    "set_aside": ("tickets_set_aside", "Entries of ticket queues that were not tickets."),
    "gpu_missing": ("gpu_missing", "Starts of workers that saw fewer GPUs than they were given."),
    "code_refused": (
        "code_refused",
        "Claims refused because the code is unsigned, of another key, or altered.",
    ),
}


class FleetMetrics:
    """Reads the fleet at a scrape, at most once in five seconds."""

    def __init__(self, session: Session) -> None:
        self._url = session.url
        redis = connect(session.url, retries=1, timeout_s=_ANSWER_S)
        self._reader = reader_of(redis, session.settings)
        self._lock = Lock()
        self._fleet: Fleet | None = None
        self._read_at = float("-inf")
        self._trouble = ""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a scrape (prometheus_client's protocol)."""
        yield from metrics_of(self._latest())

    def _latest(self) -> Fleet | None:
        with self._lock:
            if time.monotonic() - self._read_at >= _KEPT_S:
                self._fleet = self._read()
                self._read_at = time.monotonic()
            return self._fleet

    def _read(self) -> Fleet | None:
        trouble, fleet = "", None
        try:
            fleet = self._reader.workers.fleet()
        except RedisError as error:
            trouble = str(explain(error, self._url).notice)
        if trouble and trouble != self._trouble:
            warn(trouble)
        self._trouble = trouble
        return fleet


def metrics_of(fleet: Fleet | None) -> Iterator[Metric]:
    """Yield the metrics of a fleet; None: Redis did not answer."""
    about = "1 if Redis answered the exporter; without it there are no other figures."
    yield GaugeMetricFamily("hpq_redis_up", about, value=float(fleet is not None))
    if fleet is not None:
        yield from _of_queues(fleet)
        yield from _of_owners(fleet)
        yield from _of_attempts(fleet)
        yield from _of_redis(fleet)


def _of_queues(fleet: Fleet) -> Iterator[Metric]:
    demand = GaugeMetricFamily(
        "hpq_demand", "Trials of the queue that run or could be claimed now.", labels=["queue"]
    )
    for queue, count in fleet.demand.items():
        demand.add_metric([queue], count)
    yield demand
    yield _pairs(
        "hpq_trials_waiting",
        "Trials that wait, also of paused and held sweeps.",
        ("queue", "owner"),
        fleet.waiting,
    )
    yield _pairs("hpq_trials_running", "Trials that run.", ("queue", "owner"), fleet.running)
    about = "Unfinished sweeps that are held, after alike failures or at their budget."
    held = GaugeMetricFamily("hpq_sweeps_held", about, labels=["queue"])
    for queue, count in fleet.held.items():
        held.add_metric([queue], count)
    yield held
    yield _pairs(
        "hpq_fleet_workers",
        "Workers with a heartbeat in the last lease, by state.",
        ("queue", "state"),
        fleet.workers,
    )
    yield _pairs(
        "hpq_trial_gpu_util",
        "Use of the GPUs of running trials in percent; all trials of a GPU count.",
        ("queue", "host"),
        fleet.gpu_util,
    )


def _of_owners(fleet: Fleet) -> Iterator[Metric]:
    seconds = CounterMetricFamily(
        "hpq_gpu_seconds",
        "GPU time of an owner's trials since the first limit of owners was set; a CPU counts as 1.",
        labels=["owner"],
    )
    for owner, spent_ms in fleet.gpu_ms.items():
        seconds.add_metric([owner], spent_ms / 1000)
    yield seconds


def _of_attempts(fleet: Fleet) -> Iterator[Metric]:
    attempts = Counter[tuple[str, str]]()
    durations = Counter[int]()
    for (outcome, kind, seconds), number in fleet.ended.items():
        attempts[outcome, kind] += number
        durations[seconds] += number
    by_outcome = CounterMetricFamily(
        "hpq_trial_attempts",
        "Attempts that ended, by outcome and, for failures, their kind.",
        labels=["outcome", "kind"],
    )
    for pair, number in attempts.items():
        by_outcome.add_metric(list(pair), number)
    yield by_outcome
    buckets = [
        (f"{most}.0", sum(number for seconds, number in durations.items() if seconds <= most))
        for most in _SECONDS
    ]
    yield HistogramMetricFamily(
        "hpq_trial_duration_seconds",
        "How long the attempts that ended ran.",
        buckets=[*buckets, ("+Inf", durations.total())],
        sum_value=None,
    )


def _pairs(
    name: str, about: str, labels: tuple[str, str], found: Mapping[tuple[str, str], float]
) -> Metric:
    gauge = GaugeMetricFamily(name, about, labels=labels)
    for pair, count in found.items():
        gauge.add_metric(list(pair), count)
    return gauge


def _of_redis(fleet: Fleet) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "hpq_redis_memory_ratio",
        "used_memory over maxmemory; 0 if there is no limit.",
        value=fleet.memory_ratio,
    )
    yield GaugeMetricFamily(
        "hpq_redis_aof_ok",
        "1 if Redis keeps an append-only file and its last write succeeded.",
        value=float(fleet.is_aof_ok),
    )
    for name, (field, about) in _COUNTED.items():
        yield CounterMetricFamily(f"hpq_{name}", about, value=fleet.counters.get(field, 0))


def serve_metrics(session: Session, host: str, port: int) -> None:
    """Serve /metrics from a thread until the process ends.

    Raises:
        UserError: the port cannot be used.
    """
    registry = CollectorRegistry()
    registry.register(FleetMetrics(session))
    try:
        start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        why = error.strerror or error
        text = f"cannot listen on {host}:{port}: {why}; set another HPQ_PORT, or --host"
        raise UserError(text, code="port-unusable") from None
