"""The Prometheus metrics of a supervisor. Needs prometheus_client.

No label names a trial, a sweep or a parameter: their number has no bound. The metrics of the whole
fleet are those of `HPQ_PORT=9108 hpq dashboard`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily, Metric

from hpq import __version__
from hpq_worker.health.health import Health
from hpq_worker.health.telemetry import TelemetryMessage

_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_STATES = ("starting", "idle", "busy", "stopping", "down")
_USAGE = {
    "gpu.util": "Use of the GPUs of the trial that runs, in percent; all trials of a GPU count.",
    "gpu.memory_gb": "Memory of the GPU that the trial uses, in GB.",
    "gpu.power_w": "Power of the trial's GPUs, in watts.",
    "rss_gb": "Resident memory of the trial's processes, in GB.",
}


class WorkerMetrics:
    """Counts the messages of the workers."""

    def __init__(self, health: Health, queue: str) -> None:
        self._health, self._queue = health, queue
        self._registry = CollectorRegistry()
        self._attempts = Counter(
            "hpq_trial_attempts",
            "Attempts that ended here, by outcome and, for failures, their kind.",
            ["outcome", "kind"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "hpq_trial_duration_seconds",
            "How long the attempts that ended here ran.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._errors = Counter(
            "hpq_redis_errors", "Calls of Redis that failed.", registry=self._registry
        )
        self._starts = Counter(
            "hpq_worker_starts", "Worker processes started.", registry=self._registry
        )
        self._registry.register(self)
        self.page = make_wsgi_app(self._registry)

    def receive(self, message: TelemetryMessage) -> None:
        """Count a message of a worker."""
        if message.kind == "end":
            self._attempts.labels(outcome=message.status, kind=message.reason).inc()
            self._seconds.observe(message.seconds)
        elif message.kind == "error":
            self._errors.inc()

    def started(self) -> None:
        """Count the start of a worker process."""
        self._starts.inc()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a scrape (prometheus_client's protocol)."""
        build = GaugeMetricFamily(
            "hpq_build_info", "The version that runs here.", labels=["version", "queue"]
        )
        build.add_metric([__version__, self._queue], 1)
        yield build
        workers = GaugeMetricFamily(
            "hpq_workers", "Workers of this pod by state.", labels=["queue", "state"]
        )
        running = list(self._health.workers.values())
        for status in _STATES:
            workers.add_metric([self._queue, status], sum(it.status == status for it in running))
        yield workers
        yield GaugeMetricFamily(
            "hpq_worker_last_beat_timestamp_seconds",
            "When Redis last answered a worker of this pod; 0 for never.",
            value=max((it.redis_s for it in running), default=0.0),
        )
        yield GaugeMetricFamily(
            "hpq_ready", "1 if /readyz answers 200.", value=float(not self._health.not_ready())
        )
        yield from self._of_trials()

    def _of_trials(self) -> Iterator[Metric]:
        for name, about in _USAGE.items():
            gauge = GaugeMetricFamily(
                f"hpq_trial_{name.replace('.', '_')}", about, labels=["worker"]
            )
            for number, worker in list(self._health.workers.items()):
                if name in worker.usage:
                    gauge.add_metric([str(number)], worker.usage[name])
            if gauge.samples:
                yield gauge
