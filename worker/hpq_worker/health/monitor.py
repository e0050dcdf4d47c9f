"""The fleet's side of HPQ_PORT: a pipe a worker, what they say, and the endpoint that shows it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from hpq.errors import SettingsError
from hpq_worker.health import telemetry
from hpq_worker.health.endpoint import Endpoint
from hpq_worker.health.health import Health, Slot, pages
from hpq_worker.process.protocol import Lines

if TYPE_CHECKING:
    from hpq_worker.health.prometheus import Figures

_READ_BYTES = 65_536


class Monitor:
    """Listens to the workers of a fleet; with port 0 there is none to listen to."""

    def __init__(self, port: int, queue: str, slots: int, every_s: float) -> None:
        """`every_s`: how often a worker says something.

        Raises UserError where the port cannot be had, SettingsError without the library.
        """
        self._pipes: dict[int, tuple[int, Lines]] = {}
        self._health = Health({n: Slot() for n in range(slots)}, every_s=every_s)
        self._figures: Figures | None = None
        self._endpoint: Endpoint | None = None
        if port:
            figures = self._figures = _figures(self._health, queue)
            self._endpoint = Endpoint(port, pages(self._health, figures.page))

    def pipe(self, slot: int) -> tuple[int, ...]:
        """The end of a new pipe for a slot's worker, to be closed once that has it."""
        if self._figures is None:
            return ()
        self.died(slot)  # of an earlier worker there may be a pipe still
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._pipes[slot] = (ours, Lines())
        self._figures.started()
        self._health.born(slot)
        return (theirs,)

    def died(self, slot: int) -> None:
        """A slot's worker has ended; what it said last still counts."""
        if slot in self._pipes:
            self._read(slot)
            os.close(self._pipes.pop(slot)[0])
            self._health.died(slot)

    def turn(self) -> None:
        """Hear all that was said."""
        self._health.turn()
        for slot in self._pipes:
            self._read(slot)

    def close(self) -> None:
        """Answer no more."""
        if self._endpoint is not None:
            self._endpoint.close()

    def _read(self, slot: int) -> None:
        fd, lines = self._pipes[slot]
        assert self._figures is not None
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        for line in lines.feed(data):
            said = telemetry.read(line)
            if said is not None:
                self._health.hear(slot, said)
                self._figures.hear(said)


def _figures(health: Health, queue: str) -> Figures:
    try:
        found: Figures = import_module("hpq_worker.health.prometheus").Figures(health, queue)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"HPQ_PORT: /metrics needs {error.name}; pip install 'hpq[worker]', or leave it unset",
            code="extra-missing",
        ) from None
    return found
