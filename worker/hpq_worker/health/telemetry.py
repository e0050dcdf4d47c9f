"""Telemetry of a worker, as JSON lines to the supervisor, which serves /livez, /readyz, /metrics.

The supervisor holds the metrics, so that they outlive a worker. A full pipe loses a message:
training must not wait for a graph.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from hpq.domain.attempt import CommitReply, Outcome

_MOST_BYTES = 4096  # PIPE_BUF: lines up to this arrive whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryMessage:
    """One message; `kind` selects the fields that count.

    redis: Redis answered.
    error: Redis did not answer.
    state: `status` is idle, busy or stopping; `reason` is why the worker cannot run trials, or "".
    end: `status` is an attempt's outcome, `reason` the failure's kind, `seconds` its duration.
    usage: `usage` is what the trial uses now, by the names of hpq.domain.trial.USAGE.
    """

    kind: str
    status: str = ""
    reason: str = ""
    seconds: float = 0.0
    usage: Mapping[str, float] = field(default_factory=dict)


class Telemetry:
    """A worker's end of the pipe; without a pipe nothing is sent."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_inheritable(fd, False)  # the runner does not inherit it
            os.set_blocking(fd, False)

    @property
    def is_connected(self) -> bool:
        """True if a supervisor reads the pipe."""
        return self._fd is not None

    def redis_answered(self) -> None:
        """Send that Redis answered."""
        self._send(TelemetryMessage(kind="redis"))

    def redis_failed(self) -> None:
        """Send that Redis did not answer."""
        self._send(TelemetryMessage(kind="error"))

    def worker_state(self, status: str, reason: str = "") -> None:
        """Send the worker's state, and why it cannot run trials."""
        self._send(TelemetryMessage(kind="state", status=status, reason=reason[:200]))

    def usage(self, readings: Mapping[str, float]) -> None:
        """Send what the running trial uses of its machine."""
        self._send(TelemetryMessage(kind="usage", usage=readings))

    def attempt_ended(self, outcome: Outcome, answer: str) -> None:
        """Send how an attempt ended, and the reply to its commit."""
        status = outcome.state.value if answer == CommitReply.DONE else answer.replace(" ", "_")
        reason = outcome.failure.kind.value if outcome.failure else ""
        self._send(
            TelemetryMessage(
                kind="end", status=status, reason=reason, seconds=(outcome.ran_ms or 0) / 1000
            )
        )

    def _send(self, message: TelemetryMessage) -> None:
        if self._fd is None:
            return
        line = json.dumps(asdict(message)).encode() + b"\n"
        # The supervisor is gone, or behind by a pipe full of messages.
        with suppress(OSError):
            if len(line) <= _MOST_BYTES:
                os.write(self._fd, line)


def read(line: bytes) -> TelemetryMessage | None:
    """Decode a line; None if it is no message."""
    try:
        return TelemetryMessage(**json.loads(line))
    except (ValueError, TypeError):
        return None
