"""What a worker and its runner say to each other: JSON lines over two pipes. Standard library only.

Parent → runner: a Run, then perhaps {"stop": why}; closing the pipe means: kill everything and go.
Runner → parent: {"report": {name: value}, "step": n}, {"phase": text}, {"ignore_printed": true},
and one {"end": {…}}, each with "of", its attempt: in a resident runner a thread of one attempt may
go on into the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpq.domain.trial import Failure, FailureKind, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt, as the runner needs it. Paths are absolute; exactly one of trainer and argv."""

    trial: str
    attempt: int
    params: Mapping[str, Json]
    seed: int = 0
    trainer: str = ""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None  # of a program; for a trainer, what is added to its own
    cwd: str = ""
    code_dir: str = ""  # where a user's trainer is imported from
    out: str = ""
    checkpoint: str = ""
    checkpoint_s: float = 60.0  # HPQ_CHECKPOINT_S
    socket: str = ""  # where a program reports
    data: str = ""  # HPQ_DATA
    cache: str = ""

    @property
    def id(self) -> str:
        """`sweep/number/attempt`."""
        return f"{self.trial}/{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the runner saw the attempt end. `stopped`: it obeyed a stop.

    `status` is the exit status of a program (negative: a signal); what failed there is in the log,
    which the parent has.
    """

    stopped: bool = False
    failure: Failure | None = None
    status: int = 0


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def read_message(line: bytes) -> dict[str, Any] | None:
    """The message that a line is; None for what is none."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def run_message(run: Run) -> bytes:
    """The line that starts an attempt."""
    return encode({"run": asdict(run)})


def read_run(data: Mapping[str, Any]) -> Run:
    """The attempt that a line of `run_message` describes."""
    return Run(**{**data, "argv": tuple(data["argv"])})


def end_message(of: str, end: End) -> bytes:
    """The line that ends an attempt."""
    return encode({"of": of, "end": asdict(end)})


def read_end(data: Mapping[str, Any]) -> End:
    """The end that a line of `end_message` describes."""
    raw = data["failure"]
    failure = None if raw is None else Failure(**{**raw, "kind": FailureKind(raw["kind"])})
    return End(stopped=data["stopped"], failure=failure, status=data["status"])


class Lines:
    """Puts the bytes of a pipe together to whole lines, the longest cut where that is asked for."""

    def __init__(self, longest_bytes: int | None = None) -> None:
        self._rest, self._longest_bytes = b"", longest_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, without their ends."""
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: self._longest_bytes]
        return whole

    def rest(self) -> bytes:
        """What stood after the last line end."""
        rest, self._rest = self._rest, b""
        return rest
