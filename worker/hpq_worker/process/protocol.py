"""The protocol between a worker and its runner: JSON lines over two pipes. Standard library only.

Parent → runner: a RunRequest, then perhaps {"stop": why}. When the pipe closes, the runner kills
its descendants and exits.
Runner → parent: {"report": {name: value}, "step": n}, {"phase": text} and one {"end": {…}}, each
with "of", its attempt: in a resident runner a thread of one attempt may outlive the attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpq.domain.trial import Failure, FailureKind, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One attempt for the runner. Paths are absolute; exactly one of trainer and argv is set."""

    trial: str
    attempt: int
    params: Mapping[str, Json]
    seed: int = 0
    trainer: str = ""
    argv: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()  # modules of a program that is `PYTHON FILE …`
    env: Mapping[str, str] | None = None  # of a program; for a trainer, added to the runner's
    cwd: str = ""
    code_dir: str = ""  # where a user's trainer is imported from
    out: str = ""
    checkpoint: str = ""
    checkpoint_s: float = 60.0  # HPQ_CHECKPOINT_S
    data: str = ""  # HPQ_DATA
    cache: str = ""
    in_terminal: bool = False  # of `hpq try`: the program reads the terminal and gets its signals

    @property
    def id(self) -> str:
        """`sweep/number/attempt`."""
        return f"{self.trial}/{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an attempt ended. `stopped`: it obeyed a stop.

    `status` is the exit status of a program (negative: a signal); the parent finds the error in the
    log.
    """

    stopped: bool = False
    failure: Failure | None = None
    status: int = 0


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode one message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def read_message(line: bytes) -> dict[str, Any] | None:
    """Decode one line; None if it is no message."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def run_message(run: RunRequest) -> bytes:
    """Encode the start of an attempt."""
    return encode({"run": asdict(run)})


def read_run(data: Mapping[str, Any]) -> RunRequest:
    """Decode the start of an attempt."""
    lists = {name: tuple(data[name]) for name in ("argv", "preload")}
    return RunRequest(**{**data, **lists})


def end_message(of: str, end: End) -> bytes:
    """Encode the end of an attempt."""
    return encode({"of": of, "end": asdict(end)})


def read_end(data: Mapping[str, Any]) -> End:
    """Decode the end of an attempt."""
    raw = data["failure"]
    failure = None if raw is None else Failure(**{**raw, "kind": FailureKind(raw["kind"])})
    return End(stopped=data["stopped"], failure=failure, status=data["status"])


class LineBuffer:
    """Splits the bytes of a pipe into lines; of a line keeps the last `longest_bytes`, if given."""

    def __init__(self, longest_bytes: int | None = None) -> None:
        self._rest, self._longest_bytes = b"", longest_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the complete lines, without their ends."""
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-self._longest_bytes :] if self._longest_bytes else rest
        return whole

    def flush(self) -> bytes:
        """Return what follows the last line end."""
        rest, self._rest = self._rest, b""
        return rest
