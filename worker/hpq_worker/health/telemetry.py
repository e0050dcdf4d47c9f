"""What a worker tells the fleet that serves its /livez, /readyz and /metrics: a line of JSON each.

The fleet holds the figures, so they outlive a worker; the pipe is never waited for, since training
must not wait for a graph.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from hpq.domain.attempt import CommitReply, Outcome

OPTION = "--vitals="  # and the number of the file descriptor
_MOST_BYTES = 4096  # PIPE_BUF: lines up to this arrive whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Vital:
    """One message. `kind` says which of the other fields mean something.

    tick: `server` are figures of Redis by name, empty where they were not asked for.
    error: Redis could not be spoken to.
    state: `word` is idle, busy or stopping; `why` is what keeps it from working, if anything.
    end: `word` is an attempt's outcome, `why` the failure's kind, `seconds` how long it ran.
    """

    kind: str
    word: str = ""
    why: str = ""
    seconds: float = 0.0
    server: Mapping[str, float] = field(default_factory=dict)


class Telemetry:
    """A worker's end of the pipe; without one nothing is said."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_inheritable(fd, False)  # the runner gets none of it
            os.set_blocking(fd, False)

    @classmethod
    def given(cls, words: Sequence[str]) -> Telemetry:
        """The pipe that a command line names, if it does."""
        fds = [word.removeprefix(OPTION) for word in words if word.startswith(OPTION)]
        return cls(int(fds[0]) if fds else None)

    @property
    def is_heard(self) -> bool:
        """True where there is somebody to tell."""
        return self._fd is not None

    def tick(self, server: Mapping[str, float]) -> None:
        """Redis answered just now."""
        self._say(Vital(kind="tick", server=server))

    def error(self) -> None:
        """Redis did not."""
        self._say(Vital(kind="error"))

    def state(self, word: str, why: str = "") -> None:
        """What the worker does, and what keeps it from working."""
        self._say(Vital(kind="state", word=word, why=why[:200]))

    def end(self, outcome: Outcome, answer: str) -> None:
        """An attempt has ended, and what became of its commit."""
        word = outcome.state.value if answer == CommitReply.DONE else answer.replace(" ", "_")
        why = outcome.failure.kind.value if outcome.failure else ""
        self._say(Vital(kind="end", word=word, why=why, seconds=(outcome.ran_ms or 0) / 1000))

    def _say(self, vital: Vital) -> None:
        if self._fd is None:
            return
        line = json.dumps(asdict(vital)).encode() + b"\n"
        # A fleet that is gone, or behind by a pipe full of figures, misses one.
        with suppress(OSError):
            if len(line) <= _MOST_BYTES:
                os.write(self._fd, line)


def read(line: bytes) -> Vital | None:
    """What a line says, or None where it is none of ours."""
    try:
        return Vital(**json.loads(line))
    except (ValueError, TypeError):
        return None
