"""The supervisor's side of HPQ_PORT: one telemetry pipe per worker, and the endpoint."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from hpq.errors import SettingsError
from hpq_worker.health import telemetry
from hpq_worker.health.endpoint import Endpoint, pages
from hpq_worker.health.health import Health, WorkerHealth
from hpq_worker.process.protocol import LineBuffer

if TYPE_CHECKING:
    from hpq_worker.health.prometheus import WorkerMetrics

_READ_BYTES = 65_536


class Monitor:
    """Reads the telemetry of all workers; does nothing with port 0."""

    def __init__(self, port: int, queue: str, slots: int, interval_s: float) -> None:
        """Open the endpoint; `interval_s` passes between two messages of a worker.

        Raises UserError if the port cannot be used, SettingsError without the library.
        """
        self._pipes: dict[int, tuple[int, LineBuffer]] = {}
        self._health = Health({n: WorkerHealth() for n in range(slots)}, interval_s=interval_s)
        self._metrics: WorkerMetrics | None = None
        self._endpoint: Endpoint | None = None
        if port:
            metrics = self._metrics = _metrics(self._health, queue)
            self._endpoint = Endpoint(port, pages(self._health, metrics.page))

    def open_pipe(self, slot: int) -> int | None:
        """Return the write end of a new pipe for a slot's worker; the caller closes it."""
        if self._metrics is None:
            return None
        self.worker_ended(slot)  # closes the pipe of an earlier worker
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        self._pipes[slot] = (read_end, LineBuffer())
        self._metrics.started()
        self._health.worker_started(slot)
        return write_end

    def worker_ended(self, slot: int) -> None:
        """Read the last messages of a slot's worker, which has ended, and close its pipe."""
        if slot in self._pipes:
            self._read(slot)
            os.close(self._pipes.pop(slot)[0])
            self._health.worker_ended(slot)

    def poll(self) -> None:
        """Read all messages."""
        self._health.loop()
        for slot in self._pipes:
            self._read(slot)

    def close(self) -> None:
        """Close the endpoint."""
        if self._endpoint is not None:
            self._endpoint.close()

    def _read(self, slot: int) -> None:
        fd, lines = self._pipes[slot]
        assert self._metrics is not None
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        for line in lines.feed(data):
            message = telemetry.read(line)
            if message is not None:
                self._health.receive(slot, message)
                self._metrics.receive(message)


def _metrics(health: Health, queue: str) -> WorkerMetrics:
    try:
        module = import_module("hpq_worker.health.prometheus")
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"HPQ_PORT: /metrics needs {error.name}; `pip install prometheus-client`, or unset it",
            code="extra-missing",
        ) from None
    found: WorkerMetrics = module.WorkerMetrics(health, queue)
    return found
